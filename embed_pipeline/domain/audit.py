"""Who did what to the queue, and what is remembered of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from embed_pipeline.domain.job import JobFilter
from embed_pipeline.domain.redact import one_line

MAX_ACTOR: Final = 128
MAX_FILTER: Final = 500
_NAMED: Final = 5
"""So many ids or keys are spelled out; the count says how many it were."""


class OperatorAction(StrEnum):
    """What an operator can do to a queue."""

    CANCEL = "cancel"
    RETRY = "retry"
    RESTORE = "restore"
    """Jobs that an operator had cancelled."""
    RELEASE = "release"
    """Leases taken from a worker that stopped, with the attempts given back."""
    RECOVER = "recover"
    """Leases taken from a worker that died; the attempts count."""
    PAUSE = "pause"
    RESUME = "resume"
    CLEAR_LIMIT = "clear_limit"
    """A hold of the rate limiter ended before its time."""
    PURGE = "purge"
    FORCE = "force"
    """Entities embedded again although their texts are the same."""
    CLEAR_ORPHANS = "clear_orphans"
    """Vectors removed from outdated versions of entities."""
    REPLACE_INDEX = "replace_index"
    CHANGE_MODEL = "change_model"
    """The queue made to belong to another model; every entity is embedded again."""
    CUTOVER = "cutover"
    """A step of a cut-over: another side begun, made live, or removed."""


@dataclass(frozen=True, slots=True)
class Operator:
    """On whose behalf something is done, and in which Dagster run, if any."""

    actor: str
    run_id: str | None = None

    def __str__(self) -> str:
        """The form in which jobs and queue name it: ``cancelled_by``, ``paused_by``."""
        return f"{self.actor}, Dagster run {self.run_id}" if self.run_id else self.actor


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One action as it was recorded."""

    id: str
    at: datetime
    actor: str
    action: str
    """One of ``OperatorAction``, or what a newer version of this program has called it."""
    filter: str
    """What was asked for."""
    count: int
    """How many jobs, leases or vectors were changed, also if it broke off half-way."""
    run_id: str | None = None
    is_complete: bool = True
    """False while it goes on, and for ever if its process died before the end."""


def describe_filter(which: JobFilter, *, reason: str = "") -> str:
    """A filter in one line, without unset conditions."""
    parts = {
        "id": which.ids,
        "status": which.statuses,
        "model": which.model and [which.model],
        "entity": which.entity_uids,
        "category": which.categories,
        "owner": which.owner and [which.owner],
        "created before": which.created_before and [f"{which.created_before:%Y-%m-%d %H:%M:%S}Z"],
        "ended before": which.ended_before and [f"{which.ended_before:%Y-%m-%d %H:%M:%S}Z"],
        "has expiry": None if which.has_lock is None else [str(which.has_lock).lower()],
        "reason": reason and [reason],
    }
    said = "; ".join(f"{name}: {_listed(values)}" for name, values in parts.items() if values)
    return said or "all"


def bounded(text: str, most: int) -> str:
    """Untrusted text as one line of limited length."""
    line = one_line(text)
    return line if len(line) <= most else line[: most - 1] + "…"


def _listed(values: Iterable[str]) -> str:
    words = sorted(str(value) for value in values)
    more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    return ", ".join(words[:_NAMED]) + more
