"""The quality of the vectors as Dagster shows it, measured once a day."""

from typing import Any, Final

import dagster as dg

from embed_pipeline.defs.assets import GROUP
from embed_pipeline.defs.border import guarded
from embed_pipeline.defs.describing import described
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import EMBEDDINGS
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.quality import Quality
from embed_pipeline.domain.quality_check import follows_the_graph
from embed_pipeline.history.keys import asset_key
from embed_pipeline.operations.grading import grade

QUALITY: Final = "embedding_quality"


def quality_asset(queue: str) -> dg.AssetsDefinition:
    """The asset of how well the vectors follow the graph."""

    @dg.asset(
        key=asset_key(QUALITY, queue),
        deps=[asset_key(EMBEDDINGS, queue)],
        group_name=GROUP,
        kinds={"neo4j"},
        config_schema={},
    )
    @guarded
    def embedding_quality(neo4j: Neo4jResource) -> dg.MaterializeResult:
        """Whether joined entities are nearer in meaning than others, and what else can be seen.

        Materialize looks at 400 edges and as many pairs without one, and embeds 20 texts again. The
        schedule daily_quality does it every night; the check vectors_follow_the_graph judges it.
        """
        return dg.MaterializeResult(metadata=of_quality(neo4j.with_queue(grade)))

    return embedding_quality


def quality_schedule(quality: dg.AssetsDefinition) -> dg.ScheduleDefinition:
    """Measures it once a day."""

    @described(
        dg.schedule,
        target=quality,
        cron_schedule="35 2 * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )
    def daily_quality(neo4j: Neo4jResource) -> dg.RunRequest | dg.SkipReason:
        """Measure the quality of the vectors, at 02:35 UTC."""
        counts = neo4j.with_queue(lambda queue, _: queue.admin.counts())
        if not counts[JobStatus.COMPLETED]:
            return dg.SkipReason("nothing is embedded yet")
        return dg.RunRequest()

    return daily_quality


def of_quality(quality: Quality) -> dict[str, Any]:
    """The figures of a reading, and what they mean."""
    verdict = follows_the_graph(quality)
    return {"verdict": verdict.message, **verdict.figures}
