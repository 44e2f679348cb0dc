"""What an operator can start by hand, except the drain: look first, then change."""

from datetime import timedelta

import dagster as dg
from pydantic import ConfigDict, Field

from embed_pipeline import wiring
from embed_pipeline.defs.metadata import of_coverage, table
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.domain.breaker import BreakerStatus
from embed_pipeline.domain.metrics import QueueState
from embed_pipeline.domain.results import RecoveredJob
from embed_pipeline.recovering import recover_all
from embed_pipeline.scanning import Scan
from embed_pipeline.settings import Settings
from embed_pipeline.store.queue import Queue


def recovered_rows(jobs: list[RecoveredJob]) -> dg.TableMetadataValue:
    """The recovered jobs, for people."""
    return table(
        {
            "job": job.job_id,
            "entity": job.entity_uid,
            "former owner": job.former_owner or "",
            "last sign of life": str(job.last_heartbeat or ""),
            "now": job.status.value,
            "attempts": job.attempts,
        }
        for job in jobs
    )


class RecoverConfig(dg.Config):
    """How much one recovery does."""

    limit: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="At most so many leases, 1 to 1000000; empty is all.",
    )


@dg.op
def recover_leases(
    context: dg.OpExecutionContext, config: RecoverConfig, neo4j: Neo4jResource
) -> None:
    """Take expired leases away from workers that have gone silent."""
    jobs = neo4j.with_queue(
        lambda queue, settings: recover_all(
            queue,
            grace=timedelta(milliseconds=settings.recovery_grace_ms),
            limit=config.limit,
        )
    )
    context.log.info(f"recovered {len(jobs)} expired leases")
    context.add_output_metadata({"recovered": len(jobs), "jobs": recovered_rows(jobs)})


@dg.job(executor_def=dg.in_process_executor)
def recover_stale_leases() -> None:
    """Take expired leases away from workers that have gone silent.

    The sensor stale_leases does the same every EMBED_JOB_RECOVERY_INTERVAL; start it by hand when
    you do not want to wait, or when that is 0. A lease that is still valid is never touched.
    """
    recover_leases()


class CleanupConfig(dg.Config):
    """What is deleted."""

    retention_days: int | None = Field(
        default=None,
        ge=7,
        le=30,
        description="Delete jobs that ended more than so many days ago, 7 to 30; empty is "
        "EMBED_JOB_RETENTION_DAYS.",
    )
    dry_run: bool = Field(default=False, description="Say how many; delete nothing.")


@dg.op
def cleanup_jobs(
    context: dg.OpExecutionContext, config: CleanupConfig, neo4j: Neo4jResource
) -> None:
    """Delete ended jobs whose retention is over."""
    days = config.retention_days or neo4j.settings.retention_days
    report = neo4j.with_queue(
        lambda queue, _: queue.purge.purge_terminal(
            retention=timedelta(days=days), dry_run=config.dry_run
        )
    )
    verb = "would delete" if config.dry_run else "deleted"
    how = "APOC" if report.used_apoc else "plain transactions, because APOC is missing"
    context.log.info(f"{verb} {report.deleted} jobs that ended over {days} days ago, through {how}")
    context.add_output_metadata(
        {
            "would_delete" if config.dry_run else "deleted": report.deleted,
            "failed_batches": report.failed_batches,
            "used_apoc": report.used_apoc,
        }
    )


@dg.job(executor_def=dg.in_process_executor)
def cleanup_expired_jobs() -> None:
    """Delete completed, failed and cancelled jobs whose retention is over.

    The schedule nightly_cleanup does this; pending and processing jobs are never deleted. Vectors
    stay: they belong to the entities.
    """
    cleanup_jobs()


class ReconcileConfig(dg.Config):
    """How the scan works."""

    dry_run: bool = Field(default=False, description="Count; enqueue nothing.")
    clear_orphans: bool = Field(
        default=False, description="Also remove vectors from outdated versions of entities."
    )
    page_size: int = Field(
        default=500, ge=1, le=10_000, description="Entities per transaction, 1 to 10000."
    )


