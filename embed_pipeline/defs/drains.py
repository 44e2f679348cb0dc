"""The drain as a Dagster job: one op, one process, one report."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import dagster as dg
from pydantic import Field

from embed_pipeline.defs.border import job, op
from embed_pipeline.defs.config import RunConfig
from embed_pipeline.defs.draining import opened_drain, run_and_tell, side_of
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import DRAIN_TAG, MAX_RUNTIME_TAG, SLACK, mark_worker
from embed_pipeline.domain.queue_name import QUEUE_NAME
from embed_pipeline.operations import wiring
from embed_pipeline.operations.blocking import finish
from embed_pipeline.tracing import export_spans
from embed_pipeline.worker.options import MOST_PER_LEASE, DrainOptions
from embed_pipeline.worker.report import DrainReport, Ending
from embed_pipeline.worker.stopping import stopped_by_signals

DEFAULT_MINUTES: Final = 10


class DrainConfig(RunConfig):
    """How much one drain may do, and how."""

    max_minutes: int = Field(
        default=DEFAULT_MINUTES,
        ge=1,
        le=720,
        description="End after so many minutes, 1 to 720. The sensor starts the next drain.",
    )
    max_jobs: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="End after so many jobs, 1 to 10000000; empty is no limit.",
    )
    linger_seconds: int = Field(
        default=15,
        ge=0,
        le=3_600,
        description="Wait so long for new jobs when nothing is left, 0 to 3600: starting a new "
        "run costs seconds.",
    )
    requests_at_once: int = Field(
        default=DrainOptions().requests_at_once,
        ge=1,
        le=64,
        description="Requests to the provider at the same time, 1 to 64. The rate limit holds "
        "over all drains together, whatever stands here.",
    )
    jobs_per_request: int | None = Field(
        default=None,
        ge=1,
        le=2_048,
        description="At most so many texts in one request, 1 to 2048; empty is what the provider "
        "allows.",
    )

    jobs_per_lease: int | None = Field(
        default=None,
        ge=1,
        le=MOST_PER_LEASE,
        description="At most so many jobs leased at once, 1 to 2048; empty is what the requests at "
        "once can hold. Fewer let more drains lease side by side, and cost throughput.",
    )

    mode: str | None = Field(
        default=None,
        pattern="^(sync|batch)$",
        max_length=5,
        description="sync or batch: whether a backlog of EMBEDDING_BATCH_LEAST jobs or more goes "
        "through the provider's Batch API; empty is EMBEDDING_MODE.",
    )

    queue: str | None = Field(
        default=None,
        max_length=64,
        pattern=f"^{QUEUE_NAME}$",
        description="The queue beside the live one, while a cut-over is under way (cutover_status "
        "names it); empty is the live one.",
    )

    def applied_to(self, options: DrainOptions) -> DrainOptions:
        """The deployment's options, overridden by this config."""
        return replace(
            options,
            max_time=timedelta(minutes=self.max_minutes),
            max_jobs=self.max_jobs,
            linger=timedelta(seconds=self.linger_seconds),
            requests_at_once=self.requests_at_once,
            jobs_per_request=self.jobs_per_request,
            jobs_per_lease=self.jobs_per_lease,
        )


@op
def drain(
    context: dg.OpExecutionContext,
    config: DrainConfig,
    neo4j: Neo4jResource,
) -> None:
    """Lease, embed and complete jobs until nothing is left or the budget is used."""
    # Here and not where definitions are made: a project may set up its own SDK after those.
    export_spans()
    longest = timedelta(minutes=config.max_minutes) + SLACK
    mark_worker(context.instance, context.run_id, longest=longest)
    report, metadata = finish(_drain(context, config, neo4j))
    if report.fault:
        raise dg.Failure(report.fault, metadata=metadata)
    context.add_output_metadata(metadata)
    if report.ending is Ending.STOPPED:
        # Without it the run would end as a success.
        raise dg.DagsterExecutionInterruptedError


async def _drain(
    context: dg.OpExecutionContext,
    config: DrainConfig,
    neo4j: Neo4jResource,
) -> tuple[DrainReport, dict[str, Any]]:
    stop = asyncio.Event()
    settings = await side_of(neo4j, config.queue)
    options = config.applied_to(wiring.drain_options(settings))
    # Dagster's own handlers would strike anywhere in the loop or the driver.
    with stopped_by_signals(stop, context.log.info):
        drain = opened_drain(context, neo4j, settings, options, stop=stop, mode=config.mode)
        async with drain as (queue, work):
            kept = neo4j.settings.queue
            told = config.model_dump()
            metadata = await run_and_tell(context, queue, work, kept_for=kept, config=told)
            return work.report, metadata


@job(
    drain,
    tags={
        DRAIN_TAG: "true",
        # Until the op has said what it really is.
        MAX_RUNTIME_TAG: str(int((timedelta(minutes=DEFAULT_MINUTES) + SLACK).total_seconds())),
    },
)
def drain_embed_queue() -> None:
    """Embed what waits in the queue.

    The sensor embed_backlog starts this whenever jobs are due; start it by hand to go on at once,
    or with another budget. Terminating it is safe: it takes no new jobs, gives requests in flight
    EMBED_JOB_STOP_GRACE_MS (30 s if not set), and gives everything else back untried.
    """
