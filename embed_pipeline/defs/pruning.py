"""Deletes old runs, which Dagster never does by itself; never a reading of the metrics."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import dagster as dg
from pydantic import Field

from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import DRAIN_JOB, ENDED

PRUNED: Final = (
    DRAIN_JOB,
    "recover_stale_leases",
    "retry_failed_jobs",
    "cleanup_expired_jobs",
    "cancel_jobs",
    "reconcile_embeddings",
    "initialise_schema",
    "pause_queue",
    "resume_queue",
    "release_leases_of_run",
    "prune_old_runs",
)
"""Not the runs of assets: a reading that a person took goes with its run."""
PAGE: Final = 100


class PruneConfig(dg.Config):
    """What is deleted."""

    days: int | None = Field(
        default=None,
        ge=1,
        le=3_650,
        description="Delete runs that ended more than so many days ago, 1 to 3650; empty is "
        "EMBED_RUN_RETENTION_DAYS.",
    )
    dry_run: bool = Field(default=False, description="Say how many; delete nothing.")


def old_runs(instance: dg.DagsterInstance, *, days: int, limit: int) -> list[dg.DagsterRun]:
    """Runs of this project that have ended so long ago."""
    before = datetime.now(UTC) - timedelta(days=days)
    found: list[dg.DagsterRun] = []
    for job in PRUNED:
        wanted = dg.RunsFilter(job_name=job, statuses=list(ENDED), updated_before=before)
        found += instance.get_runs(wanted, limit=limit - len(found))
        if len(found) >= limit:
            break
    return found


@dg.op
def prune_runs(context: dg.OpExecutionContext, config: PruneConfig, neo4j: Neo4jResource) -> None:
    """Delete old runs with their events and logs."""
    days = config.days or neo4j.settings.run_retention_days
    if config.dry_run:
        count = len(old_runs(context.instance, days=days, limit=1_000_000))
    else:
        count = 0
        while page := old_runs(context.instance, days=days, limit=PAGE):
            for run in page:
                _delete(context.instance, run.run_id)
            count += len(page)
    verb = "would delete" if config.dry_run else "deleted"
    context.log.info(f"{verb} {count} runs that ended over {days} days ago")
    context.add_output_metadata({"would_delete" if config.dry_run else "deleted": count})


@dg.job(executor_def=dg.in_process_executor)
def prune_old_runs() -> None:
    """Delete Dagster runs that ended more than EMBED_RUN_RETENTION_DAYS ago.

    The schedule nightly_pruning does this. The history of metrics, coverage and drains stays: it
    is stored without a run. Readings that somebody took with Materialize stay too.
    """
    prune_runs()


def _delete(instance: dg.DagsterInstance, run_id: str) -> None:
    instance.delete_run(run_id)
    # On SQLite every run has a file of its own, which Dagster leaves behind.
    if instance.root_directory:
        runs = Path(instance.root_directory) / "history" / "runs"
        for suffix in (".db", ".db-wal", ".db-shm"):
            (runs / f"{run_id}{suffix}").unlink(missing_ok=True)
