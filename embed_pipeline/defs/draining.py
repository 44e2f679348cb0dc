"""A drain inside a run of Dagster: what the job and the asset of the embeddings share."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeAlias

import dagster as dg

from embed_pipeline.defs.ended_drains import tell_former_owners
from embed_pipeline.defs.failures import failed_rows, what_failed
from embed_pipeline.defs.metadata import of_errors, plain
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.domain.job import JobFilter, JobStatus
from embed_pipeline.domain.outlook import Progress, progress_line
from embed_pipeline.history.keys import asset_key
from embed_pipeline.operations import wiring
from embed_pipeline.operations.following import fresh_settings
from embed_pipeline.settings import Settings
from embed_pipeline.settings.secrets import without_secrets
from embed_pipeline.store.connection import connected
from embed_pipeline.store.queue import Queue
from embed_pipeline.worker.engine import Drain
from embed_pipeline.worker.options import DrainOptions
from embed_pipeline.worker.report import DrainReport

DRAINS: Final = "embed_drains"
"""The asset that keeps a report of every drain, for as long as Dagster keeps anything."""
PROGRESS_SECONDS: Final = 60.0

Context: TypeAlias = dg.OpExecutionContext | dg.AssetExecutionContext


@asynccontextmanager
async def opened_drain(
    context: Context,
    neo4j: Neo4jResource,
    settings: Settings,
    options: DrainOptions,
    *,
    stop: asyncio.Event,
    mode: str | None = None,
) -> AsyncGenerator[tuple[Queue, Drain]]:
    """Build the drain of this run; every driver of it comes from the resource."""
    async with wiring.opened_drain(
        settings,
        neo4j.open_embedder(settings),
        owner=wiring.owner_of(context.run.run_id),
        options=options,
        stop=stop,
        say=context.log.info,
        opener=neo4j.open_driver,
        mode=mode,
    ) as opened:
        yield opened


async def side_of(neo4j: Neo4jResource, queue: str | None) -> Settings:
    """The settings of the live side of a cut-over, or of the one whose queue is named.

    Raises:
        ConfigurationError: no side has this queue.
    """
    async with connected(wiring.connection(neo4j.settings), neo4j.open_driver) as driver:
        sides = await fresh_settings(driver, neo4j.settings)
    if queue is None:
        return sides[0]
    for side in sides:
        if side.queue == queue:
            return side
    known = ", ".join(side.queue for side in sides)
    raise ConfigurationError(
        f"queue {queue!r} is not part of this deployment; it has {known}. Leave queue empty for "
        "the live one"
    )


async def run_and_tell(
    context: Context, queue: Queue, work: Drain, *, kept_for: str, config: dict[str, Any]
) -> dict[str, Any]:
    """Drain, log the progress once a minute, and report; returns the metadata of the run.

    ``kept_for`` is the queue of the deployment, whose assets keep the report of either side.
    """
    metadata: dict[str, Any] = {}
    telling = asyncio.create_task(_say_progress(context, queue, work))
    try:
        await work.run()
    finally:
        telling.cancel()
        with suppress(asyncio.CancelledError):
            await telling
        _tell_former_owners(context, work.report)
        metadata = await _tell(context, queue, work.report, kept_for, config)
    return metadata


def _tell_former_owners(context: Context, report: DrainReport) -> None:
    tell_former_owners(context.instance, report.taken_back)
    report.taken_back.clear()


async def _say_progress(context: Context, queue: Queue, work: Drain) -> None:
    """Log one line a minute; a failed reading never ends a drain."""
    seconds = 0.0
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        seconds += PROGRESS_SECONDS
        left = None
        with suppress(Exception):
            counts = await queue.admin.counts()
            left = counts[JobStatus.PENDING] + counts[JobStatus.PROCESSING]
        report = work.report
        now = Progress(report.completed, report.failed.total(), left, seconds, work.waiting)
        context.log.info(progress_line(now, waited=report.seconds_waiting))
        _tell_former_owners(context, report)


async def _tell(
    context: Context, queue: Queue, report: DrainReport, kept_for: str, config: dict[str, Any]
) -> dict[str, Any]:
    """Log the outcome of the jobs, record the report, and return the metadata of the run."""
    ending = report.ending or "an error cut it short"
    figures, errors = plain(report.as_dict()), of_errors(report)
    errors |= await _failed_jobs(queue, report)
    reason = f" ({figures['reason']})" if report.reason else ""
    why = f". Errors: {without_secrets(report.why)}" if report.why else ""
    failed = report.failed.total()
    said = (
        f"{report.completed} completed, {failed} failed, {report.retried} to "
        f"be tried again, {report.released + report.given_back} given back; ended because "
        f"{ending}{reason}{why}"
    )
    if failed:
        context.log.warning(f"{said}. {what_failed(report)}")
    else:
        context.log.info(said)
    keep_report(
        context.instance,
        report,
        run_id=context.run.run_id,
        queue=kept_for,
        config=config,
        errors=errors,
    )
    return {**figures, **errors}


def keep_report(
    instance: dg.DagsterInstance,
    report: DrainReport,
    *,
    run_id: str,
    queue: str,
    config: dict[str, Any],
    errors: dict[str, Any],
) -> None:
    """Add a report to the asset of the drains, without a run: it outlives the one it is about."""
    ending = report.ending or "an error cut it short"
    instance.report_runless_asset_event(
        dg.AssetMaterialization(
            asset_key(DRAINS, queue),
            description=f"Drain {run_id}: {report.completed} completed; {ending}",
            metadata={
                **{f"drain_{name}": value for name, value in plain(report.as_dict()).items()},
                **errors,
                "drain_run_id": run_id,
                "drain_config": config,
            },
        )
    )


async def _failed_jobs(queue: Queue, report: DrainReport) -> dict[str, Any]:
    """The failed jobs, in full; empty when the database is unreachable."""
    if not report.failed_ids:
        return {}
    try:
        ids = tuple(report.failed_ids)
        jobs = await queue.admin.find_jobs(JobFilter(ids=ids), limit=len(ids))
    except Exception:
        return {}
    return {"failed_jobs": failed_rows(jobs)}
