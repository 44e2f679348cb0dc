"""What the project looks after, as Dagster sees it: entities, their vectors, and the queue."""

from datetime import timedelta
from typing import Final

import dagster as dg

from embed_pipeline.defs.border import guarded
from embed_pipeline.defs.metadata import SHOWN, of_actions, of_coverage, of_queue
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.history.keys import asset_key
from embed_pipeline.reading import read_everything
from embed_pipeline.scanning import Scan
from embed_pipeline.settings import Settings
from embed_pipeline.store.queue import Queue

GROUP: Final = "knowledge_graph"
QUEUE_GROUP: Final = "embed_queue"
METRICS: Final = "embed_queue_metrics"
EMBEDDINGS: Final = "entity_embeddings"
INDEX: Final = "entity_vector_index"
ACTIONS: Final = "operator_actions"
MISSED_READINGS: Final = 5
"""So many readings may be late before the metrics count as stale."""


def graph_assets(queue: str) -> tuple[dg.AssetSpec, dg.AssetsDefinition, dg.AssetSpec]:
    """Entities, their vectors, and the index of those."""
    graph_entities = dg.AssetSpec(
        asset_key("graph_entities", queue),
        group_name=GROUP,
        kinds={"neo4j"},
        description="The entities of the knowledge graph. Written by its clients, never from here.",
    )

    @dg.asset(
        key=asset_key(EMBEDDINGS, queue),
        deps=[graph_entities],
        group_name=GROUP,
        kinds={"neo4j"},
        config_schema={},
    )
    @guarded
    def entity_embeddings(neo4j: Neo4jResource) -> dg.MaterializeResult:
        """The vectors of the entities, and how well they cover them.

        Materialize compares every entity with its vector and changes nothing. The sensor
        reconcile_entities adds a reading after each of its scans, and every drain adds its report.
        """

        async def work(queue: Queue, settings: Settings) -> Scan:
            scan = Scan.begin(queue.reconciler(settings.model))
            await scan.go_on(dry_run=True)
            return scan

        return dg.MaterializeResult(metadata=of_coverage(neo4j.with_queue(work).report))

    entity_vector_index = dg.AssetSpec(
        asset_key(INDEX, queue),
        deps=[entity_embeddings],
        group_name=GROUP,
        kinds={"neo4j"},
        description="The vector index through which entities are found by meaning. Neo4j keeps it "
        "in step with the vectors.",
    )
    return graph_entities, entity_embeddings, entity_vector_index


def queue_metrics_asset(interval: timedelta, queue: str) -> dg.AssetsDefinition:
    """The asset of the queue's figures, which is stale when ``interval`` is missed repeatedly."""
    late = max(MISSED_READINGS * interval, timedelta(minutes=2))

    @dg.asset(
        key=asset_key(METRICS, queue),
        group_name=QUEUE_GROUP,
        kinds={"neo4j"},
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=2 * late, warn_window=late),
        config_schema={},
    )
    @guarded
    def embed_queue_metrics(neo4j: Neo4jResource) -> dg.MaterializeResult:
        """Every figure of the queue at one time.

        The sensor queue_metrics adds a reading every EMBED_METRICS_INTERVAL, without a run, so that
        the history survives the pruning of runs. Materialize takes a reading now.
        """
        return dg.MaterializeResult(metadata=of_queue(neo4j.run(read_everything)))

    return embed_queue_metrics


def operator_actions_asset(queue: str) -> dg.AssetsDefinition:
    """The asset of what operators did to a queue."""

    @dg.asset(
        key=asset_key(ACTIONS, queue), group_name=QUEUE_GROUP, kinds={"neo4j"}, config_schema={}
    )
    @guarded
    def operator_actions(neo4j: Neo4jResource) -> dg.MaterializeResult:
        """Who cancelled, retried, released, paused, resumed, cleared or purged, and how many.

        The sensor queue_metrics adds the latest actions when there is a new one, whether it was
        done here or on the command line. Materialize reads them now.
        """
        entries = neo4j.with_queue(lambda queue, _: queue.audit.recent(limit=SHOWN))
        return dg.MaterializeResult(metadata=of_actions(entries))

    return operator_actions
