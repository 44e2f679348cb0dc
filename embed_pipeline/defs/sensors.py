"""What happens by itself: small questions in ticks, runs only where there is work."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import dagster as dg

from embed_pipeline.defs.ended_drains import RECOVERY_IS_OFF, take_back
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import (
    DRAIN_JOB,
    QUEUE_TAG,
    STANDBY_TAG,
    TAKEN_BACK,
    fail_vanished,
    know_drains,
)
from embed_pipeline.defs.site import Site
from embed_pipeline.defs.ticks import Tick, sensor
from embed_pipeline.defs.watching import watch_for_jobs
from embed_pipeline.domain.metrics import Backlog
from embed_pipeline.domain.outlook import outlook
from embed_pipeline.domain.pacing import JOBS_PER_DRAIN, Start, Wait, decide
from embed_pipeline.domain.rate_window import Grant
from embed_pipeline.operations import wiring
from embed_pipeline.settings import Settings
from embed_pipeline.store.queue import Queue

EVERY_LOOP: Final = 1
"""Seconds; the daemon looks every five."""
STAYING: Final = {"max_minutes": 60, "linger_seconds": 3600}
"""The config of a drain on standby."""
MEASURED: Final = timedelta(minutes=1)
"""Over this time the pace of the drains is measured."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of one look at the queue."""

    backlog: Backlog
    decision: Start | Wait
    holders: list[str]
    eta: str | None = None


def backlog_sensor(site: Site) -> dg.SensorDefinition:
    """Starts drains."""

    @sensor(
        site,
        watch=watch_for_jobs,
        job_name=site.name(DRAIN_JOB),
        minimum_interval_seconds=EVERY_LOOP,
    )
    def embed_backlog(tick: Tick, neo4j: Neo4jResource) -> dg.SensorResult | dg.SkipReason:
        """Start drains when jobs are due, at most EMBED_DRAINS_AT_ONCE, and say why not.

        Also marks drains as failed whose process is gone, so that they hold nothing up, and takes
        back at once what failed and canceled drains still hold.
        """
        repository, own = tick.repository, neo4j.settings
        then = TAKEN_BACK if own.recovery_interval else RECOVERY_IS_OFF
        for run_id in fail_vanished(tick.instance, repository, then=then):
            tick.log.warning(f"the process of drain {run_id} is gone; the run is marked as failed")

        looked: list[str] = []

        async def look(queue: Queue, settings: Settings) -> Seen:
            model, most = settings.model, settings.drains_at_once
            drains = know_drains(
                tick.instance, repository, beside=bool(looked), tags=site.tags(own)
            )
            looked.append(settings.queue)
            backlog = await queue.metrics.backlog(model, most=most * JOBS_PER_DRAIN)
            # No leases while nothing is in work: a queue at rest is not asked.
            holders = await queue.lookout.holders() if backlog.processing else []
            if backlog.refusal:
                return Seen(backlog, Wait(backlog.refusal), holders)
            limit = Grant(timedelta(0))
            # The side beside the live one is filled, and searched by nobody.
            standby = own.standby == "true" and settings.queue == looked[0]
            if backlog.due or (standby and not drains.standing):
                limit = await wiring.open_limiter(queue, settings).peek()
            decision = decide(
                backlog,
                drains,
                most=most,
                limit=limit,
                model=model,
                standby=standby,
            )
            eta = None
            if drains.running and backlog.pending:
                rate = await queue.metrics.completed_per_minute(MEASURED)
                left = backlog.pending + backlog.processing
                eta = outlook(left, rate, hold=limit.wait if limit.hold else timedelta(0))
            return Seen(backlog, decision, holders, eta)

        sides = neo4j.with_queues(look)
        holders = [holder for seen in sides for holder in seen.holders]
        taken = take_back(tick.instance, neo4j, holders, repository=repository, log=tick.log)
        requests: list[dg.RunRequest] = []
        reasons: list[str] = []
        started: list[str] = []
        for number, (queue, seen) in enumerate(zip(looked, sides, strict=True)):
            beside = f" (beside, queue {queue})" if number else ""
            start = seen.decision
            reasons.append(f"{start.reason}{beside}")
            if isinstance(start, Wait):
                reasons += [seen.eta] if seen.eta else []
                continue
            tick.log.info(f"starting {start.drains} drains: {start.reason}{beside}")
            tags = {"embed_pipeline/due": start.reason, **site.tags(own)}
            tags |= {QUEUE_TAG: queue} if number else {}
            chosen: dict[str, object] = {"queue": queue} if number else {}
            for one in range(start.drains):
                stays = start.is_standby and one == 0
                config = site.run_config("drain", own, {**chosen, **(STAYING if stays else {})})
                marks = tags | ({STANDBY_TAG: "true"} if stays else {})
                requests.append(dg.RunRequest(tags=marks, run_config=config))
            started.append(f"started {start.drains}: {start.reason}{beside}")
        if not requests:
            return dg.SkipReason("; ".join([*reasons, *taken]))
        at = sides[0].backlog.at.isoformat()
        return dg.SensorResult(run_requests=requests, cursor=f"{at} {'; '.join(started)}")

    return embed_backlog
