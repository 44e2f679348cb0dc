"""``embed-pipeline pause``, ``resume``, ``recover`` and ``cleanup``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from embed_pipeline.cli.base import at, console, operator, safe, show, table, with_queue
from embed_pipeline.cli.status import breaker_in_words
from embed_pipeline.domain.breaker import BreakerStatus
from embed_pipeline.domain.words import number_of

if TYPE_CHECKING:
    from embed_pipeline.domain.job import Job
    from embed_pipeline.domain.metrics import QueueMetrics
    from embed_pipeline.domain.results import RecoveredJob
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.queue import Queue

MOST_LISTED: Final = 1_000


def pause() -> None:
    """Give out no more jobs; what is being worked on goes on."""
    with_queue(lambda queue, _: queue.switch.pause(by=str(operator())))
    console.print("✓ Paused; 'embed-pipeline resume' gives out jobs again")


def resume(
    close_breaker: Annotated[
        bool, typer.Option("--close-breaker", help="Also close the breaker: the fault is mended.")
    ] = False,
) -> None:
    """Give out jobs again.

    An open breaker closes by itself when its probe works; --close-breaker waits for none.
    """

    async def work(queue: Queue, _: Settings) -> QueueMetrics:
        await queue.switch.resume(close_breaker=close_breaker)
        return await queue.metrics.read()

    metrics = with_queue(work)
    breaker = metrics.state.breaker
    if breaker.status is BreakerStatus.CLOSED:
        console.print("✓ The queue gives out jobs")
    else:
        console.print(
            f"! Not paused, but the breaker is {safe(breaker_in_words(breaker, metrics.at))}",
            soft_wrap=True,
        )


def recover(
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many; all if not given.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List expired leases; change nothing.")
    ] = False,
) -> None:
    """Take expired leases away from workers that have gone silent."""
    from embed_pipeline.operations.recovery import recover_all

    async def look(queue: Queue, settings: Settings) -> list[Job]:
        grace = settings.recovery_grace
        return await queue.admin.find_expired(limit=limit or MOST_LISTED, grace=grace)

    async def work(queue: Queue, settings: Settings) -> list[RecoveredJob]:
        grace = settings.recovery_grace
        return await recover_all(queue, grace=grace, limit=limit)

    if dry_run:
        _show_expired(with_queue(look))
        return
    jobs = with_queue(work)
    if jobs:
        rows = table("ID", "ENTITY", "FORMER OWNER", "LAST SIGN OF LIFE", "NOW")
        for job in jobs:
            owner = safe(job.former_owner or "")
            seen = at(job.last_heartbeat)
            rows.add_row(job.job_id, safe(job.entity_uid), owner, seen, job.status)
        show(rows)
    console.print(f"✓ {number_of(len(jobs))} recovered")


def _show_expired(jobs: list[Job]) -> None:
    rows = table("ID", "ENTITY", "OWNER", "LAST SIGN OF LIFE", "EXPIRED", "TRIES")
    for job in jobs:
        tries = f"{job.attempts}/{job.max_attempts}"
        owner, seen = safe(job.lock_owner or ""), at(job.heartbeat_at)
        rows.add_row(job.id, safe(job.entity_uid), owner, seen, at(job.lock_until), tries)
    if jobs:
        show(rows)
    console.print(f"▸ Would recover {number_of(len(jobs))}")


def cleanup(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say how many; delete nothing.")
    ] = False,
) -> None:
    """Delete finished jobs older than the retention.

    It is EMBED_JOB_RETENTION_DAYS, or that of the state (…_COMPLETED, …_FAILED, …_CANCELLED).
    """
    from embed_pipeline.domain.results import retention_in_words
    from embed_pipeline.operations.cleanup import clean_up

    async def work(queue: Queue, settings: Settings) -> str:
        cleanup = await clean_up(queue, settings, dry_run=dry_run)
        report = cleanup.jobs
        older = f"that ended more than {retention_in_words(settings.retention)} ago"
        if dry_run:
            return f"▸ Would delete {number_of(report.deleted)} {older}"
        how = "APOC" if report.used_apoc else "plain transactions"
        return f"✓ {number_of(report.deleted)} {older} deleted, through {how}"

    console.print(with_queue(work))
