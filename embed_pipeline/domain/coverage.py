"""How well an entity is covered by its vector."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from embed_pipeline.domain.entity import MAX_KEY_LENGTH
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.lifecycle import EnqueueOutcome


class Coverage(StrEnum):
    """What the scan finds on a current entity."""

    CURRENT = "current"
    MISSING = "missing"
    STALE = "stale"
    """The vector is that of another text or version, or nobody knows of which."""
    WRONG_MODEL = "wrong_model"
    """The vector is of another model or length."""
    UNEMBEDDABLE = "unembeddable"
    """Its key or version cannot be those of a job."""


@dataclass(frozen=True, slots=True)
class EntityReading:
    """What the scan reads of one current entity and of the job for its version."""

    uid: str
    version: object
    has_vector: bool
    dimensions: int | None
    vector_model: str | None
    vector_hash: str | None
    vector_version: int | None
    job_status: JobStatus | None


@dataclass(frozen=True, slots=True)
class ReconcilePage:
    """What one page of the scan found and did; ``cursor`` is ``None`` after the last page."""

    cursor: str | None
    scanned: int
    coverage: Mapping[Coverage, int]
    waiting: int
    """Not current, but with a job that is pending or processing."""
    orphaned: int
    """Vectors on entities that are no longer current; search would still find them."""
    enqueued: Mapping[EnqueueOutcome, int] = field(default_factory=dict)


def classify(
    reading: EntityReading, *, model: str, text_hash: str, dimensions: int | None
) -> Coverage:
    """Say how well the vector fits text, version and model of today."""
    if type(reading.version) is not int or reading.version < 0:
        return Coverage.UNEMBEDDABLE
    if not 0 < len(reading.uid) <= MAX_KEY_LENGTH:
        return Coverage.UNEMBEDDABLE
    is_known = reading.vector_hash is not None
    if not reading.has_vector and not is_known:
        return Coverage.MISSING
    if is_known and reading.vector_model != model:
        return Coverage.WRONG_MODEL
    if reading.vector_hash != text_hash or reading.vector_version != reading.version:
        return Coverage.STALE
    if not reading.has_vector:
        # An entity without text is completed without a vector; any other has lost its own.
        is_on_purpose = reading.job_status is JobStatus.COMPLETED
        return Coverage.CURRENT if is_on_purpose else Coverage.MISSING
    if dimensions is not None and reading.dimensions != dimensions:
        return Coverage.WRONG_MODEL
    return Coverage.CURRENT
