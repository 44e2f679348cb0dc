"""What the project keeps about the queue, as Dagster sees it; ``graph`` has the entities."""

import time
from datetime import timedelta
from typing import Final

import dagster as dg

from embed_pipeline.defs.border import asset
from embed_pipeline.defs.draining import DRAINS
from embed_pipeline.defs.failures import of_reading
from embed_pipeline.defs.metadata import SHOWN, of_actions
from embed_pipeline.defs.overview import recent
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.site import Site, group_in
from embed_pipeline.history.keys import asset_key
from embed_pipeline.operations.reading import read_everything
from embed_pipeline.settings import Settings

GROUP: Final = "knowledge_graph"
QUEUE_GROUP: Final = "embed_queue"
METRICS: Final = "embed_queue_metrics"
INDEX: Final = "entity_vector_index"
ACTIONS: Final = "operator_actions"
MISSED_READINGS: Final = 5
"""So many readings may be late before the metrics count as stale."""


def drains_asset(queue: str) -> dg.AssetSpec:
    """The asset of what each drain did."""
    return dg.AssetSpec(
        asset_key(DRAINS, queue),
        group_name=group_in(queue, QUEUE_GROUP),
        kinds={"neo4j"},
        description="What each drain did: a report at its end, without a run, so that the history "
        "survives the pruning of runs.",
    )


def queue_metrics_asset(site: Site, settings: Settings) -> dg.AssetsDefinition:
    """The asset of the queue's figures, which is stale when readings are missed repeatedly."""
    late = max(MISSED_READINGS * site.first.metrics_interval, timedelta(minutes=2))

    @asset(
        site,
        settings,
        METRICS,
        group_name=QUEUE_GROUP,
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=2 * late, warn_window=late),
    )
    def embed_queue_metrics(
        context: dg.AssetExecutionContext, neo4j: Neo4jResource
    ) -> dg.MaterializeResult:
        """Every figure of the queue at one time; *chart* has the last hour of what matters most.

        The sensor queue_metrics adds a reading every EMBED_METRICS_INTERVAL, without a run, so that
        the history survives the pruning of runs. Materialize takes a reading now.
        """
        reading = neo4j.run_as_set(read_everything)
        before = recent(context.instance, context.asset_key)
        return dg.MaterializeResult(metadata=of_reading(reading, before, at=time.time()))

    return embed_queue_metrics


def operator_actions_asset(site: Site, settings: Settings) -> dg.AssetsDefinition:
    """The asset of what operators did to a queue."""

    @asset(site, settings, ACTIONS, group_name=QUEUE_GROUP)
    def operator_actions(
        context: dg.AssetExecutionContext,  # noqa: ARG001 - every asset is given one
        neo4j: Neo4jResource,
    ) -> dg.MaterializeResult:
        """Who cancelled, retried, released, paused, resumed, cleared or purged, and how many.

        The sensor queue_metrics adds the latest actions when there is a new one, whether it was
        done here or on the command line. Materialize reads them now.
        """
        entries = neo4j.with_queue(lambda queue, _: queue.audit.recent(limit=SHOWN))
        return dg.MaterializeResult(metadata=of_actions(entries))

    return operator_actions
