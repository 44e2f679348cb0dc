"""What happens by itself: small questions in ticks, runs only where there is work."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import dagster as dg

from embed_pipeline.defs.describing import described
from embed_pipeline.defs.drains import drain_embed_queue
from embed_pipeline.defs.ended_drains import take_back
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import fail_vanished, know_drains
from embed_pipeline.domain.metrics import Backlog
from embed_pipeline.domain.outlook import outlook
from embed_pipeline.domain.pacing import JOBS_PER_DRAIN, Start, Wait, decide
from embed_pipeline.domain.rate_window import Grant
from embed_pipeline.operations import wiring
from embed_pipeline.settings import Settings
from embed_pipeline.store.queue import Queue

EVERY_LOOP: Final = 1
"""Seconds; the daemon looks every five."""
MEASURED: Final = timedelta(minutes=1)
"""Over this time the pace of the drains is measured."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look at the queue has found."""

    backlog: Backlog
    decision: Start | Wait
    holders: list[str]
    eta: str | None = None


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

    Also marks drains as failed whose process is gone, so that they hold nothing up, and takes back
    at once what failed and canceled drains still hold.
    """
    repository = _repository(context)
    for run_id in fail_vanished(context.instance, repository):
        context.log.warning(f"the process of drain {run_id} is gone; the run is marked as failed")
    drains = know_drains(context.instance, repository)

    async def look(queue: Queue, settings: Settings) -> Seen:
        model, most = settings.model, settings.drains_at_once
        refusal = await queue.identity.refusal()
        backlog = await queue.metrics.backlog(model, most=most * JOBS_PER_DRAIN)
        # Nobody holds a job while none is in work: a queue at rest is not asked.
        holders = await queue.lookout.holders() if backlog.processing else []
        if refusal:
            return Seen(backlog, Wait(refusal), holders)
        limit = Grant(timedelta(0))
        if backlog.due:
            limit = await wiring.open_limiter(queue, settings).peek()
        decision = decide(backlog, drains, most=most, limit=limit, model=model)
        eta = None
        if drains.running and backlog.pending:
            rate = await queue.metrics.completed_per_minute(MEASURED)
            left = backlog.pending + backlog.processing
            eta = outlook(left, rate, hold=limit.wait if limit.hold else timedelta(0))
        return Seen(backlog, decision, holders, eta)

    seen = neo4j.with_queue(look)
    taken = take_back(context.instance, neo4j, seen.holders, repository=repository, log=context.log)
    if isinstance(seen.decision, Wait):
        said = [seen.decision.reason, *([seen.eta] if seen.eta else []), *taken]
        return dg.SkipReason("; ".join(said))
    start = seen.decision
    context.log.info(f"starting {start.drains} drains: {start.reason}")
    return dg.SensorResult(
        run_requests=[
            dg.RunRequest(tags={"embed_pipeline/due": start.reason}) for _ in range(start.drains)
        ],
        cursor=f"{seen.backlog.at.isoformat()} started {start.drains}: {start.reason}",
    )


def _repository(context: dg.SensorEvaluationContext) -> str | None:
    """Where this sensor is; unknown where no daemon evaluates it."""
    origin = context.code_location_origin
    return f"{context.repository_name}@{origin.location_name}" if origin else None
