"""The job that lets the provider be asked again before the end of its pause."""

import dagster as dg

from embed_pipeline.defs.border import job, op
from embed_pipeline.defs.operators import operator_of
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.operations import wiring


@op
def end_hold(context: dg.OpExecutionContext, neo4j: Neo4jResource) -> None:
    """End the pause that the provider asked for."""
    hold = neo4j.with_queue(
        lambda queue, settings: wiring.open_limiter(queue, settings).clear(),
        operator=operator_of(context),
    )
    said = "the provider has asked for no pause; nothing was changed" if hold is None else f"{hold}"
    context.log.info(said if hold is None else f"ended: {said}")
    context.add_output_metadata({"ended": hold is not None, "hold": said})


@job(end_hold)
def clear_limits() -> None:
    """End a pause that the provider has asked for, for everybody who shares the rate limit.

    The provider is believed for 15 minutes at most; launch this if you know that it is ready
    before. What was sent still counts against the limit. Drains that wait go on within seconds.
    """
