"""Entities, their vectors and the index of those: materializing the vectors makes them."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import dagster as dg

from embed_pipeline.defs.assets import GROUP, INDEX
from embed_pipeline.defs.border import asset
from embed_pipeline.defs.draining import opened_drain, run_and_tell, side_of
from embed_pipeline.defs.metadata import of_coverage
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import DRAIN_TAG, EMBEDDINGS, SLACK, mark_worker
from embed_pipeline.defs.site import Site, group_in
from embed_pipeline.defs.ticks import assets_of
from embed_pipeline.domain.health import Reading
from embed_pipeline.domain.lifecycle import EnqueueOutcome
from embed_pipeline.history.keys import asset_key
from embed_pipeline.operations import wiring
from embed_pipeline.operations.blocking import finish
from embed_pipeline.operations.scan import Scan
from embed_pipeline.settings import Settings
from embed_pipeline.store.queue import Queue
from embed_pipeline.worker.report import DrainReport, Ending
from embed_pipeline.worker.stopping import stopped_by_signals

ENTITIES: Final = "graph_entities"
LONGEST: Final = timedelta(hours=11, minutes=50)
"""As long as a drain may take, within what Dagster allows any run: ``max_runtime_seconds``."""
SCAN_STEP: Final = timedelta(seconds=5)
"""So often a scan looks whether it is to stop."""
LOOK_SECONDS: Final = 118
"""Between two looks at what is upstream: changes of entities are found without it, too."""
UNDONE: Final = (Ending.CLOSED, Ending.BUDGET)
"""Endings of a drain that leave entities without vectors, and no fault."""


def graph_assets(
    site: Site, settings: Settings
) -> tuple[dg.AssetSpec, dg.AssetsDefinition, dg.AssetSpec]:
    """Entities, their vectors, and the index of those."""
    queue, shape = settings.queue, settings.entity_shape
    graph_entities = dg.AssetSpec(
        asset_key(ENTITIES, queue),
        deps=site.upstream.get(queue, ()),
        group_name=group_in(queue, GROUP),
        kinds={"neo4j"},
        metadata={
            "label": shape.label,
            "key": shape.key,
            "text": shape.template
            or f"{{{shape.key}}}, {{{shape.type}}}, {{{shape.observations}}}",
        },
        description="The entities of the knowledge graph. Written by its clients, never from here: "
        "report a materialization of it, or let an asset of yours stand before it, and "
        "entity_embeddings follows.",
    )

    @asset(
        site,
        settings,
        EMBEDDINGS,
        # Also what is upstream itself: within a run Dagster orders only neighbours.
        deps=[graph_entities, *site.upstream.get(queue, ())],
        group_name=GROUP,
        metadata={
            "property": shape.vector,
            "provider": settings.provider_name,
            "model": settings.model,
            "dimensions": settings.dimensions,
        },
        automation_condition=dg.AutomationCondition.any_deps_updated().since_last_handled()
        & ~dg.AutomationCondition.any_deps_in_progress()
        & ~dg.AutomationCondition.in_progress(),
    )
    def entity_embeddings(
        context: dg.AssetExecutionContext, neo4j: Neo4jResource
    ) -> dg.MaterializeResult:
        """The vectors of the entities, and how well they cover them.

        Materialize makes them: it compares every entity with its vector, enqueues what does not fit
        and drains until nothing is due. It counts as a drain, and can be terminated like one. To
        look without changing anything, launch reconcile_embeddings with dry_run. The sensor
        reconcile_entities adds a reading after each of its scans.
        """
        run_id, tags = context.run.run_id, site.tags(neo4j.settings)
        mark_worker(context.instance, run_id, longest=LONGEST + SLACK, tags=tags)
        report, metadata = finish(_make(context, neo4j))
        if report.fault:
            raise dg.Failure(report.fault, metadata=metadata)
        if report.ending is Ending.STOPPED:
            raise dg.DagsterExecutionInterruptedError
        if report.ending in UNDONE and metadata["entities_waiting"]:
            why = report.reason or report.ending
            raise dg.Failure(
                f"{metadata['entities_waiting']} entities still wait for their vectors: {why}",
                metadata=metadata,
            )
        return dg.MaterializeResult(metadata=metadata)

    entity_vector_index = dg.AssetSpec(
        asset_key(INDEX, queue),
        deps=[entity_embeddings],
        group_name=group_in(queue, GROUP),
        kinds={"neo4j"},
        metadata={
            "dimensions": settings.dimensions,
            "label": shape.label,
            "property": shape.vector,
        },
        description="The vector index through which entities are found by meaning. Neo4j keeps it "
        "in step with the vectors.",
    )
    return graph_entities, entity_embeddings, entity_vector_index


def upstream_sensor(site: Site) -> dg.SensorDefinition:
    """Materialize the embeddings when something upstream of them was."""
    return dg.AutomationConditionSensorDefinition(
        site.name("upstream_changes"),
        target=assets_of(site, EMBEDDINGS),
        minimum_interval_seconds=LOOK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        run_tags={DRAIN_TAG: "true"},
        description="Materialize entity_embeddings when graph_entities, or an asset that was put "
        "before it, was materialized. Dagster's own conditions decide.",
    )


def observed(reading: Reading) -> dict[str, dict[str, Any]]:
    """The parts of a reading about assets that are never materialized, by asset name."""
    report = reading.coverage
    found: dict[str, dict[str, Any]] = {}
    if report is not None:
        found[ENTITIES] = {"entities": report.entities, "embeddable": report.embeddable}
    if reading.index:
        size = report.dimensions.get(reading.dimensions, 0) if report else 0
        found[INDEX] = {**reading.index, "vectors": size}
    return found


def observations(
    seen: dict[str, dict[str, Any]], names: Iterable[str], queue: str
) -> list[dg.AssetObservation]:
    """The same as observation events; a materialization would start what is downstream."""
    return [dg.AssetObservation(asset_key(name, queue), metadata=seen[name]) for name in names]


async def _make(
    context: dg.AssetExecutionContext, neo4j: Neo4jResource
) -> tuple[DrainReport, dict[str, Any]]:
    """Scan, enqueue, drain, and scan again for the coverage reached."""
    stop = asyncio.Event()
    settings = await side_of(neo4j, None)
    model = settings.model
    options = replace(wiring.drain_options(settings), max_time=LONGEST)
    with stopped_by_signals(stop, context.log.info):
        drain = opened_drain(context, neo4j, settings, options, stop=stop)
        async with drain as (queue, work):
            before = await _scan(queue, model, stop)
            new = before.enqueued.total() - before.enqueued[EnqueueOutcome.PRESENT]
            context.log.info(f"{before.report.entities} entities read, {new} jobs enqueued")
            kept = neo4j.settings.queue
            drained = await run_and_tell(context, queue, work, kept_for=kept, config={})
            after = await _scan(queue, model, stop)
    tables = {name: drained[name] for name in ("errors", "failed_jobs") if name in drained}
    metadata = {
        **of_coverage(after.report),
        "entities_enqueued": new,
        "entities_changed": work.report.completed,
        "entities_failed": work.report.failed.total(),
        **tables,
    }
    return work.report, metadata


async def _scan(queue: Queue, model: str, stop: asyncio.Event) -> Scan:
    scan = Scan.begin(queue.reconciler(model))
    while not scan.is_done and not stop.is_set():
        await scan.go_on(most=SCAN_STEP)
    return scan
