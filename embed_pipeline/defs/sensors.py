"""What happens by itself: small questions in ticks, runs only where there is work."""

from collections.abc import Sequence
from datetime import timedelta

import dagster as dg

from embed_pipeline import wiring
from embed_pipeline.defs.describing import described
from embed_pipeline.defs.drains import drain_embed_queue
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import fail_vanished, know_drains
from embed_pipeline.domain.backlog import Backlog
from embed_pipeline.domain.fairness import SUSPECTS_AT_ONCE
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.pacing import JOBS_PER_DRAIN, Start, Wait, decide
from embed_pipeline.domain.rate_window import Grant
from embed_pipeline.domain.results import RecoveredJob
from embed_pipeline.settings import Settings
from embed_pipeline.store.queue import Queue

EVERY_LOOP = 1
"""Seconds; the daemon looks every five."""
RECOVERY_IS_OFF = (
    "its leases are left as they are, recovery is off (EMBED_JOB_RECOVERY_INTERVAL=0); "
    "release_leases_of_run takes them back"
)


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
    repository = _repository(context)
    for run_id in fail_vanished(context.instance, repository):
        context.log.warning(f"the process of drain {run_id} is gone; the run is marked as failed")
    drains = know_drains(context.instance, repository)

    async def look(queue: Queue, settings: Settings) -> tuple[Backlog, Start | Wait]:
        model, most = settings.model, settings.drains_at_once
        refusal = await queue.identity.refusal()
        backlog = await queue.metrics.backlog(model, most=most * JOBS_PER_DRAIN)
        limit = Grant(timedelta(0))
        if backlog.due:
            limit = await wiring.open_limiter(queue, settings).peek()
        if refusal:
            return backlog, Wait(refusal)
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


def _what_becomes_of(jobs: Sequence[RecoveredJob]) -> str:
    """For the page of the run that held them."""
    failed = sum(job.status is JobStatus.FAILED for job in jobs)
    given_up = f" {failed} had no attempt left and are failed." if failed else ""
    return (
        f"{len(jobs)} jobs that this run held were taken back.{given_up} {len(jobs) - failed} are "
        f"pending again: one of them may have ended the run, so the next drains try them apart "
        f"from others, at most {SUSPECTS_AT_ONCE} at once, and the last attempt of each alone. "
        "Nothing needs to be done."
    )


@described(
    dg.run_status_sensor,
    run_status=dg.DagsterRunStatus.FAILURE,
    monitored_jobs=[drain_embed_queue],
    minimum_interval_seconds=EVERY_LOOP,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def drain_failed(context: dg.RunStatusSensorContext, neo4j: Neo4jResource) -> dg.SkipReason:
    """Take back at once what a failed drain still holds, instead of waiting for the leases.

    Each job keeps its attempt and is tried apart from others: one of them may have killed the
    worker. The page of the run says how many there were and what becomes of them.
    """
    run_id = context.dagster_run.run_id
    if not neo4j.settings.recovery_interval_ms:
        return dg.SkipReason(f"drain {run_id} failed: {RECOVERY_IS_OFF}")
    jobs = neo4j.with_queue(lambda queue, _: queue.admin.recover_owner(run_id))
    context.log.info(f"drain {run_id} failed; {len(jobs)} of its leases taken back")
    if jobs:
        context.instance.report_engine_event(_what_becomes_of(jobs), context.dagster_run)
    for job in jobs:
        context.log.info(f"job={job.job_id} taken back from owner={job.former_owner}")
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
    if not neo4j.settings.recovery_interval_ms:
        return dg.SkipReason(f"drain {run_id} was canceled: {RECOVERY_IS_OFF}")
    count = neo4j.with_queue(lambda queue, _: queue.admin.release_owner(run_id))
    context.log.info(f"drain {run_id} was canceled; {count} of its leases given back")
    if count:
        context.instance.report_engine_event(
            f"{count} jobs that this run held were given back untried, with their attempts; the "
            "next drains do them.",
            context.dagster_run,
        )
    return dg.SkipReason(f"drain {run_id} was canceled: {count} leases given back")
