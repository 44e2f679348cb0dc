"""Sensors whose pace the settings decide: recovery, metrics, and the scan."""

import hashlib
import json
import time
import uuid
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import dagster as dg

from embed_pipeline import wiring
from embed_pipeline.defs.assets import ACTIONS, EMBEDDINGS, METRICS
from embed_pipeline.defs.checks import evaluation
from embed_pipeline.defs.describing import described
from embed_pipeline.defs.jobs import recovered_rows
from embed_pipeline.defs.metadata import SHOWN, ids, of_actions, of_coverage, of_queue
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.domain.audit import AuditEntry
from embed_pipeline.domain.coverage import CoverageReport
from embed_pipeline.domain.health import Reading, Verdict
from embed_pipeline.history.keys import asset_key
from embed_pipeline.reading import examine_everything
from embed_pipeline.recovering import recover_all
from embed_pipeline.scanning import Scan
from embed_pipeline.settings import Settings
from embed_pipeline.store.connection import Driver
from embed_pipeline.store.queue import Queue

BOOT: Final = uuid.uuid4().hex
"""A new process is a new start of the deployment; only its sensors see this."""
SLOWEST_LOOK: Final = 14
"""Seconds between two looks at whether a recovery is due."""
NEWS_EVERY: Final = timedelta(hours=1)
"""What has not changed is reported again so often, so that nobody takes it for forgotten."""
LOOP: Final = 2
"""The daemon rounds intervals up to its own loop: a bit less than asked for keeps the pace."""
SHARE: Final = 10
"""A scan takes at most this part of the time: a large graph must not keep the server busy."""
SHORTEST_STEP: Final = timedelta(seconds=2)
LONGEST_STEP: Final = timedelta(seconds=20)
"""A tick has a minute; the rest is for a slow server."""


def now_ms() -> int:
    """The time of this machine: for the pace of sensors, never for leases."""
    return int(time.time() * 1000)


def _memory(cursor: str | None) -> dict[str, Any]:
    """What the last tick has left; nothing where no sensor wrote that."""
    try:
        memory = json.loads(cursor or "{}")
    except ValueError:
        return {}
    return memory if isinstance(memory, dict) else {}


def recovery_sensor(interval: timedelta, queue: str) -> dg.SensorDefinition:
    """Recover expired leases when the deployment starts, and every ``interval``; never if 0."""
    running = dg.DefaultSensorStatus.RUNNING if interval else dg.DefaultSensorStatus.STOPPED
    look = max(1, min(SLOWEST_LOOK, int(interval.total_seconds() / 4)))

    @described(
        dg.sensor, name="stale_leases", minimum_interval_seconds=look, default_status=running
    )
    def stale_leases(
        context: dg.SensorEvaluationContext, neo4j: Neo4jResource
    ) -> dg.SensorResult | dg.SkipReason:
        """Take expired leases away from workers that have gone silent.

        At the start of the deployment, and then every EMBED_JOB_RECOVERY_INTERVAL. A failed
        recovery is tried again at the next tick.
        """
        if not interval:
            return dg.SkipReason("recovery is off (EMBED_JOB_RECOVERY_INTERVAL=0)")
        memory = _memory(context.cursor)
        period = interval // timedelta(milliseconds=1)
        left = memory.get("at", 0) + period - now_ms()
        # More than a period is left only when the clock was set back.
        if memory.get("boot") == BOOT and 0 < left <= period:
            return dg.SkipReason(f"recovered {memory['count']}; next in {left / 1000:.0f} s")
        at = now_ms()
        jobs = neo4j.with_queue(
            lambda queue, settings: recover_all(
                queue, grace=timedelta(milliseconds=settings.recovery_grace_ms)
            )
        )
        events: list[Any] = []
        if jobs:
            # The log of a tick is a file, so it is short; the event has the rest.
            context.log.info(f"recovered {len(jobs)} expired leases")
            metadata = {
                "recovered_now": len(jobs),
                **ids([job.job_id for job in jobs]),
                "recovered_jobs": recovered_rows(jobs),
            }
            events = [dg.AssetObservation(asset_key(METRICS, queue), metadata=metadata)]
        return dg.SensorResult(
            skip_reason=f"recovered {len(jobs)} expired leases",
            cursor=json.dumps({"boot": BOOT, "at": at, "count": len(jobs)}),
            asset_events=events,
        )

    return stale_leases


