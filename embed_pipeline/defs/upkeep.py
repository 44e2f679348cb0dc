"""Sensors whose pace the settings decide: metrics, and the scan."""

import hashlib
import json
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import dagster as dg

from embed_pipeline.defs.assets import ACTIONS, METRICS
from embed_pipeline.defs.checks import evaluation
from embed_pipeline.defs.failures import of_reading
from embed_pipeline.defs.graph import observations, observed
from embed_pipeline.defs.metadata import SHOWN, of_actions, of_coverage
from embed_pipeline.defs.overview import recent
from embed_pipeline.defs.renewal import is_fresh, renewed
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import EMBEDDINGS
from embed_pipeline.defs.site import Site
from embed_pipeline.defs.ticks import Tick, assets_of, sensor
from embed_pipeline.domain.audit import AuditEntry
from embed_pipeline.domain.coverage import CoverageReport
from embed_pipeline.domain.figures import coverage_in_words
from embed_pipeline.domain.health import Reading, Verdict
from embed_pipeline.history.keys import asset_key
from embed_pipeline.operations import wiring
from embed_pipeline.operations.following import live_settings
from embed_pipeline.operations.reading import examine_everything
from embed_pipeline.operations.scan import Scan
from embed_pipeline.settings import Settings
from embed_pipeline.store.connection import Driver
from embed_pipeline.store.queue import Queue

LOOP: Final = 2
"""The daemon rounds intervals up to its own loop: a bit less than asked for keeps the pace."""
SEEN: Final = "seen"
SHARE: Final = 10
"""A scan takes at most this part of the time: a large graph must not keep the server busy."""
SHORTEST_STEP: Final = timedelta(seconds=2)
BESIDE: Final = "beside"
"""What is remembered of the scan for the queue beside the live one."""
LONGEST_STEP: Final = timedelta(seconds=20)
"""A tick has a minute; the rest is for a slow server."""


def now_ms() -> int:
    """The time of this machine: for the pace of sensors, never for leases."""
    return int(time.time() * 1000)


def memory_of(cursor: str | None) -> dict[str, Any]:
    """The state left by the last tick; empty if no sensor wrote it."""
    try:
        memory = json.loads(cursor or "{}")
    except ValueError:
        return {}
    return memory if isinstance(memory, dict) else {}


def metrics_sensor(site: Site) -> dg.SensorDefinition:
    """Reads the queues every EMBED_METRICS_INTERVAL, without a run."""

    @sensor(
        site,
        # Only so that the page of the asset leads here: no run is requested.
        target=assets_of(site, METRICS),
        minimum_interval_seconds=_pace(site.first.metrics_interval),
    )
    def queue_metrics(tick: Tick, neo4j: Neo4jResource) -> dg.SensorResult:
        """Add a reading to embed_queue_metrics, and renew the checks.

        What operators have done since is added to operator_actions; what has changed about the
        entities and their index to graph_entities and entity_vector_index.
        """
        queue, before, now = neo4j.settings.queue, memory_of(tick.cursor), now_ms()
        reading, verdicts, actions = neo4j.run_as_set(_look)
        memory, news = renewed(tick.instance, verdicts, before, queue=queue, now=now)
        events: list[Any] = [evaluation(verdict, queue) for verdict in news]
        memory[ACTIONS] = _mark(actions)
        if memory[ACTIONS] != before.get(ACTIONS, _mark([])):
            key = asset_key(ACTIONS, queue)
            events.append(dg.AssetMaterialization(key, metadata=of_actions(actions)))
        if reading.metrics is not None:
            key = asset_key(METRICS, queue)
            metadata = of_reading(reading, recent(tick.instance, key), at=now / 1000)
            events.append(dg.AssetMaterialization(key, metadata=metadata))
        memory[SEEN] = seen = observed(reading)
        changed = [name for name in seen if seen[name] != before.get(SEEN, {}).get(name)]
        events += observations(seen, changed, queue)
        failed = [verdict.check.name for verdict in verdicts if verdict.passed is False]
        return dg.SensorResult(
            skip_reason=f"checks failing: {', '.join(failed)}" if failed else "all is well",
            cursor=json.dumps(memory),
            asset_events=events,
        )

    return queue_metrics


def _pace(interval: timedelta) -> int:
    return max(1, int(interval.total_seconds()) - LOOP)


