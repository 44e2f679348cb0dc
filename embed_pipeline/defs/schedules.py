"""What happens by the clock; each looks first, and starts a run only where there is work."""

from datetime import UTC, datetime

import dagster as dg

from embed_pipeline.defs.describing import described
from embed_pipeline.defs.job_filters import retry_failed_jobs
from embed_pipeline.defs.jobs import cleanup_expired_jobs
from embed_pipeline.defs.pruning import (
    old_runs,
    prune_old_runs,
    repository_of,
    tick_logs_left,
)
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.domain.job import JobFilter
from embed_pipeline.history.forgetting import last_day_kept, old_readings
from embed_pipeline.operations.cleanup import clean_up


@described(
    dg.schedule,
    job=cleanup_expired_jobs,
    cron_schedule="15 3 * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
)
def nightly_cleanup(neo4j: Neo4jResource) -> dg.RunRequest | dg.SkipReason:
    """Delete ended jobs whose retention is over, at 03:15 UTC."""
    days = neo4j.settings.retention_days
    found = neo4j.with_queue(lambda queue, settings: clean_up(queue, settings, dry_run=True))
    if not found.is_needed:
        return dg.SkipReason(f"no job ended more than {days} days ago")
    return dg.RunRequest(tags={"embed_pipeline/expired": str(found.jobs.deleted)})


@described(
    dg.schedule,
    job=prune_old_runs,
    cron_schedule="45 3 * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
)
def nightly_pruning(
    context: dg.ScheduleEvaluationContext, neo4j: Neo4jResource
) -> dg.RunRequest | dg.SkipReason:
    """Delete old runs of this code location and readings that are exported, at 03:45 UTC."""
    days, instance = neo4j.settings.run_retention_days, context.instance
    repository = repository_of(instance, context.log_key)
    is_due = old_runs(instance, repository, days=days, limit=1)
    before = last_day_kept(datetime.now(UTC), days=days)
    readings = old_readings(instance, neo4j.settings.queue, before=before)
    if not is_due and not readings and not tick_logs_left(instance, repository):
        return dg.SkipReason(f"no run ended, and no reading was taken, more than {days} days ago")
    return dg.RunRequest()


@described(
    dg.schedule,
    job=retry_failed_jobs,
    cron_schedule="5 * * * *",
    default_status=dg.DefaultScheduleStatus.STOPPED,
)
def hourly_retry(neo4j: Neo4jResource) -> dg.RunRequest | dg.SkipReason:
    """Give failed jobs a fresh start every hour, except PERMANENT ones.

    Off by default: a job has already been tried EMBED_JOB_MAX_ATTEMPTS times, and each further
    round costs as much again.
    """
    found = neo4j.with_queue(lambda queue, _: queue.admin.retry_failed(JobFilter(), preview=True))
    if found.count == 0:
        return dg.SkipReason("no failed job is worth another try")
    config = {"preview": False, "all_jobs": True}
    return dg.RunRequest(run_config={"ops": {"retry_jobs": {"config": config}}})
