"""Reads everything about the queue at once: for metrics, checks, status and reports."""

from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from embed_pipeline.domain.failure_kinds import FailureKind, kinds_of
from embed_pipeline.domain.health import CLEANUP_SLACK, Objectives, Reading, Verdict, examine
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.metrics import QueueMetrics
from embed_pipeline.domain.misfits import Misfit
from embed_pipeline.domain.pacing import ScanPace
from embed_pipeline.domain.words import exactly
from embed_pipeline.operations import wiring
from embed_pipeline.operations.fit import find_misfits
from embed_pipeline.operations.following import live_settings
from embed_pipeline.settings import Settings
from embed_pipeline.store import schema
from embed_pipeline.store.connection import Driver
from embed_pipeline.store.quality import last_quality
from embed_pipeline.store.queue import Queue
from embed_pipeline.store.schema.state import VectorIndex
from embed_pipeline.store.triggers import TriggerState


async def read_metrics(queue: Queue, settings: Settings, *, window: timedelta) -> QueueMetrics:
    """Every figure of queue, budget, batches and pause; ``window`` defines "lately"."""
    metrics = await queue.metrics.read(window=window)
    limit = await wiring.open_limiter(queue, settings).read()
    batches = tuple(await queue.batches.every())
    return replace(metrics, hold=limit.hold, budget=limit.budget, batches=batches)


async def read_everything(driver: Driver, settings: Settings) -> Reading:
    """Take a reading of the live side; costs the same for any size of queue and graph."""
    name, settings = settings.queue, await live_settings(driver, settings)
    state = await wiring.inspect_schema(driver, settings)
    metrics = coverage = refusal = quality = None
    found: list[Misfit] = []
    failed: list[FailureKind] = []
    scan = ScanPace()
    overdue: dict[JobStatus, timedelta] = {}
    if state.problem is None:
        queue = wiring.queue_on(driver, settings)
        window = settings.metrics_interval
        metrics = await read_metrics(queue, settings, window=window)
        refusal = await queue.identity.refusal()
        quality = await last_quality(queue, settings.model)
        if metrics.counts[JobStatus.FAILED]:
            failed = kinds_of(await queue.lookout.failed_since(start_of_day(metrics.at)))
        overdue = await _overdue(queue, settings)
        coverage, scan = await queue.reconciler(settings.model).state()
        if coverage is not None:
            found = await find_misfits(queue, settings, coverage)
    return Reading(
        queue=name,
        model=settings.model,
        dimensions=settings.dimensions,
        schema_problem=state.problem,
        index_problem=refusal or _index_problem(state, settings.dimensions),
        metrics=metrics,
        coverage=coverage,
        misfits=tuple(found),
        batches=metrics.batches if metrics else (),
        scan=scan,
        price=settings.price,
        quality=quality,
        index=_index(state.vector_index) if state.vector_index else {},
        failed_today=tuple(failed),
        overdue=overdue,
    )


async def _overdue(queue: Queue, settings: Settings) -> dict[JobStatus, timedelta]:
    """Ended jobs that should be gone, of the states that are kept for less time than another."""
    longest = max(settings.retention.values())
    shorter = {
        state: kept + CLEANUP_SLACK for state, kept in settings.retention.items() if kept < longest
    }
    return await queue.lookout.overdue(shorter)


def start_of_day(now: datetime) -> datetime:
    """The midnight before a time: what failed since then failed today."""
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


async def examine_everything(driver: Driver, settings: Settings) -> tuple[Reading, list[Verdict]]:
    """Take a reading, and judge it by this deployment's objectives."""
    reading = await read_everything(driver, settings)
    return reading, examine(reading, objectives(settings))


def objectives(settings: Settings) -> Objectives:
    """The objectives in the settings."""
    return Objectives(
        recovery_interval=settings.recovery_interval,
        reconcile_interval=settings.reconcile_interval,
        # Of all states together, so the longest.
        retention=max(settings.retention.values()),
        oldest_pending=settings.objective_age,
        failed_percent=settings.objective_failed_percent,
        coverage_percent=settings.objective_coverage_percent,
    )


def _index_problem(state: schema.SchemaState, dimensions: int) -> str | None:
    index = state.vector_index
    if index is None:
        return "there is no vector index; run 'embed-pipeline init' or the job initialise_schema"
    if index.state != "ONLINE":
        return (
            f"vector index {index.name} is {index.state}; search finds nothing until it is ONLINE"
        )
    return index.misfit(dimensions)


@dataclass(frozen=True, slots=True)
class Arrival:
    """How the job of a changed entity is created, and how late that is."""

    is_at_once: bool
    is_sure: bool
    """False if nothing makes these jobs."""
    detail: str


async def how_jobs_appear(queue: Queue, settings: Settings) -> Arrival:
    """Whether the trigger is active; without it the scan finds changed entities."""
    trigger = await queue.triggers(settings.model).inspect()
    return arrival(trigger, settings.reconcile_interval)


def arrival(trigger: TriggerState, interval: timedelta) -> Arrival:
    """The arrival in words; ``interval`` is the time between two scans, 0 for none."""
    if trigger.is_active:
        return Arrival(
            is_at_once=True, is_sure=True, detail="with the write: the trigger is active"
        )
    why = "there is no trigger"
    if not trigger.is_known:
        why = "this user may not look at triggers"
    elif trigger.is_other:
        why = "the trigger in the database is of other settings"
    elif trigger.is_installed:
        why = "the server does not run the trigger yet"
    if not interval:
        return Arrival(
            is_at_once=False,
            is_sure=False,
            detail=f"never by themselves: {why}, and EMBED_RECONCILE_INTERVAL is 0",
        )
    return Arrival(
        is_at_once=False,
        is_sure=True,
        detail=f"with the next scan, {exactly(interval)} or more apart: {why}",
    )


def _index(index: VectorIndex) -> dict[str, Any]:
    """The vector index for display, with the other models in it, if any."""
    shown = asdict(index)
    filters = ", ".join(shown.pop("filters"))
    return {**shown, "filters": filters} if filters else shown
