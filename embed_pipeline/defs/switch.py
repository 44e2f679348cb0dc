"""The jobs that stop the queue from giving out jobs, and let it go on."""

import dagster as dg
from pydantic import Field

from embed_pipeline.defs.border import job, op
from embed_pipeline.defs.config import RunConfig
from embed_pipeline.defs.operators import operator_of
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.domain.breaker import BreakerStatus
from embed_pipeline.domain.metrics import QueueState
from embed_pipeline.settings import Settings
from embed_pipeline.store.queue import Queue


@op
def close_queue(context: dg.OpExecutionContext, neo4j: Neo4jResource) -> None:
    """Give out no more jobs."""
    by = operator_of(context)
    neo4j.with_queue(lambda queue, _: queue.switch.pause(by=str(by)), operator=by)
    context.log.info("paused; the job resume_queue gives out jobs again")


@job(close_queue)
def pause_queue() -> None:
    """Give out no more jobs, to any worker on any machine.

    What is being worked on goes on and is stored; drains end by themselves. New jobs are still
    accepted. The job resume_queue ends the pause.
    """


class ResumeConfig(RunConfig):
    """What is opened again."""

    close_breaker: bool = Field(
        default=False,
        description="Also close the breaker at once: the fault is mended. Otherwise it closes by "
        "itself when its next probe works.",
    )


@op
def open_queue(context: dg.OpExecutionContext, config: ResumeConfig, neo4j: Neo4jResource) -> None:
    """Give out jobs again."""

    async def work(queue: Queue, _settings: Settings) -> QueueState:
        await queue.switch.resume(close_breaker=config.close_breaker)
        return await queue.switch.state()

    breaker = neo4j.with_queue(work, operator=operator_of(context)).breaker
    if breaker.status is BreakerStatus.CLOSED:
        context.log.info("the queue gives out jobs")
    else:
        context.log.warning(
            f"not paused, but the breaker is {breaker.status.value}: {breaker.reason}. It closes "
            "by itself when a probe works; close_breaker waits for none"
        )
    context.add_output_metadata({"breaker": breaker.status.value})


@job(open_queue)
def resume_queue() -> None:
    """Give out jobs again after pause_queue, or after a fault that has been mended."""