def metrics_sensor(interval: timedelta, queue: str) -> dg.SensorDefinition:
    """Read the queue every ``interval``, without a run."""

    @described(
        dg.sensor,
        name="queue_metrics",
        # Only so that the page of the asset leads here: no run is requested.
        target=dg.AssetSelection.assets(asset_key(METRICS, queue)),
        minimum_interval_seconds=max(1, int(interval.total_seconds()) - LOOP),
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def queue_metrics(context: dg.SensorEvaluationContext, neo4j: Neo4jResource) -> dg.SensorResult:
        """Add a reading to embed_queue_metrics, and report the checks that have changed.

        What operators have done since is added to operator_actions.
        """
        before = _memory(context.cursor)
        reading, verdicts, actions = neo4j.run(_look)
        memory, news = _news(before, verdicts, now_ms())
        events: list[Any] = [evaluation(verdict, queue) for verdict in news]
        memory[ACTIONS] = _mark(actions)
        if memory[ACTIONS] != before.get(ACTIONS, _mark([])):
            key = asset_key(ACTIONS, queue)
            events.append(dg.AssetMaterialization(key, metadata=of_actions(actions)))
        if reading.metrics is not None:
            key = asset_key(METRICS, queue)
            events.append(dg.AssetMaterialization(key, metadata=of_queue(reading)))
        failed = [verdict.check.name for verdict in verdicts if verdict.passed is False]
        return dg.SensorResult(
            skip_reason=f"checks failing: {', '.join(failed)}" if failed else "all is well",
            cursor=json.dumps(memory),
            asset_events=events,
        )

    return queue_metrics


async def _look(
    driver: Driver, settings: Settings
) -> tuple[Reading, list[Verdict], list[AuditEntry]]:
    reading, verdicts = await examine_everything(driver, settings)
    if reading.metrics is None:
        return reading, verdicts, []
    audit = wiring.queue_on(driver, settings).audit
    return reading, verdicts, await audit.recent(limit=SHOWN)


def _mark(actions: list[AuditEntry]) -> str:
    """What tells a list of actions from another one; a long action counts on while it is shown."""
    shown = [[entry.id, entry.count, entry.is_complete] for entry in actions]
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:16]


def _news(
    memory: dict[str, Any], verdicts: list[Verdict], now: int
) -> tuple[dict[str, Any], list[Verdict]]:
    """The verdicts that are not known yet, and what is known then."""
    known, news = {}, []
    for verdict in verdicts:
        if verdict.passed is None:
            continue
        name, state = verdict.check.name, [verdict.passed, verdict.severity.value]
        before = memory.get(name)
        if before and before["state"] == state and _is_fresh(before["at"], now):
            known[name] = before
        else:
            known[name] = {"state": state, "at": now}
            news.append(verdict)
    return known, news


def _is_fresh(at: int, now: int) -> bool:
    """Say whether a report need not be repeated; one still to come shows a clock set back."""
    return now - NEWS_EVERY // timedelta(milliseconds=1) < at <= now


def _resume(scan: Scan, memory: dict[str, Any]) -> None:
    """Go on where the last tick ended, unless another version of this program left that."""
    with suppress(KeyError, ValueError):
        report = CoverageReport.from_json(memory["report"])
        scan.cursor, scan.jobs_cursor = memory["after"], memory["jobs_after"]
        scan.report = report


def reconcile_sensor(interval: timedelta, queue: str) -> dg.SensorDefinition:
    """Scan all entities every ``interval``, in steps; never if 0."""
    running = dg.DefaultSensorStatus.RUNNING if interval else dg.DefaultSensorStatus.STOPPED
    step = min(max(interval / SHARE, SHORTEST_STEP), LONGEST_STEP)
    embeddings = asset_key(EMBEDDINGS, queue)

    @described(
        dg.sensor,
        name="reconcile_entities",
        target=dg.AssetSelection.assets(embeddings),
        minimum_interval_seconds=max(1, int(interval.total_seconds()) - LOOP),
        default_status=running,
    )
    def reconcile_entities(
        context: dg.SensorEvaluationContext, neo4j: Neo4jResource
    ) -> dg.SensorResult | dg.SkipReason:
        """Compare entities with their vectors and enqueue what does not fit, whoever wrote it.

        Every EMBED_RECONCILE_INTERVAL one step of a tenth of that time; a large graph takes several
        steps. At the end of a scan its result is added to entity_embeddings.
        """
        if not interval:
            return dg.SkipReason("the scan is off (EMBED_RECONCILE_INTERVAL=0)")
        memory = _memory(context.cursor)

        async def work(queue: Queue, settings: Settings) -> Scan | str:
            if refusal := await queue.identity.refusal():
                return refusal
            scan = Scan.begin(queue.reconciler(settings.model))
            if memory.get("model") == settings.model:
                _resume(scan, memory)
            await scan.go_on(most=step)
            return scan

        scan = neo4j.with_queue(work)
        if isinstance(scan, str):
            return dg.SkipReason(scan)
        new = sum(number for outcome, number in scan.enqueued.items() if outcome != "present")
        said = f"{scan.report.entities} entities read, {new} jobs enqueued"
        if not scan.is_done:
            memory |= {
                "after": scan.cursor,
                "jobs_after": scan.jobs_cursor,
                "report": scan.report.to_json(),
                "model": scan.report.model,
            }
            return dg.SensorResult(skip_reason=f"{said}; goes on", cursor=json.dumps(memory))
        metadata, now = of_coverage(scan.report), now_ms()
        numbers = [value for value in metadata.values() if isinstance(value, (int, float))]
        figures = [scan.report.model, *numbers]
        is_known = memory.get("figures") == figures and _shows_coverage(
            context.instance, embeddings
        )
        events = []
        if not (is_known and _is_fresh(memory.get("told", 0), now)):
            events = [dg.AssetMaterialization(embeddings, metadata=metadata)]
        told = memory["told"] if not events else now
        return dg.SensorResult(
            skip_reason=f"{said}; {scan.report.percent:.2f} % are current",
            cursor=json.dumps({"figures": figures, "told": told}),
            asset_events=events,
        )

    return reconcile_entities


def _shows_coverage(instance: dg.DagsterInstance, embeddings: dg.AssetKey) -> bool:
    """Say whether the page of the asset shows a scan; it shows only what was reported last."""
    last = instance.get_latest_materialization_event(embeddings)
    event = last.asset_materialization if last else None
    return event is None or "coverage_percent" in event.metadata
