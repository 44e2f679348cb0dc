"""What happens by the clock; each looks first, and starts a run only where there is work."""

from datetime import UTC, datetime

import dagster as dg

from embed_pipeline.defs.job_filters import retry_failed_jobs
from embed_pipeline.defs.jobs import cleanup_expired_jobs
from embed_pipeline.defs.pruning import old_runs, prune_old_runs, tick_logs_left
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.site import Site
from embed_pipeline.defs.ticks import Tick, schedule
from embed_pipeline.domain.job import JobFilter
from embed_pipeline.domain.results import retention_in_words
from embed_pipeline.operations.cleanup import clean_up


def cleanup_schedule(site: Site) -> dg.ScheduleDefinition:
    """Deletes ended jobs at night."""

    @schedule(site, job_name=site.name(cleanup_expired_jobs.name), cron_schedule="15 3 * * *")
    def nightly_cleanup(_tick: Tick, neo4j: Neo4jResource) -> dg.RunRequest | dg.SkipReason:
        """Delete ended jobs whose retention is over, at 03:15 UTC."""
        own = neo4j.settings
        found = neo4j.with_queue(lambda queue, settings: clean_up(queue, settings, dry_run=True))
        if not found.is_needed:
            return dg.SkipReason(f"no job ended more than {retention_in_words(own.retention)} ago")
        return dg.RunRequest(
            tags={"embed_pipeline/expired": str(found.jobs.deleted), **site.tags(own)},
            run_config=site.run_config(cleanup_expired_jobs.op.name, own),
        )

    return nightly_cleanup


def pruning_schedule(site: Site) -> dg.ScheduleDefinition:
    """Deletes old Dagster runs at night."""

    @schedule(site, job_name=site.name(prune_old_runs.name), cron_schedule="45 3 * * *")
    def nightly_pruning(tick: Tick, neo4j: Neo4jResource) -> dg.RunRequest | dg.SkipReason:
        """Delete old runs of this code location and readings that are exported, at 03:45 UTC."""
        from embed_pipeline.history.forgetting import last_day_kept, old_readings

        own, instance = neo4j.settings, tick.instance
        days = own.run_retention_days
        place, prefix = tick.repository, site.name("")
        is_due = old_runs(instance, place, days=days, limit=1, prefix=prefix)
        before = last_day_kept(datetime.now(UTC), days=days)
        readings = old_readings(instance, own.queue, before=before)
        if not is_due and not readings and not tick_logs_left(instance, place, prefix=prefix):
            return dg.SkipReason(
                f"no run ended, and no reading was taken, more than {days} days ago"
            )
        return dg.RunRequest(
            tags=site.tags(own), run_config=site.run_config(prune_old_runs.op.name, own)
        )

    return nightly_pruning


def retry_schedule(site: Site) -> dg.ScheduleDefinition:
    """Retries failed jobs every hour, if turned on."""

    @schedule(
        site,
        job_name=site.name(retry_failed_jobs.name),
        cron_schedule="5 * * * *",
        default_status=dg.DefaultScheduleStatus.STOPPED,
    )
    def hourly_retry(_tick: Tick, neo4j: Neo4jResource) -> dg.RunRequest | dg.SkipReason:
        """Give failed jobs a fresh start every hour, except PERMANENT ones.

        Off by default: a job has already been tried EMBED_JOB_MAX_ATTEMPTS times, and each further
        round costs as much again.
        """
        own = neo4j.settings
        found = neo4j.with_queue(
            lambda queue, _: queue.admin.retry_failed(JobFilter(), preview=True)
        )
        if found.count == 0:
            return dg.SkipReason("no failed job is worth another try")
        config = {"preview": False, "all_jobs": True}
        return dg.RunRequest(
            tags=site.tags(own),
            run_config=site.run_config(retry_failed_jobs.op.name, own, config),
        )

    return hourly_retry
