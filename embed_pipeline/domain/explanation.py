"""Why an entity is found, or is not: its text, its vector and its jobs side by side."""

from dataclasses import dataclass
from typing import Final

from embed_pipeline.domain.batch import is_batch
from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.job import Job, JobStatus
from embed_pipeline.domain.judging import EntityReading
from embed_pipeline.domain.plan import Plan
from embed_pipeline.domain.text import only_neighbours_differ

NAMED: Final = 20
"""Of those that are counted so many are told."""
DEPENDANTS: Final = 1_000
"""Entities whose texts name this one that are counted and priced; a hub may have more."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that decides whether a search can find an entity."""

    entity: str
    model: str
    coverage: Coverage | None
    """How well its vector fits; ``None`` if there is no such entity."""
    why: str
    """The same in words."""
    text: str = ""
    """What would be embedded now."""
    prefix: str = ""
    """What the model gets before it, and before every piece of it."""
    is_cut: bool = False
    """Of a property only the beginning is in the text."""
    tokens: int = 0
    pieces: int = 0
    """In how many inputs it would be sent; more than one if it is too long, or they are nodes."""
    version: int | None = None
    dependants: int = 0
    """Entities whose texts name it; at most ``DEPENDANTS`` are counted."""
    has_more: bool = False
    """There may be more of them than were counted, and a new name may cost more."""
    named_by: tuple[str, ...] = ()
    """The keys of the first of them."""
    alone: Plan | None = None
    """What it takes if it says something else of itself."""
    change: Plan | None = None
    """What it takes if its name changes: its own text, and those of the dependants."""
    is_at_most: bool = False
    """Both take less where pieces of the texts stay: those have their vectors."""
    hidden: str | None = None
    """Why a search finds no entity at all: its index cannot."""
    jobs: tuple[Job, ...] = ()
    """The jobs of its versions, the newest first."""

    @property
    def is_found(self) -> bool:
        """Whether a search by the current text finds it."""
        return self.coverage is Coverage.CURRENT and self.hidden is None


def why_not(
    reading: EntityReading,
    coverage: Coverage,
    *,
    text_hash: str,
    recipe: str,
    job: Job | None,
    stopped: str | None = None,
    keeps_foreign: bool = False,
    hidden: str | None = None,
) -> str:
    """Explain in a sentence the state of the vector, and what happens to it next.

    ``stopped`` is why the queue gives out no jobs, if it does not, and ``hidden`` why its index
    finds nothing.
    """
    words = {
        Coverage.CURRENT: "its vector is that of this text",
        Coverage.EMPTY_TEXT: "there is nothing in its text to embed, so it has no vector",
        Coverage.MISSING: "it has no vector yet",
        Coverage.FOREIGN: "its vector was written by another program",
        Coverage.WRONG_MODEL: f"its vector is of {reading.model}, which is not the model now",
        Coverage.UNEMBEDDABLE: reading.unfit.words if reading.unfit else "no job can mean it",
        Coverage.STALE: "its text has changed since it was embedded",
    }
    said = words[coverage]
    if coverage is Coverage.STALE:
        if reading.vector_version != reading.version:
            said = f"its vector is of version {reading.vector_version}"
        elif only_neighbours_differ(reading.vector_hash, text_hash, recipe=recipe):
            said = "its neighbours have changed since it was embedded"
        elif reading.is_wanted_anew and reading.vector_hash == text_hash:
            said = "another vector was asked for while this one was being made"
        elif reading.lacks_pieces and reading.vector_hash == text_hash:
            said = "pieces of its text, or their vectors, have been deleted"
    if coverage is Coverage.CURRENT and hidden is not None:
        return f"{said}, but {hidden}"
    if coverage is Coverage.FOREIGN and keeps_foreign:
        return f"{said} and stays, because EMBED_FOREIGN_VECTORS is 'keep'"
    if coverage in (Coverage.CURRENT, Coverage.EMPTY_TEXT, Coverage.UNEMBEDDABLE):
        return said
    return f"{said}; {_becomes(job, stopped)}"


def _becomes(job: Job | None, stopped: str | None) -> str:
    if job is None:
        return "it has no job: the next scan makes one"
    match job.status:
        case JobStatus.PENDING if stopped:
            return f"its job waits, as all do: {stopped}"
        case JobStatus.PENDING if job.run_after is not None:
            return f"its job waits until {job.run_after:%Y-%m-%d %H:%M:%S} UTC"
        case JobStatus.PENDING:
            return "its job waits for a drain"
        case JobStatus.PROCESSING if is_batch(job.lock_owner):
            return f"its job is in {job.lock_owner}, which the provider may take a day for"
        case JobStatus.PROCESSING:
            return f"its job is being worked on by {job.lock_owner}"
        case JobStatus.COMPLETED:
            return "its job was done for a former text: the next scan opens it again"
        case _:
            return f"its job is {job.status.value}: {job.error or 'no reason is known'}"
