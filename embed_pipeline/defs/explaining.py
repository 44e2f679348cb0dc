"""Why an entity is found, or is not, as Dagster shows it."""

import dagster as dg
from pydantic import Field

from embed_pipeline.defs.border import job, op
from embed_pipeline.defs.config import RunConfig
from embed_pipeline.defs.job_filters import LINE
from embed_pipeline.defs.metadata import table
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.domain.explanation import Explanation
from embed_pipeline.domain.keys import MAX_KEY_LENGTH
from embed_pipeline.operations.explaining import explain


class ExplainConfig(RunConfig):
    """Which entity."""

    entity: str = Field(
        min_length=1,
        max_length=MAX_KEY_LENGTH,
        pattern=LINE,
        description="The key of the entity, as EMBED_ENTITY_KEY names it.",
    )


@op
def explain_one(
    context: dg.OpExecutionContext, config: ExplainConfig, neo4j: Neo4jResource
) -> None:
    """Look at one entity, its vector and its jobs."""
    found = neo4j.with_queue(lambda queue, settings: explain(queue, settings, config.entity))
    context.log.info(found.why)
    figures: dict[str, object] = {
        "why": found.why,
        "coverage": found.coverage.value if found.coverage else "none",
        "is_found": found.is_found,
        "is_cut": found.is_cut,
        "tokens": found.tokens,
        "pieces": found.pieces,
        "named_by": found.dependants,
        "named_by_first": ", ".join(found.named_by),
        "named_by_more": found.has_more,
        "jobs": _jobs(found),
    }
    most = "up to " if found.is_at_most else ""
    if found.alone is not None:
        figures["cost_if_changed"] = f"{most}{found.alone.cost}"
    if found.change is not None:
        figures |= {
            "texts_if_renamed": found.change.texts,
            "tokens_if_renamed": found.change.tokens,
            "cost_if_renamed": f"{most}{found.change.cost}",
        }
    context.add_output_metadata(figures)


@job(explain_one)
def explain_entity() -> None:
    """Say why an entity is found, or is not: its vector, its jobs, and what a new name costs.

    Changes nothing and asks no provider. The text itself is not shown: what Dagster keeps, many can
    read. The command embed-pipeline explain shows it.
    """


def _jobs(found: Explanation) -> dg.TableMetadataValue:
    return table(
        {
            "version": job.version,
            "status": job.status.value,
            "attempts": job.attempts,
            "queued": str(job.queued_at),
            "begun": str(job.started_at or ""),
            "run": job.run_id or "",
            "ended": str(job.processed_at or ""),
            "error": job.error or "",
            "errors_before": "; ".join(job.error_history),
        }
        for job in found.jobs
    )
