"""Adoption of jobs that other programs wrote, as pure functions.

The truth of a job is its ``status``. Everything else is put right around it: a node in the shape of
the requirements has no fence and no lane, Memento's worker writes versions as text and categories
in small letters, and edits by hand forget the rest.
"""

import re
from typing import Any, Final
from uuid import uuid4

from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import PRIORITY_RANGE, JobStatus
from embed_pipeline.domain.keys import FIRST_VERSION
from embed_pipeline.domain.lifecycle import GiveBack, GiveUp, after_expiry
from embed_pipeline.domain.redact import MAX_MESSAGE, MAX_STACK, redact
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.database import duration_ms
from embed_pipeline.store.moves import NO_LANE, NO_LOCK, lane
from embed_pipeline.store.records import (
    Properties,
    category_of,
    is_moved,
    status_of,
    time_of,
    whole,
)

_INTEGRAL: Final = re.compile(r"(0|[1-9][0-9]{0,15})(\.0+)?", re.ASCII)
_NOT_ENDED: Final = {"processed_at": None, "cancelled_by": None, "ended_elsewhere": None}


def key_of(job: Properties, config: QueueConfig) -> dict[str, Any]:
    """The key of a job with its version as an integer, if it is a whole number."""
    version = job.get("version", FIRST_VERSION)
    if isinstance(version, str) and (match := _INTEGRAL.fullmatch(version.strip())):
        version = int(match[1])
    number = whole(version)
    model = job.get("model") or (config.identity.model if config.identity else None)
    return {
        "entity_uid": job.get("entity_uid"),
        "model": model,
        "version": version if number is None else number,
    }


def adopted(
    job: Properties, config: QueueConfig, *, now: int, was_leased: bool
) -> tuple[JobStatus, dict[str, Any]]:
    """The status of a foreign job, and all properties that it lacks.

    ``was_leased``: it still has the label of a lease, so the lease was taken away.
    """
    status, problem = _status_of(job)
    most = max(1, whole(job.get("max_attempts")) or config.max_attempts)
    attempts = max(0, whole(job.get("attempts")) or 0)
    expiries = max(0, whole(job.get("expiries")) or 0)
    run_after = time_of(job.get("run_after"))
    if status is JobStatus.PENDING and was_leased:
        # As if recovery had taken the lease away: a job that kills its workers must end.
        expiries += 1
        decision = after_expiry(
            attempts=attempts,
            max_attempts=most,
            expiries=expiries,
            policy=config.retry,
            roll=config.roll(),
            is_moved=is_moved(job),
        )
        if isinstance(decision, GiveUp):
            status, problem = JobStatus.FAILED, f"lease expired on {job.get('lock_owner')}"
        elif isinstance(decision, GiveBack):
            attempts = max(0, min(attempts, most) - 1)
        else:
            run_after = max(run_after or 0, now + duration_ms(decision.delay))
    elif status is JobStatus.PENDING and attempts >= most:
        # It is wanted again.
        attempts = 0
    priority = whole(job.get("priority")) or 0
    priority = min(max(priority, PRIORITY_RANGE[0]), PRIORITY_RANGE[-1])
    created_at = time_of(job.get("created_at")) or now
    queued_at = time_of(job.get("queued_at")) or created_at
    common = {
        "id": job["id"] if isinstance(job.get("id"), str) else str(uuid4()),
        "status": status.value,
        "priority": priority,
        "attempts": min(attempts, most),
        "max_attempts": most,
        "expiries": expiries,
        "created_at": created_at,
        "queued_at": queued_at,
        # Its former owner holds it no longer.
        "fence": max(0, whole(job.get("fence")) or 0) + 1,
    }
    if status is JobStatus.PENDING:
        place = lane(
            priority=priority, queued_at=queued_at, expiries=expiries, run_after=run_after, now=now
        )
        return status, {**common, **NO_LOCK, **_NOT_ENDED, **place, "started_at": None}
    if status is JobStatus.PROCESSING:
        return status, common | _leased(job, attempts=min(attempts, most))
    return status, common | _ended(job, config, status, now=now, problem=problem)


def retired(job: Properties, *, now: int, twin: str, by: str) -> dict[str, Any]:
    """Ends a job whose key another job already has; it keeps its own spelling of the key."""
    version = job.get("version")
    return {
        "status": JobStatus.CANCELLED.value,
        **NO_LOCK,
        **NO_LANE,
        "processed_at": now,
        "cancelled_by": by,
        "error": f"duplicate of job {twin}: version {version!r} is its version, written otherwise",
    }


def _status_of(job: Properties) -> tuple[JobStatus, str | None]:
    value = job.get("status")
    if status := status_of(value):
        return status, None
    # An unknown state; as a failed job it is seen, kept and can be tried again.
    return JobStatus.FAILED, f"its status was {str(value)[:50]!r}, which is none of a job"


def _leased(job: Properties, *, attempts: int) -> dict[str, Any]:
    until = time_of(job.get("lock_until"))
    owner = job.get("lock_owner")
    return {
        **_NOT_ENDED,
        **NO_LANE,
        "attempts": max(1, attempts),
        "lock_until": until,
        "lock_owner": str(owner) if owner else ("unknown" if until is not None else None),
        "lease_request": None,
    }


def _ended(
    job: Properties, config: QueueConfig, status: JobStatus, *, now: int, problem: str | None
) -> dict[str, Any]:
    properties: dict[str, Any] = {
        **NO_LOCK,
        **NO_LANE,
        "processed_at": time_of(job.get("processed_at")) or now,
        "ended_elsewhere": True,
    }
    if status is not JobStatus.FAILED:
        return properties
    error, stack = job.get("error") or problem or "no error was recorded", job.get("error_stack")
    category = category_of(job.get("error_category")) or ErrorCategory.TRANSIENT
    return properties | {
        "error": redact(str(error), config.secrets)[:MAX_MESSAGE],
        "error_category": category.value,
        "error_stack": redact(str(stack), config.secrets)[-MAX_STACK:] if stack else None,
    }
