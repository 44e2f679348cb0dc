"""Reads everything about the queue at once: for metrics, for checks, and for whoever looks."""

from datetime import timedelta

from embed_pipeline import wiring
from embed_pipeline.domain.health import Objectives, Reading, Verdict, examine
from embed_pipeline.settings import Settings
from embed_pipeline.store import schema
from embed_pipeline.store.connection import Driver


async def read_everything(driver: Driver, settings: Settings) -> Reading:
    """Take a reading; costs the same for any size of queue and graph."""
    state = await wiring.inspect_schema(driver, settings)
    metrics = coverage = None
    if state.problem is None:
        queue = wiring.queue_on(driver, settings)
        window = timedelta(milliseconds=settings.metrics_interval_ms)
        metrics = await queue.metrics.read(window=window)
        coverage = await queue.reconciler(settings.model).last()
    return Reading(
        queue=settings.queue,
        model=settings.model,
        dimensions=settings.dimensions,
        schema_problem=state.problem,
        index_problem=_index_problem(state, settings.dimensions),
        metrics=metrics,
        coverage=coverage,
    )


async def examine_everything(driver: Driver, settings: Settings) -> tuple[Reading, list[Verdict]]:
    """Take a reading, and judge it by what this deployment has set itself."""
    reading = await read_everything(driver, settings)
    return reading, examine(reading, objectives(settings))


def objectives(settings: Settings) -> Objectives:
    """What this deployment has set itself."""
    return Objectives(
        recovery_interval=timedelta(milliseconds=settings.recovery_interval_ms),
        retention=timedelta(days=settings.retention_days),
        oldest_pending=timedelta(milliseconds=settings.objective_age_ms),
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
