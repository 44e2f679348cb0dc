"""What an operator can start by hand, except the drain: look first, then change."""

from datetime import timedelta
from itertools import chain

import dagster as dg
from pydantic import Field

from embed_pipeline.defs.border import job, op
from embed_pipeline.defs.config import RunConfig
from embed_pipeline.defs.ended_drains import tell_former_owners
from embed_pipeline.defs.metadata import SHOWN, table
from embed_pipeline.defs.operators import operator_of
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.domain.job import is_holder
from embed_pipeline.domain.results import RecoveredJob, retention_in_words, tally_of
from embed_pipeline.operations.cleanup import clean_up
from embed_pipeline.operations.following import install_live
from embed_pipeline.operations.recovery import recover_all


def recovered_rows(jobs: list[RecoveredJob]) -> dg.TableMetadataValue:
    """One row per recovered job."""
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


class RecoverConfig(RunConfig):
    """How much one recovery does."""

    limit: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="At most so many leases, 1 to 1000000; empty is all.",
    )
    dry_run: bool = Field(default=False, description="List expired leases; change nothing.")


@op
def recover_leases(
    context: dg.OpExecutionContext, config: RecoverConfig, neo4j: Neo4jResource
) -> None:
    """Take expired leases away from workers that have gone silent."""
    if config.dry_run:
        _list_expired(context, config, neo4j)
        return
    found = neo4j.with_queues(
        lambda queue, settings: recover_all(
            queue, grace=settings.recovery_grace, limit=config.limit
        )
    )
    jobs = [*chain(*found)]
    tell_former_owners(context.instance, tally_of(jobs))
    context.log.info(f"recovered {len(jobs)} expired leases")
    context.add_output_metadata({"recovered": len(jobs), "jobs": recovered_rows(jobs)})


def _list_expired(
    context: dg.OpExecutionContext, config: RecoverConfig, neo4j: Neo4jResource
) -> None:
    found = neo4j.with_queues(
        lambda queue, settings: queue.admin.find_expired(
            limit=config.limit or SHOWN, grace=settings.recovery_grace
        )
    )
    jobs = [*chain(*found)]
    rows = table(
        {
            "job": job.id,
            "entity": job.entity_uid,
            "owner": job.lock_owner or "",
            "last sign of life": str(job.heartbeat_at or ""),
            "expired": str(job.lock_until),
            "attempts": job.attempts,
        }
        for job in jobs
    )
    context.log.info(f"would recover {len(jobs)} expired leases")
    context.add_output_metadata({"would_recover": len(jobs), "jobs": rows})


@job(recover_leases)
def recover_stale_leases() -> None:
    """Take expired leases away from workers that have gone silent.

    The sensor stale_leases starts it when the deployment starts, and when a look, every
    EMBED_JOB_RECOVERY_INTERVAL, finds expired leases; start it by hand when you do not want to
    wait, or when that is 0. A lease that is still valid is never touched.
    """


class CleanupConfig(RunConfig):
    """What is deleted."""

    retention_days: int | None = Field(
        default=None,
        ge=7,
        le=30,
        description="Delete jobs that ended more than so many days ago, 7 to 30; empty is "
        "EMBED_JOB_RETENTION_DAYS, or that of the state (EMBED_JOB_RETENTION_DAYS_COMPLETED, "
        "…_FAILED, …_CANCELLED).",
    )
    dry_run: bool = Field(default=False, description="Say how many; delete nothing.")


@op
def cleanup_jobs(
    context: dg.OpExecutionContext, config: CleanupConfig, neo4j: Neo4jResource
) -> None:
    """Delete ended jobs whose retention is over."""
    own = timedelta(days=config.retention_days) if config.retention_days else None
    days = f"{own.days} days" if own else retention_in_words(neo4j.settings.retention)
    cleanup = neo4j.with_queue(
        lambda queue, settings: clean_up(queue, settings, retention=own, dry_run=config.dry_run),
        operator=operator_of(context),
    )
    report = cleanup.jobs
    verb = "would delete" if config.dry_run else "deleted"
    how = "APOC" if report.used_apoc else "plain transactions, because APOC is missing"
    context.log.info(f"{verb} {report.deleted} jobs that ended over {days} ago, through {how}")
    context.add_output_metadata(
        {
            "would_delete" if config.dry_run else "deleted": report.deleted,
            "failed_batches": report.failed_batches,
            "used_apoc": report.used_apoc,
            "would_delete_actions" if config.dry_run else "deleted_actions": cleanup.actions,
        }
    )


@job(cleanup_jobs)
def cleanup_expired_jobs() -> None:
    """Delete completed, failed and cancelled jobs whose retention is over.

    The schedule nightly_cleanup does this; pending and processing jobs are never deleted. Vectors
    stay: they belong to the entities.
    """


class InitialiseConfig(RunConfig):
    """What may be changed besides adding what is missing."""

    change_model: bool = Field(
        default=False,
        description="Let the queue belong to the model, dimensions and template of the settings: "
        "every entity is embedded again, a vector index of other dimensions is replaced.",
    )


@op
def install_schema(
    context: dg.OpExecutionContext, config: InitialiseConfig, neo4j: Neo4jResource
) -> None:
    """Create what is missing of the constraints and indexes."""
    report, _ = neo4j.run_as_set(
        lambda driver, settings: install_live(
            driver, settings, change_model=config.change_model, operator=operator_of(context)
        )
    )
    context.log.info(f"created {len(report.created)}, already there {len(report.present)}")
    context.add_output_metadata(
        {"created": list(report.created), "already there": list(report.present)}
    )


@job(install_schema)
def initialise_schema() -> None:
    """Create the constraints and indexes that the queue relies on; what is there stays as it is."""


class ReleaseConfig(RunConfig):
    """Whose leases."""

    run_id: str = Field(
        max_length=128,
        pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]{7,127}$",
        description="Id of the run (or name of the worker, without what follows its first slash) "
        "whose jobs are taken back. jobs list --owner and the page of the run show it.",
    )
    count_attempts: bool = Field(
        default=False,
        description="The worker has died and one of its jobs may be why: each keeps its attempt "
        "and is tried apart from others. Otherwise the attempts are given back.",
    )


@op
def release_leases(
    context: dg.OpExecutionContext, config: ReleaseConfig, neo4j: Neo4jResource
) -> None:
    """Take back everything that a run holds."""
    by = operator_of(context)
    if not is_holder(config.run_id, neo4j.with_queue(lambda queue, _: queue.lookout.holders())):
        context.log.warning(f"run {config.run_id} holds no job; nothing was taken back")
    if config.count_attempts:
        jobs = neo4j.with_queue(
            lambda queue, _: queue.admin.recover_owner(config.run_id), operator=by
        )
        count, metadata = len(jobs), {"jobs": recovered_rows(jobs)}
    else:
        count = neo4j.with_queue(
            lambda queue, _: queue.admin.release_owner(config.run_id), operator=by
        )
        metadata = {}
    context.log.info(f"{count} leases taken back")
    context.add_output_metadata({"released": count, **metadata})


@job(release_leases)
def release_leases_of_run() -> None:
    """Take back at once what a run holds, instead of waiting for its leases to expire.

    Failed and canceled runs are looked after by the sensor embed_backlog; this is for workers that
    Dagster does not know. Safe while the worker lives: its writes are refused.
    """
