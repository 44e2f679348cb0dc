"""What an operator can start by hand."""

import dagster as dg

from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.store import schema


@dg.op
def install_schema(context: dg.OpExecutionContext, neo4j: Neo4jResource) -> None:
    """Create what is missing of the constraints and indexes."""
    report = neo4j.run(
        lambda driver, settings: schema.install(
            driver,
            database=settings.neo4j_database,
            shape=settings.entity_shape,
            dimensions=settings.dimensions,
        )
    )
    context.log.info(f"created {len(report.created)}, already there {len(report.present)}")
    context.add_output_metadata(
        {"created": list(report.created), "already there": list(report.present)}
    )


@dg.job(executor_def=dg.in_process_executor)
def initialise_schema() -> None:
    """Create the constraints and indexes that the queue relies on.

    Safe at any time and as often as you like: what is already there stays as it is.
    """
    install_schema()
