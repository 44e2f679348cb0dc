"""What happens by itself: small questions in ticks, runs only where there is work."""

from datetime import timedelta

import dagster as dg

from embed_pipeline import wiring
from embed_pipeline.defs.describing import described
from embed_pipeline.defs.drains import drain_embed_queue
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import fail_vanished, know_drains
from embed_pipeline.domain.backlog import Backlog
from embed_pipeline.domain.pacing import JOBS_PER_DRAIN, Start, Wait, decide
from embed_pipeline.settings import Settings
from embed_pipeline.store.queue import Queue

EVERY_LOOP = 1
"""Seconds; the daemon looks every five."""


@described(
    dg.sensor,
    job=drain_embed_queue,
    minimum_interval_seconds=EVERY_LOOP,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def embed_backlog(
    context: dg.SensorEvaluationContext, neo4j: Neo4jResource
) -> dg.SensorResult | dg.SkipReason:
    """Start drains when jobs are due, at most EMBED_DRAINS_AT_ONCE, and say why not.

    Also marks drains as failed whose process is gone, so that they hold nothing up.
    """
    for run_id in fail_vanished(context.instance):
        context.log.warning(f"the process of drain {run_id} is gone; the run is marked as failed")
    drains = know_drains(context.instance, _repository(context))

    async def look(queue: Queue, settings: Settings) -> tuple[Backlog, Start | Wait]:
        model, most = settings.model, settings.drains_at_once
        backlog = await queue.metrics.backlog(model, most=most * JOBS_PER_DRAIN)
        limit = timedelta(0)
        if backlog.due:
            limit = (await wiring.open_limiter(queue, settings).peek()).wait
        return backlog, decide(backlog, drains, most=most, limit=limit, model=model)

    backlog, decision = neo4j.with_queue(look)
    if isinstance(decision, Wait):
        return dg.SkipReason(decision.reason)
    context.log.info(f"starting {decision.drains} drains: {decision.reason}")
    return dg.SensorResult(
        run_requests=[
            dg.RunRequest(tags={"embed_pipeline/due": decision.reason})
            for _ in range(decision.drains)
        ],
        cursor=f"{backlog.at.isoformat()} started {decision.drains}: {decision.reason}",
    )


def _repository(context: dg.SensorEvaluationContext) -> str | None:
    """Where this sensor is; unknown where no daemon evaluates it."""
    origin = context.code_location_origin
    return f"{context.repository_name}@{origin.location_name}" if origin else None


@described(
    dg.run_status_sensor,
    run_status=dg.DagsterRunStatus.FAILURE,
    monitored_jobs=[drain_embed_queue],
    minimum_interval_seconds=EVERY_LOOP,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def drain_failed(context: dg.RunStatusSensorContext, neo4j: Neo4jResource) -> dg.SkipReason:
    """Take back at once what a failed drain still holds, instead of waiting for the leases.

    Each job keeps its attempt and is tried alone: one of them may have killed the worker.
    """
    run_id = context.dagster_run.run_id
    jobs = neo4j.with_queue(lambda queue, _: queue.admin.recover_owner(run_id))
    context.log.info(f"drain {run_id} failed; {len(jobs)} of its leases taken back")
    return dg.SkipReason(f"drain {run_id} failed: {len(jobs)} leases taken back")


@described(
    dg.run_status_sensor,
    run_status=dg.DagsterRunStatus.CANCELED,
    monitored_jobs=[drain_embed_queue],
    minimum_interval_seconds=EVERY_LOOP,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def drain_canceled(context: dg.RunStatusSensorContext, neo4j: Neo4jResource) -> dg.SkipReason:
    """Give back what a canceled drain still holds; usually it has done that itself.

    Not so when the cancellation was forced, or the process did not react.
    """
    run_id = context.dagster_run.run_id
    count = neo4j.with_queue(lambda queue, _: queue.admin.release_owner(run_id))
    context.log.info(f"drain {run_id} was canceled; {count} of its leases given back")
    return dg.SkipReason(f"drain {run_id} was canceled: {count} leases given back")
