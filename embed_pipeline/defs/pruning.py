"""Deletes old runs and exported readings, which Dagster never does by itself.

Only those of its own code location: another deployment in the same Dagster instance has jobs of the
same names. Dagster leaves the logs of what it deletes, and they may quote anything: they go too.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import dagster as dg
from dagster._core.storage.compute_log_manager import ComputeIOType
from pydantic import Field

from embed_pipeline.defs.border import job, op
from embed_pipeline.defs.config import RunConfig
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import DRAIN_JOB, ENDED, REPOSITORY_TAG, repository_of_run

PRUNED: Final = (
    DRAIN_JOB,
    "collect_batches",
    "recover_stale_leases",
    "retry_failed_jobs",
    "cleanup_expired_jobs",
    "cancel_jobs",
    "restore_cancelled_jobs",
    "reconcile_embeddings",
    "initialise_schema",
    "pause_queue",
    "resume_queue",
    "clear_limits",
    "release_leases_of_run",
    "explain_entity",
    "prune_old_runs",
    "cutover_start",
    "cutover_status",
    "cutover_go",
    "cutover_rollback",
    "cutover_finish",
)
"""Not the runs of assets: a reading that a person took goes with its run."""
TICKING: Final = (
    "embed_backlog",
    "embed_batches",
    "stale_leases",
    "queue_metrics",
    "reconcile_entities",
    "nightly_cleanup",
    "nightly_pruning",
    "daily_history",
    "hourly_retry",
    "daily_quality",
    "upstream_changes",
)
"""The sensors and schedules whose ticks leave logs."""
PAGE: Final = 100


class PruneConfig(RunConfig):
    """What is deleted."""

    days: int | None = Field(
        default=None,
        ge=1,
        le=3_650,
        description="Delete runs that ended and readings that were taken more than so many days "
        "ago, 1 to 3650; empty is EMBED_RUN_RETENTION_DAYS.",
    )
    dry_run: bool = Field(default=False, description="Say how many; delete nothing.")


def old_runs(
    instance: dg.DagsterInstance, repository: str | None, *, days: int, limit: int, prefix: str = ""
) -> list[dg.DagsterRun]:
    """Runs of this deployment that have ended so long ago; of all of them if none is named.

    The jobs of a second queue begin with ``prefix``.
    """
    before = datetime.now(UTC) - timedelta(days=days)
    tags = {REPOSITORY_TAG: repository} if repository else {}
    found: list[dg.DagsterRun] = []
    for name in PRUNED:
        wanted = dg.RunsFilter(
            job_name=prefix + name, statuses=list(ENDED), updated_before=before, tags=tags
        )
        found += instance.get_runs(wanted, limit=limit - len(found))
        if len(found) >= limit:
            break
    return found


def tick_logs_left(
    instance: dg.DagsterInstance, repository: str | None, *, prefix: str = ""
) -> list[list[str]]:
    """Keys of the logs of our ticks that Dagster's retention has deleted.

    The keys are listed before the ticks are asked for: a tick is stored before it writes a line.
    Where a second deployment has sensors of the same names, their logs lie together; a log stays as
    long as anybody's tick of that number is there.
    """
    name = repository.partition("@")[0] if repository else "__repository__"
    storage, left = instance.schedule_storage, []
    if storage is None:
        return left
    found = [key for ticking in TICKING for key in _logs_below(instance, [name, prefix + ticking])]
    for start in range(0, len(found), PAGE):
        page = {int(key[-1]): key for key in found[start : start + PAGE] if key[-1].isdecimal()}
        ticks = storage.get_ticks_by_ids(list(page))
        left += [page[tick_id] for tick_id in page.keys() - {tick.tick_id for tick in ticks}]
    return left


def _logs_below(instance: dg.DagsterInstance, prefix: list[str]) -> Sequence[list[str]]:
    manager = instance.compute_log_manager
    try:
        return manager.get_log_keys_for_log_key_prefix(prefix, ComputeIOType.STDERR)
    except (FileNotFoundError, NotImplementedError):
        # Nothing has been written yet, or logs are in a bucket, whose own rules delete them.
        return []


def repository_of(instance: dg.DagsterInstance, log_key: Sequence[str] | None) -> str | None:
    """Where a schedule is, as runs are marked with it; Dagster tells a schedule only its tick."""
    storage = instance.schedule_storage
    if not log_key or storage is None:
        return None
    tick = storage.get_tick(int(log_key[-1]))
    state = instance.get_instigator_state(
        tick.instigator_origin_id, tick.tick_data.selector_id or ""
    )
    return state.origin.repository_origin.get_label() if state else None


@op
def prune_runs(context: dg.OpExecutionContext, config: PruneConfig, neo4j: Neo4jResource) -> None:
    """Delete old runs with their logs, readings that are exported, and logs of gone ticks."""
    from embed_pipeline.history.archive import Archive
    from embed_pipeline.history.forgetting import Forgotten, forget, last_day_kept, old_readings

    instance, repository = context.instance, repository_of_run(context.run)
    if repository is None:
        raise dg.Failure(
            "nothing was deleted: this run does not say which code location it is from, so the "
            "runs of that location cannot be told from others. Launch it in Dagster's UI, or let "
            "the schedule nightly_pruning do it."
        )
    settings, prefix = neo4j.settings, context.job_name.removesuffix("prune_old_runs")
    days = config.days or settings.run_retention_days
    before = last_day_kept(datetime.now(UTC), days=days)
    logs = tick_logs_left(instance, repository, prefix=prefix)
    if config.dry_run:
        count = len(old_runs(instance, repository, days=days, limit=1_000_000, prefix=prefix))
        forgotten = Forgotten(readings=old_readings(instance, settings.queue, before=before))
    else:
        count = 0
        while page := old_runs(instance, repository, days=days, limit=PAGE, prefix=prefix):
            for run in page:
                _delete(instance, run.run_id)
            count += len(page)
        for key in logs:
            instance.compute_log_manager.delete_logs(log_key=key)
        archive = Archive.at(settings.history_path)
        forgotten = forget(instance, archive, settings.queue, before=before)
    verb = "would delete" if config.dry_run else "deleted"
    context.log.info(
        f"{verb} {count} runs that ended over {days} days ago, {forgotten.readings} exported "
        f"readings of before {before:%Y-%m-%d}, and the logs of {len(logs)} ticks that are gone"
    )
    if forgotten.differing:
        context.log.warning(
            f"{settings.history_path} does not say what the event log says about "
            f"{', '.join(forgotten.differing)}: these readings stay in the event log. To take its "
            "word, delete the files of these days; they are exported again."
        )
    done = "would_delete" if config.dry_run else "deleted"
    context.add_output_metadata(
        {
            done: count,
            f"{done}_tick_logs": len(logs),
            f"{done}_readings": forgotten.readings,
            **({"days_that_differ": forgotten.differing} if forgotten.differing else {}),
        }
    )


@job(prune_runs)
def prune_old_runs() -> None:
    """Delete Dagster runs that ended more than EMBED_RUN_RETENTION_DAYS ago, with their logs.

    Only runs of this code location, and logs that are on its machine. Logs of ticks that Dagster
    has deleted go too. The schedule nightly_pruning does this. Readings of the queue, coverage and
    drains leave the event log at the same age, once their day is in the Parquet files and compared
    with them. Readings that were taken with Materialize stay.
    """


def _delete(instance: dg.DagsterInstance, run_id: str) -> None:
    # First the logs: without the run they could not be found if this ends half way.
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    instance.delete_run(run_id)
    # On SQLite every run has a file of its own, which Dagster leaves behind.
    if instance.root_directory:
        runs = Path(instance.root_directory) / "history" / "runs"
        for suffix in (".db", ".db-wal", ".db-shm"):
            (runs / f"{run_id}{suffix}").unlink(missing_ok=True)