@dg.op
def reconcile(
    context: dg.OpExecutionContext, config: ReconcileConfig, neo4j: Neo4jResource
) -> None:
    """Compare every entity with its vector, and enqueue what does not fit."""

    async def work(queue: Queue, settings: Settings) -> Scan:
        scan = Scan.begin(queue.reconciler(settings.model))
        await scan.go_on(
            page_size=config.page_size, dry_run=config.dry_run, clear_orphans=config.clear_orphans
        )
        return scan

    scan = neo4j.with_queue(work)
    counts = {f"enqueued_{outcome}": number for outcome, number in scan.enqueued.items()}
    report = scan.report
    context.log.info(f"{report.entities} entities, {report.percent:.2f} % current, {counts}")
    metadata = of_coverage(report)
    context.add_output_metadata({**metadata, **counts})
    context.instance.report_runless_asset_event(
        dg.AssetMaterialization("entity_embeddings", metadata=metadata)
    )


@dg.job(executor_def=dg.in_process_executor)
def reconcile_embeddings() -> None:
    """Compare every entity with its vector, and enqueue what does not fit.

    Finds whatever anybody wrote, without a trigger. The sensor reconcile_entities does the same
    every EMBED_RECONCILE_INTERVAL, in small steps.
    """
    reconcile()


@dg.op
def install_schema(context: dg.OpExecutionContext, neo4j: Neo4jResource) -> None:
    """Create what is missing of the constraints and indexes."""
    report = neo4j.run(wiring.install_schema)
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


@dg.op
def close_queue(context: dg.OpExecutionContext, neo4j: Neo4jResource) -> None:
    """Give out no more jobs."""
    by = f"Dagster run {context.run_id}"
    neo4j.with_queue(lambda queue, _: queue.switch.pause(by=by))
    context.log.info("paused; the job resume_queue gives out jobs again")


@dg.job(executor_def=dg.in_process_executor)
def pause_queue() -> None:
    """Give out no more jobs, to any worker on any machine.

    What is being worked on goes on and is stored; drains end by themselves. New jobs are still
    accepted. The job resume_queue ends the pause.
    """
    close_queue()


class ResumeConfig(dg.Config):
    """What is opened again."""

    close_breaker: bool = Field(
        default=False,
        description="Also close the breaker at once: the fault is mended. Otherwise it closes by "
        "itself when its next probe works.",
    )


@dg.op
def open_queue(context: dg.OpExecutionContext, config: ResumeConfig, neo4j: Neo4jResource) -> None:
    """Give out jobs again."""

    async def work(queue: Queue, _settings: Settings) -> QueueState:
        await queue.switch.resume()
        if config.close_breaker:
            await queue.switch.close_breaker()
        return await queue.switch.state()

    breaker = neo4j.with_queue(work).breaker
    if breaker.status is BreakerStatus.CLOSED:
        context.log.info("the queue gives out jobs")
    else:
        context.log.warning(
            f"not paused, but the breaker is {breaker.status.value}: {breaker.reason}. It closes "
            "by itself when a probe works; close_breaker waits for none"
        )
    context.add_output_metadata({"breaker": breaker.status.value})


@dg.job(executor_def=dg.in_process_executor)
def resume_queue() -> None:
    """Give out jobs again after pause_queue, or after a fault that has been mended."""
    open_queue()


class ReleaseConfig(dg.Config):
    """Whose leases."""

    # A run config may name a variable instead of a text, also one that holds a secret.
    model_config = ConfigDict(hide_input_in_errors=True)

    run_id: str = Field(
        max_length=128,
        pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]{7,127}$",
        description="Id of the run (or name of the worker, without what follows its first slash) "
        "whose jobs are taken back. jobs list --owner and the page of the run show it.",
    )
    count_attempts: bool = Field(
        default=False,
        description="The worker has died and one of its jobs may be why: each keeps its attempt "
        "and is tried alone. Otherwise the attempts are given back.",
    )


@dg.op
def release_leases(
    context: dg.OpExecutionContext, config: ReleaseConfig, neo4j: Neo4jResource
) -> None:
    """Take back everything that a run holds."""
    if config.count_attempts:
        jobs = neo4j.with_queue(lambda queue, _: queue.admin.recover_owner(config.run_id))
        count, metadata = len(jobs), {"jobs": recovered_rows(jobs)}
    else:
        count = neo4j.with_queue(lambda queue, _: queue.admin.release_owner(config.run_id))
        metadata = {}
    context.log.info(f"{count} leases taken back")
    context.add_output_metadata({"released": count, **metadata})


@dg.job(executor_def=dg.in_process_executor)
def release_leases_of_run() -> None:
    """Take back at once what a run holds, instead of waiting for its leases to expire.

    Failed and canceled runs are looked after by the sensors drain_failed and drain_canceled; this
    is for workers that Dagster does not know. Safe while the worker lives: its writes are refused.
    """
    release_leases()
