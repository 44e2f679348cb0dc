"""What the scan reads of an entity, and what that says about its vector."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.keys import Unfit

_MS: Final = timedelta(milliseconds=1)
UNKNOWN_MODEL: Final = "(unknown)"
"""Stands for the model of a vector that came without its name."""


@dataclass(frozen=True, slots=True)
class EntityReading:
    """What the scan reads of one current entity and of the job for its version."""

    uid: str
    version: int
    has_vector: bool
    dimensions: int | None
    vector_model: str | None
    vector_hash: str | None
    vector_version: int | None
    job_status: JobStatus | None
    unfit: Unfit | None = None
    """Why no job can mean the entity."""
    is_ours: bool = True
    """The mark beside the vector is complete and fits it."""
    is_blank: bool = False
    """There is nothing to embed."""
    is_wanted_anew: bool = False
    """Another vector was asked for while this one was being made."""
    embedded_at: int | None = None
    """When the vector was written, in epoch milliseconds."""
    entity_type: str = ""
    pieces: int = 1
    """Of its text when it was embedded; more than one if it was too long, or they are nodes."""
    found_pieces: int | None = None
    """How many of them can be found, where they are to be nodes."""
    is_cut: bool = False
    """Only the beginning of its text was read."""

    @property
    def lacks_pieces(self) -> bool:
        """Pieces of its text are nodes, and some, or their vectors, have been deleted."""
        return self.found_pieces is not None and self.found_pieces < self.pieces

    @property
    def model(self) -> str | None:
        """The model of the stored vector; ``None`` without one."""
        return (self.vector_model or UNKNOWN_MODEL) if self.has_vector else None


@dataclass(frozen=True, slots=True)
class Forced:
    """Which entities are embedded again although their vectors are current."""

    entity_type: str | None = None
    model: str | None = None
    """Of the vector that is there."""
    older_than: timedelta | None = None
    """Since the vector was written."""

    def means(self, reading: EntityReading, kind: Coverage, *, now_ms: int) -> bool:
        """Whether this entity is one of them."""
        if kind in (Coverage.UNEMBEDDABLE, Coverage.EMPTY_TEXT):
            return False
        written, age = reading.embedded_at, self.older_than
        is_old = written is not None and age is not None and written < now_ms - age / _MS
        return (
            self.entity_type in (None, reading.entity_type)
            and self.model in (None, reading.model)
            and (age is None or is_old)
        )

    def __str__(self) -> str:
        parts = {"type": self.entity_type, "model": self.model, "older than": self.older_than}
        return "; ".join(f"{name}: {x}" for name, x in parts.items() if x is not None) or "all"


def classify(
    reading: EntityReading, *, model: str, text_hash: str, dimensions: int | None
) -> Coverage:
    """Compare the vector with the current text, version and model."""
    if reading.unfit is not None:
        return Coverage.UNEMBEDDABLE
    if not reading.has_vector:
        return Coverage.EMPTY_TEXT if reading.is_blank else Coverage.MISSING
    if not reading.is_ours:
        return Coverage.FOREIGN
    if reading.vector_model != model:
        return Coverage.WRONG_MODEL
    if dimensions is not None and reading.dimensions != dimensions:
        return Coverage.WRONG_MODEL
    is_other = (reading.vector_hash, reading.vector_version) != (text_hash, reading.version)
    is_wanted = reading.is_wanted_anew or reading.lacks_pieces
    return Coverage.STALE if is_other or is_wanted else Coverage.CURRENT
