"""From what Neo4j returns to what the domain knows."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import Job, JobStatus, Lease, LeasedJob
from embed_pipeline.store.database import from_ms, moment

Properties = Mapping[str, Any]


def to_job(properties: Properties) -> Job:
    """Read a job node."""
    category = properties.get("error_category")
    return Job(
        id=properties["id"],
        entity_uid=properties["entity_uid"],
        model=properties["model"],
        version=properties["version"],
        status=JobStatus(properties["status"]),
        priority=properties["priority"],
        attempts=properties["attempts"],
        max_attempts=properties["max_attempts"],
        fence=properties["fence"],
        created_at=moment(properties["created_at"]),
        queued_at=moment(properties["queued_at"]),
        run_after=from_ms(properties.get("run_after")),
        started_at=from_ms(properties.get("started_at")),
        heartbeat_at=from_ms(properties.get("heartbeat_at")),
        processed_at=from_ms(properties.get("processed_at")),
        lock_owner=properties.get("lock_owner"),
        lock_until=from_ms(properties.get("lock_until")),
        last_owner=properties.get("last_owner"),
        expiries=properties.get("expiries", 0),
        error=properties.get("error"),
        error_category=ErrorCategory(category) if category else None,
        error_stack=properties.get("error_stack"),
        error_history=tuple(properties.get("error_history", ())),
        cancelled_by=properties.get("cancelled_by"),
        tokens=properties.get("tokens"),
        tokens_in=properties.get("tokens_in"),
        truncated=properties.get("truncated"),
        text_hash=properties.get("text_hash"),
    )


def to_leased_job(values: Sequence[Any], *, owner: str, model: str) -> LeasedJob:
    """Read a job that was just leased."""
    id_, entity_uid, version, fence, attempts, max_attempts, expiries = values
    return LeasedJob(
        Lease(id_, entity_uid, model, version, owner, fence),
        attempts=attempts,
        max_attempts=max_attempts,
        is_suspect=expiries > 0,
    )


def lease_rows(leases: Iterable[Lease]) -> list[dict[str, Any]]:
    """Leases as parameters, in the order in which jobs are locked."""
    return [
        {"id": lease.job_id, "fence": lease.fence, "owner": lease.owner}
        for lease in sorted(leases, key=lambda lease: lease.job_id)
    ]


def is_held(properties: Properties | None, lease: Lease) -> bool:
    """Say whether a locked job is held under exactly this lease."""
    return (
        properties is not None
        and properties["status"] == JobStatus.PROCESSING
        and properties["fence"] == lease.fence
        and properties.get("lock_owner") == lease.owner
    )


def is_owned(properties: Properties, owner: str) -> bool:
    """Say whether the job is held by this owner, or by one of this run."""
    holder = properties.get("lock_owner") or ""
    is_leased = properties["status"] == JobStatus.PROCESSING
    return is_leased and (holder == owner or holder.startswith(f"{owner}/"))


def settled_as(properties: Properties | None, lease: Lease) -> str | None:
    """How this lease ended, if the job still remembers: the call was applied, its answer lost.

    A fence is given out once, so it names the lease by itself, whoever has had the job since.
    """
    if properties is None:
        return None
    if properties["status"] == JobStatus.COMPLETED:
        # The status says it; a note of its own would cost every completion.
        return JobStatus.COMPLETED.value if properties["fence"] == lease.fence else None
    return properties.get("settled_as") if properties.get("settled_fence") == lease.fence else None
