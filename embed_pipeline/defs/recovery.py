"""The sensor of recovery: it looks, and lets a run of the op take expired leases away."""

import json
import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import dagster as dg

from embed_pipeline.defs import upkeep
from embed_pipeline.defs.jobs import recover_stale_leases
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import ENDED
from embed_pipeline.defs.site import Site
from embed_pipeline.defs.ticks import Tick, sensor
from embed_pipeline.settings import Settings
from embed_pipeline.store.queue import Queue

BOOT: Final = uuid.uuid4().hex
"""A new process is a new start of the deployment; only its sensors see this."""
BOOTS: Final = 16
"""Processes that are remembered: two daemons, or several code servers, take turns with the ticks,
and their turns are no new starts."""
REQUEST_TAG: Final = "embed_pipeline/recovery"
"""Tells the run that the sensor has requested from those of others."""
WHY_TAG: Final = "embed_pipeline/recovery_because"
START: Final = "the deployment has started"
SLOWEST_LOOK: Final = 43
"""Seconds between two looks; also how late the first one of a restarted deployment may be."""
PATIENCE: Final = 2
"""A run that has not started within so many intervals is requested again."""
LEAST_PATIENCE: Final = 60_000
"""But not within so many milliseconds: a busy machine takes seconds to start a run, and with short
intervals the runs that were requested again kept it so busy that none began in time."""
IN_LINE: Final = (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED)
WAITING: Final = (*IN_LINE, dg.DagsterRunStatus.STARTING)


@dataclass(frozen=True, slots=True)
class Asked:
    """The recovery requested last, and when; ``run`` is None if Dagster does not know it."""

    at: int
    why: str
    run: dg.DagsterRun | None

    @property
    def waits(self) -> bool:
        """Whether it has not started, for whatever reason."""
        return self.run is None or self.run.status in WAITING


@dataclass(frozen=True, slots=True)
class Decision:
    """Request a run because of ``why``, or the reason not to."""

    said: str
    why: str | None = None


def decide(
    need: str | None, asked: Asked | None, *, is_start: bool, now: int, period: int
) -> Decision:
    """Decide whether to request a recovery; ``need`` is the result of the look."""
    if is_start:
        return _request(START)
    if asked is None:
        return _request(need) if need else Decision("no lease has expired")
    if not asked.waits:
        return Decision(f"run {asked.run.run_id if asked.run else ''} recovers")
    # A start is a reason of its own: it is not over because nothing has expired.
    why = START if asked.why == START else need
    if why is None:
        return Decision("no lease has expired")
    if 0 <= now - asked.at <= max(PATIENCE * period, LEAST_PATIENCE):
        return Decision(f"its run was requested, because {asked.why}, and waits to be started")
    return _request(why)


def _request(why: str) -> Decision:
    return Decision(f"recovery was requested, because {why}", why)


def recovery_sensor(site: Site) -> dg.SensorDefinition:
    """Lets expired leases be recovered at the start, and every EMBED_JOB_RECOVERY_INTERVAL."""
    interval = site.first.recovery_interval
    running = dg.DefaultSensorStatus.RUNNING if interval else dg.DefaultSensorStatus.STOPPED
    seconds = interval.total_seconds()
    look = max(1, min(SLOWEST_LOOK, int(seconds * 3 / 4) - upkeep.LOOP))
    period = interval // timedelta(milliseconds=1)

    @sensor(
        site,
        job_name=site.name(recover_stale_leases.name),
        minimum_interval_seconds=look,
        default_status=running,
    )
    def stale_leases(tick: Tick, neo4j: Neo4jResource) -> dg.SensorResult | dg.SkipReason:
        """Request recover_stale_leases at the start of the deployment, and when leases expired.

        Looks every EMBED_JOB_RECOVERY_INTERVAL. A look that finds nothing is recorded as a recovery
        of 0 and starts no run. A run that does not start within two intervals, and a minute, is
        requested again.
        """
        if not interval:
            return dg.SkipReason("recovery is off (EMBED_JOB_RECOVERY_INTERVAL=0)")
        memory, now = upkeep.memory_of(tick.cursor), upkeep.now_ms()
        boots = memory.get("boots", [])
        is_start = BOOT not in boots
        left = memory.get("at", 0) + period - now
        # What is due before the next tick is looked at now. More than a period is left only when
        # the clock was set back.
        if not is_start and (look + upkeep.LOOP) * 1000 < left <= period:
            return dg.SkipReason(f"{memory['said']}; the next look is in {left / 1000:.0f} s")
        need = next(filter(None, neo4j.with_queues(_look)), None)
        asked = _asked(tick.instance, memory.get("request"))
        decision = decide(need, asked, is_start=is_start, now=now, period=period)
        request = memory["request"] if asked else None
        requests: list[dg.RunRequest] = []
        if decision.why:
            _withdraw(tick.instance, asked)
            request = {"token": uuid.uuid4().hex, "at": now, "why": decision.why}
            own = neo4j.settings
            tags = {REQUEST_TAG: request["token"], WHY_TAG: decision.why, **site.tags(own)}
            config = site.run_config(recover_stale_leases.op.name, own)
            requests = [dg.RunRequest(tags=tags, run_config=config)]
        boots = [*(boot for boot in boots if boot != BOOT), BOOT][-BOOTS:]
        known = {"boots": boots, "at": now, "said": decision.said, "request": request}
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else decision.said,
            cursor=json.dumps(known),
        )

    return stale_leases


async def _look(queue: Queue, settings: Settings) -> str | None:
    """Why a recovery is needed; a look that finds nothing is recorded."""
    grace = settings.recovery_grace
    need = await queue.lookout.recovery_needed(grace=grace)
    if need is None:
        await queue.lookout.record_vain_look()
    return need


def _asked(instance: dg.DagsterInstance, request: dict[str, Any] | None) -> Asked | None:
    """The state of the last request; None if there is none, or its run has ended."""
    if not request:
        return None
    runs = instance.get_runs(dg.RunsFilter(tags={REQUEST_TAG: request["token"]}), limit=1)
    run = runs[0] if runs else None
    if run is not None and run.status in ENDED:
        return None
    return Asked(request["at"], request["why"], run)


def _withdraw(instance: dg.DagsterInstance, asked: Asked | None) -> None:
    """Cancel a queued request, so that at most one waits in the run queue."""
    run = asked.run if asked else None
    if run is not None and run.status in IN_LINE:
        instance.report_run_canceled(run, "It has not started in time; it is requested again.")
