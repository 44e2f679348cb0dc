"""Batches: a sensor that asks how they stand, and a job that stores what has come back."""

from typing import Any, Final

import dagster as dg

from embed_pipeline.defs.border import job, op
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import UNDER_WAY
from embed_pipeline.defs.site import Site
from embed_pipeline.defs.ticks import Tick, sensor
from embed_pipeline.operations.batches import tend_batches

LOOK_EVERY: Final = 60
"""Seconds; as often as the provider is asked about each batch."""


@op
def collect(context: dg.OpExecutionContext, neo4j: Neo4jResource) -> None:
    """Store the vectors of batches that the provider has done."""
    found = neo4j.with_queues(lambda queue, settings: tend_batches(queue, settings, collects=True))
    tended = [one for one in found if one is not None]
    lines = [line for one in tended for line in one.lines]
    for line in lines:
        context.log.info(line)
    metadata: dict[str, Any] = {
        "collected": sum(one.collected for one in tended),
        "completed": sum(one.report.completed for one in tended),
        "failed": sum(one.report.failed.total() for one in tended),
        "given_back": sum(one.report.released + one.report.given_back for one in tended),
        "moved": sum(one.report.moved for one in tended),
        "tokens": sum(one.report.tokens for one in tended),
        "batches": "; ".join(lines) or "there are none",
    }
    context.add_output_metadata(metadata)


@job(collect)
def collect_batches() -> None:
    """Store the vectors of batches that the provider has done, and repair what a crash has left.

    The sensor embed_batches starts this when answers are ready. It can be started or terminated at
    any time: answers are read again, and nothing is paid for twice. Pausing the queue does not stop
    it.
    """


def batches_sensor(site: Site) -> dg.SensorDefinition:
    """Asks the provider about batches, and starts a run when answers are ready."""

    @sensor(
        site,
        job_name=site.name(collect_batches.name),
        minimum_interval_seconds=LOOK_EVERY,
    )
    def embed_batches(tick: Tick, neo4j: Neo4jResource) -> dg.RunRequest | dg.SkipReason:
        """Ask how batches stand, and start collect_batches when answers are ready.

        Says of each how many jobs it has, how many are done and when it expires.
        """
        found = neo4j.with_queues(
            lambda queue, settings: tend_batches(queue, settings, collects=False)
        )
        tended = [one for one in found if one is not None]
        if not tended:
            return dg.SkipReason("no batch is under way")
        said = "; ".join(line for one in tended for line in one.lines) or "all batches are done"
        own = neo4j.settings
        tags = site.tags(own)
        running = dg.RunsFilter(
            job_name=site.name(collect_batches.name), statuses=list(UNDER_WAY), tags=tags
        )
        if not any(one.ready for one in tended):
            return dg.SkipReason(said)
        if tick.instance.get_runs_count(running):
            return dg.SkipReason(f"{said}; a run collects already")
        return dg.RunRequest(
            tags={"embed_pipeline/batches": said[:200], **tags},
            run_config=site.run_config(collect_batches.op.name, own),
        )

    return embed_batches