async def _look(
    driver: Driver, settings: Settings
) -> tuple[Reading, list[Verdict], list[AuditEntry]]:
    reading, verdicts = await examine_everything(driver, settings)
    if reading.metrics is None:
        return reading, verdicts, []
    audit = wiring.queue_on(driver, await live_settings(driver, settings)).audit
    return reading, verdicts, await audit.recent(limit=SHOWN)


def _mark(actions: list[AuditEntry]) -> str:
    """The hash of a list of actions; it changes while a long action is still counting."""
    shown = [[entry.id, entry.count, entry.is_complete] for entry in actions]
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:16]


def _noted(scan: Scan) -> dict[str, Any]:
    """Where the next tick continues; empty after the end."""
    if scan.is_done:
        return {}
    return {
        "after": scan.cursor,
        "jobs_after": scan.jobs_cursor,
        "report": scan.report.to_json(),
        "model": scan.report.model,
        "queue": scan.reconciler.config.queue,
    }


def _resume(scan: Scan, memory: dict[str, Any]) -> None:
    """Continue where the last tick ended, unless another version of this program wrote it."""
    with suppress(KeyError, ValueError):
        report = CoverageReport.from_json(memory["report"])
        scan.cursor, scan.jobs_cursor = memory["after"], memory["jobs_after"]
        scan.report = report


def reconcile_sensor(site: Site) -> dg.SensorDefinition:
    """Scans all entities every EMBED_RECONCILE_INTERVAL, in steps; never if 0."""
    interval = site.first.reconcile_interval
    running = dg.DefaultSensorStatus.RUNNING if interval else dg.DefaultSensorStatus.STOPPED
    longest = LONGEST_STEP / len(site.embeddings)
    step = min(max(interval / SHARE, SHORTEST_STEP), longest)

    @sensor(
        site,
        target=assets_of(site, EMBEDDINGS),
        minimum_interval_seconds=_pace(interval),
        default_status=running,
    )
    def reconcile_entities(tick: Tick, neo4j: Neo4jResource) -> dg.SensorResult | dg.SkipReason:
        """Compare entities with their vectors and enqueue what does not fit, from any writer.

        Every EMBED_RECONCILE_INTERVAL one step of a tenth of that time; a large graph takes several
        steps. At the end of a scan its result is added to entity_embeddings.
        """
        if not interval:
            return dg.SkipReason("the scan is off (EMBED_RECONCILE_INTERVAL=0)")
        memory = memory_of(tick.cursor)

        async def work(queue: Queue, settings: Settings) -> Scan | str:
            if refusal := await queue.identity.refusal():
                return refusal
            scan = Scan.begin(queue.reconciler(settings.model))
            known = memory if settings.queue == memory.get("queue") else memory.get(BESIDE, {})
            if (known.get("queue"), known.get("model")) == (settings.queue, settings.model):
                _resume(scan, known)
            await scan.go_on(most=step)
            return scan

        scan, *beside = neo4j.with_queues(work)
        if isinstance(scan, str):
            return dg.SkipReason(scan)
        # Only how far it is: what is shown is about the live one.
        memory[BESIDE] = next((_noted(s) for s in beside if not isinstance(s, str)), {})
        new = sum(number for outcome, number in scan.enqueued.items() if outcome != "present")
        said = f"{scan.report.entities} entities read, {new} jobs enqueued"
        if not scan.is_done:
            memory |= _noted(scan)
            return dg.SensorResult(skip_reason=f"{said}; goes on", cursor=json.dumps(memory))
        metadata, now = of_coverage(scan.report), now_ms()
        numbers = [value for value in metadata.values() if isinstance(value, (int, float))]
        figures = [scan.report.model, *numbers]
        is_known = memory.get("figures") == figures
        events = []
        if not (is_known and is_fresh(memory.get("told", 0), now)):
            key = asset_key(EMBEDDINGS, neo4j.settings.queue)
            events = [dg.AssetMaterialization(key, metadata=metadata)]
        told = memory["told"] if not events else now
        return dg.SensorResult(
            skip_reason=f"{said}; {coverage_in_words(scan.report)}",
            cursor=json.dumps({"figures": figures, "told": told, BESIDE: memory[BESIDE]}),
            asset_events=events,
        )

    return reconcile_entities
