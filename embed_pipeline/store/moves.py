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
from embed_pipeline.store.cypher.lanes import LANE
from embed_pipeline.store.records import Properties

HISTORY_LENGTH: Final = 10
HISTORY_MESSAGE: Final = 200
BY_QUEUE: Final = "queue"
"""``cancelled_by`` of a job that the queue itself ended."""

NO_LOCK: Final = {
    "lock_owner": None,
    "lock_until": None,
    "lease_request": None,
    "heartbeat_at": None,
}
NO_LANE: Final = dict.fromkeys(LANE)
_NO_ERROR: Final = {
    "error": None,
    "error_category": None,
    "error_stack": None,
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
        **NO_LOCK,
        "started_at": None,
        **lane(
            priority=job["priority"],
            queued_at=job["queued_at"],
            expiries=expiries,
            run_after=now + delay_ms,
            now=now,
        ),
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
        **NO_LOCK,
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
    is_forced: bool = False,
    delay_ms: int | None = None,
) -> Change:
    """Give a finished job a fresh start; the fence goes on rising.

    A retry keeps the errors in the history: they are those of the text that is tried again. A
    changed text has none yet.
    """
    is_put_off = delay_ms is not None
    # The priority of what can wait says nothing about what follows it, nor the other way round.
    before: int = 0 if job.get("put_off") else job["priority"]
    wanted = before if priority is None else priority
    priority = wanted if is_put_off or job.get("put_off") else max(wanted, before)
    run_after = None if delay_ms is None else now + delay_ms
    is_retried = move is Move.RETRY_FAILED
    properties = {
        **_NO_ERROR,
        "error_history": (_with_last_error(job) or None) if is_retried else None,
        **lane(priority=priority, queued_at=now, expiries=0, run_after=run_after, now=now),
        "attempts": 0,
        "expiries": 0,
        "priority": priority,
        "put_off": is_put_off or None,
        "queued_at": now,
        "processed_at": None,
        "text_hash": text_hash or job.get("text_hash"),
        "max_attempts": max_attempts or job["max_attempts"],
        "ended_elsewhere": None,
        # A retry is still for what was asked for; a changed text has nothing to do with it.
        "forced_fence": job.get("forced_fence") if is_retried else None,
    }
    return _change(job, move, properties | (forced(job) if is_forced else {}))


def forced(job: Properties) -> dict[str, Any]:
    """The next lease asks the provider, whatever vectors the graph has."""
    return {"forced_fence": job["fence"]}


def promoted(job: Properties, *, now: int, priority: int) -> dict[str, Any]:
    """A higher priority for a pending job; one that is delayed takes it along.

    One that was put off, and has not been tried yet, is due now.
    """
    is_due = bool(job.get("put_off")) and job["attempts"] == 0
    place = lane(
        priority=priority,
        queued_at=job["queued_at"],
        expiries=job["expiries"],
        run_after=None if is_due else job.get("run_after"),
        now=now,
    )
    return {**place, "priority": priority, "put_off": None}


def _change(job: Properties, move: Move, properties: dict[str, Any]) -> Change:
    status = JobStatus(job["status"])
    if not is_allowed(move, status):
        raise TransitionRefusedError(
            f"job {job['id']} is {status}; {move} needs {' or '.join(sorted(MOVES[move][0]))}"
        )
    return Change(job["id"], status, MOVES[move][1], properties)


def lane(
    *, priority: int, queued_at: int, expiries: int, run_after: int | None, now: int
) -> dict[str, int | None]:
    """Decide the lane of a pending job: delayed, suspect or ready.

    ``cypher.lanes.enter_lane`` is the same rule for the statements that decide in the database.
    """
    if run_after is not None and run_after > now:
        return {**NO_LANE, "run_after": run_after}
    if expiries > 0:
        return {**NO_LANE, "suspect_at": queued_at}
    return {**NO_LANE, "ready_at": queued_at, "urgency": -priority}


def _settled(job: Properties, settled_as: str | None) -> dict[str, Any]:
    """Record how this fence ended, so that the same call may be repeated."""
    if settled_as is None:
        return {}
    return {"settled_fence": job["fence"], "settled_as": settled_as}


def _note(job: Properties, note: ErrorNote | None, *, now: int) -> dict[str, Any]:
    if note is None:
        return {}
    category, owner = note.category.value, job.get("lock_owner")
    return {
        "error": note.message,
        "error_category": category,
        "error_stack": note.stack,
        "error_history": _history(job, note.message, category, at=now, owner=owner),
    }


def _with_last_error(job: Properties) -> list[str]:
    """The error history of a failed job, including its last error."""
    history, error = list(job.get("error_history", ())), job.get("error")
    if error is None or (history and _message_of(history[-1]) == error[:HISTORY_MESSAGE]):
        return history
    # Not written by a worker of ours: the job was made or changed by hand.
    at, owner = job.get("processed_at"), job.get("last_owner")
    return _history(job, error, job.get("error_category"), at=at, owner=owner)


def _history(
    job: Properties, message: str, category: str | None, *, at: int | None, owner: str | None
) -> list[str]:
    entry = {
        "at": at,
        "attempt": job["attempts"],
        "category": category,
        "message": message[:HISTORY_MESSAGE],
        "owner": owner,
    }
    history = [*job.get("error_history", ()), json.dumps(entry, ensure_ascii=False)]
    return history[-HISTORY_LENGTH:]


def _message_of(entry: str) -> str | None:
    try:
        return json.loads(entry)["message"]
    except (ValueError, KeyError, TypeError):
        return None
