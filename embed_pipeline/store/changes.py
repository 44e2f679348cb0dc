"""What a move writes on a job node, as pure functions.

All of them leave a job consistent for every reader: an owner never stands without an expiry, a
finished job has no lock, and a pending job is in exactly one lane (ready, suspect or delayed).
Other jobs may keep the properties of their last lane: the lanes' indexes only have pending ones.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from embed_pipeline.domain.errors import ErrorCategory, TransitionRefusedError
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.lifecycle import MOVES, Move, is_allowed
from embed_pipeline.store.records import Properties

HISTORY_LENGTH: Final = 10
HISTORY_MESSAGE: Final = 200
BY_QUEUE: Final = "queue"
"""``cancelled_by`` of a job that the queue itself ended."""

_NO_LOCK: Final = {
    "lock_owner": None,
    "lock_until": None,
    "lease_request": None,
    "heartbeat_at": None,
}
_NO_LANE: Final = {"urgency": None, "ready_at": None, "suspect_at": None, "run_after": None}
_NO_ERROR: Final = {
    "error": None,
    "error_category": None,
    "error_stack": None,
    "error_history": None,
    "cancelled_by": None,
}


@dataclass(frozen=True, slots=True)
class ErrorNote:
    """An error as it is stored: redacted and short."""

    category: ErrorCategory
    message: str
    stack: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One row of ``CHANGE_JOBS``."""

    job_id: str
    before: JobStatus
    after: JobStatus
    properties: dict[str, Any]

    @property
    def row(self) -> dict[str, Any]:
        """The row as a parameter."""
        return {
            "id": self.job_id,
            "before": self.before.value,
            "after": self.after.value,
            "properties": self.properties | {"status": self.after.value},
        }


def back_to_pending(
    job: Properties,
    move: Move,
    *,
    now: int,
    delay_ms: int = 0,
    is_refunded: bool = False,
    is_expired: bool = False,
    note: ErrorNote | None = None,
    settled_as: str | None = None,
    text_hash: str | None = None,
) -> Change:
    """Give up a lease; the job keeps its age and so its place in the queue."""
    expiries = job["expiries"] + is_expired
    properties: dict[str, Any] = {
        **_NO_LOCK,
        "started_at": None,
        **_lane(job, now=now, delay_ms=delay_ms, expiries=expiries),
        **_note(job, note, now=now),
        **_settled(job, settled_as),
        "attempts": job["attempts"] - is_refunded,
        "expiries": expiries,
        "last_owner": job.get("lock_owner"),
    }
    if text_hash is not None:
        properties["text_hash"] = text_hash
    return _change(job, move, properties)


def ended(
    job: Properties,
    move: Move,
    *,
    now: int,
    note: ErrorNote | None = None,
    settled_as: str | None = None,
    **extra: Any,
) -> Change:
    """Finish a job: completed, failed or cancelled."""
    properties = {
        **_NO_LOCK,
        "run_after": None,
        **_note(job, note, now=now),
        **_settled(job, settled_as),
        "processed_at": now,
        "last_owner": job.get("lock_owner") or job.get("last_owner"),
        **extra,
    }
    return _change(job, move, properties)


def cancelled(job: Properties, *, now: int, by: str, reason: str) -> Change:
    """End a job without a vector."""
    return ended(job, Move.CANCEL, now=now, cancelled_by=by, error=reason or None)


def reopened(
    job: Properties,
    move: Move,
    *,
    now: int,
    priority: int | None = None,
    text_hash: str | None = None,
    max_attempts: int | None = None,
) -> Change:
    """Give a finished job a fresh start; the fence goes on rising."""
    priority = job["priority"] if priority is None else max(priority, job["priority"])
    properties = {
        **_NO_ERROR,
        **_lane({**job, "priority": priority, "queued_at": now}, now=now),
        "attempts": 0,
        "expiries": 0,
        "priority": priority,
        "queued_at": now,
        "processed_at": None,
        "text_hash": text_hash or job.get("text_hash"),
        "max_attempts": max_attempts or job["max_attempts"],
    }
    return _change(job, move, properties)


def promoted(job: Properties, *, priority: int) -> dict[str, Any]:
    """A higher priority for a pending job; one that is delayed takes it along."""
    is_ready = job.get("urgency") is not None
    return {"priority": priority, "urgency": -priority if is_ready else None}


def _change(job: Properties, move: Move, properties: dict[str, Any]) -> Change:
    status = JobStatus(job["status"])
    if not is_allowed(move, status):
        raise TransitionRefusedError(
            f"job {job['id']} is {status}; {move} needs {' or '.join(sorted(MOVES[move][0]))}"
        )
    return Change(job["id"], status, MOVES[move][1], properties)


def _lane(
    job: Properties, *, now: int, delay_ms: int = 0, expiries: int = 0
) -> dict[str, int | None]:
    if delay_ms > 0:
        return {**_NO_LANE, "run_after": now + delay_ms}
    if expiries > 0:
        return {**_NO_LANE, "suspect_at": job["queued_at"]}
    return {**_NO_LANE, "urgency": -job["priority"], "ready_at": job["queued_at"]}


def _settled(job: Properties, settled_as: str | None) -> dict[str, Any]:
    """Remember how this fence ended, so that the same call may be repeated."""
    if settled_as is None:
        return {}
    return {"settled_fence": job["fence"], "settled_as": settled_as}


def _note(job: Properties, note: ErrorNote | None, *, now: int) -> dict[str, Any]:
    if note is None:
        return {}
    entry = {
        "at": now,
        "attempt": job["attempts"],
        "category": note.category.value,
        "message": note.message[:HISTORY_MESSAGE],
        "owner": job.get("lock_owner"),
    }
    history = [*job.get("error_history", ()), json.dumps(entry, ensure_ascii=False)]
    return {
        "error": note.message,
        "error_category": note.category.value,
        "error_stack": note.stack,
        "error_history": history[-HISTORY_LENGTH:],
    }
