"""The quality of the vectors as Dagster shows it, measured once a day."""

from typing import Any, Final

import dagster as dg

from embed_pipeline.defs.assets import GROUP
from embed_pipeline.defs.border import asset
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import EMBEDDINGS
from embed_pipeline.defs.site import Site
from embed_pipeline.defs.ticks import Tick, assets_of, schedule
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.quality import Quality
from embed_pipeline.domain.quality_check import follows_the_graph
from embed_pipeline.history.keys import asset_key
from embed_pipeline.settings import Settings

QUALITY: Final = "embedding_quality"


def quality_asset(site: Site, settings: Settings) -> dg.AssetsDefinition:
    """The asset of how well the vectors follow the graph."""

    @asset(site, settings, QUALITY, deps=[asset_key(EMBEDDINGS, settings.queue)], group_name=GROUP)
    def embedding_quality(
        context: dg.AssetExecutionContext,  # noqa: ARG001 - every asset is given one
        neo4j: Neo4jResource,
    ) -> dg.MaterializeResult:
        """Whether joined entities are nearer in meaning than others, and what else can be seen.

        Materialize looks at 400 edges and as many pairs without one, and embeds 20 texts again. The
        schedule daily_quality does it every night; the check vectors_follow_the_graph judges it.
        """
        from embed_pipeline.operations.grading import grade

        return dg.MaterializeResult(metadata=of_quality(neo4j.with_queue(grade)))

    return embedding_quality


def quality_schedule(site: Site) -> dg.ScheduleDefinition:
    """Measures the quality once a day."""

    @schedule(site, target=assets_of(site, QUALITY), cron_schedule="35 2 * * *")
    def daily_quality(_tick: Tick, neo4j: Neo4jResource) -> dg.RunRequest | dg.SkipReason:
        """Measure the quality of the vectors, at 02:35 UTC."""
        counts = neo4j.with_queue(lambda queue, _: queue.admin.counts())
        if not counts[JobStatus.COMPLETED]:
            return dg.SkipReason("nothing is embedded yet")
        own = neo4j.settings
        return dg.RunRequest(asset_selection=[asset_key(QUALITY, own.queue)], tags=site.tags(own))

    return daily_quality


def of_quality(quality: Quality) -> dict[str, Any]:
    """The figures of a reading with their interpretation."""
    verdict = follows_the_graph(quality)
    return {"verdict": verdict.message, **verdict.figures}
