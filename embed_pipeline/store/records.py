"""From what Neo4j returns to what the domain knows."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from neo4j.time import DateTime

from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import DEFAULT_MAX_ATTEMPTS, Job, JobStatus, Lease, LeasedJob
from embed_pipeline.domain.keys import FIRST_VERSION
from embed_pipeline.store.database import from_ms, moment, to_ms

Properties = Mapping[str, Any]


def to_job(properties: Properties) -> Job:
    """Read a job node, including one written by others and not adopted yet."""
    created_at = time_of(properties.get("created_at")) or 0
    return Job(
        id=properties["id"],
        entity_uid=properties.get("entity_uid", ""),
        model=properties.get("model", ""),
        version=properties.get("version", FIRST_VERSION),
        status=status_of(properties.get("status")) or JobStatus.FAILED,
        priority=whole(properties.get("priority")) or 0,
        attempts=whole(properties.get("attempts")) or 0,
        max_attempts=whole(properties.get("max_attempts")) or DEFAULT_MAX_ATTEMPTS,
        fence=whole(properties.get("fence")) or 0,
        created_at=moment(created_at),
        queued_at=moment(time_of(properties.get("queued_at")) or created_at),
        run_after=from_ms(time_of(properties.get("run_after"))),
        started_at=from_ms(time_of(properties.get("started_at"))),
        heartbeat_at=from_ms(time_of(properties.get("heartbeat_at"))),
        processed_at=from_ms(time_of(properties.get("processed_at"))),
        lock_owner=properties.get("lock_owner"),
        lock_until=from_ms(time_of(properties.get("lock_until"))),
        last_owner=properties.get("last_owner"),
        expiries=properties.get("expiries", 0),
        error=properties.get("error"),
        error_category=category_of(properties.get("error_category")),
        error_stack=properties.get("error_stack"),
        error_history=tuple(properties.get("error_history", ())),
        cancelled_by=properties.get("cancelled_by"),
        tokens=properties.get("tokens"),
        pieces=properties.get("pieces"),
        text_hash=properties.get("text_hash"),
    )


def whole(value: object) -> int | None:
    """A whole number, including 1.0 as JavaScript clients write it; else ``None``."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def time_of(value: object) -> int | None:
    """Epoch milliseconds, also from a date of Neo4j's own type; ``None`` where it is no time."""
    if isinstance(value, DateTime) and value.tzinfo is not None:
        return to_ms(value.to_native())
    return whole(value)


def status_of(value: object) -> JobStatus | None:
    """The status as one of ours; ``None`` for any other value."""
    name = value.strip().upper() if isinstance(value, str) else ""
    return JobStatus[name] if name in JobStatus.__members__ else None


def category_of(value: object) -> ErrorCategory | None:
    """The error category, in any case; ``None`` for any other value."""
    name = str(value).upper()
    return ErrorCategory(name) if name in ErrorCategory.__members__ else None


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
    """Leases as parameters, in lock order."""
    return [
        {"id": lease.job_id, "fence": lease.fence, "owner": lease.owner}
        for lease in sorted(leases, key=lambda lease: lease.job_id)
    ]


def is_held(properties: Properties | None, lease: Lease) -> bool:
    """Say whether a locked job is held under exactly this lease."""
    return (
        properties is not None
        and properties.get("status") == JobStatus.PROCESSING
        and properties["fence"] == lease.fence
        and properties.get("lock_owner") == lease.owner
    )


def is_owned(properties: Properties, owner: str) -> bool:
    """Say whether the job is held by this owner, or by one of this run."""
    holder = properties.get("lock_owner") or ""
    is_leased = properties.get("status") == JobStatus.PROCESSING
    return is_leased and (holder == owner or holder.startswith(f"{owner}/"))


def is_moved(properties: Properties) -> bool:
    """Whether a newer text was requested under the last lease."""
    moved = properties.get("moved_fence")
    return moved is not None and moved == properties.get("fence")


def settled_as(properties: Properties | None, lease: Lease) -> str | None:
    """How this lease ended, if the job still remembers: the call was applied, its answer lost.

    A fence is given out once, so it names the lease by itself, also after later leases.
    """
    if properties is None:
        return None
    if properties.get("status") == JobStatus.COMPLETED:
        # The status says it; a note of its own would cost every completion. The owner, because
        # another program may have leased and completed the job without a fence.
        is_ours = properties.get("fence") == lease.fence
        is_ours = is_ours and properties.get("last_owner") == lease.owner
        return JobStatus.COMPLETED.value if is_ours else None
    return properties.get("settled_as") if properties.get("settled_fence") == lease.fence else None
