"""Everything Dagster can see, listed by hand.

The settings are checked first: a wrong one stops the code location with the same message that
``embed-pipeline doctor`` prints.
"""

import logging

import dagster as dg

from embed_pipeline.defs.assets import drains_asset, operator_actions_asset, queue_metrics_asset
from embed_pipeline.defs.checks import health_checks
from embed_pipeline.defs.cutover import (
    cutover_asset,
    cutover_checks,
    cutover_finish,
    cutover_go,
    cutover_rollback,
    cutover_start,
    cutover_status,
)
from embed_pipeline.defs.drains import drain_embed_queue
from embed_pipeline.defs.graph import graph_assets, upstream_sensor
from embed_pipeline.defs.history import history_asset, history_schedule
from embed_pipeline.defs.job_filters import cancel_jobs, restore_cancelled_jobs, retry_failed_jobs
from embed_pipeline.defs.jobs import (
    cleanup_expired_jobs,
    initialise_schema,
    reconcile_embeddings,
    recover_stale_leases,
    release_leases_of_run,
)
from embed_pipeline.defs.limits import clear_limits
from embed_pipeline.defs.plan import plan_asset
from embed_pipeline.defs.pruning import prune_old_runs
from embed_pipeline.defs.quality import quality_asset, quality_schedule
from embed_pipeline.defs.recovery import recovery_sensor
from embed_pipeline.defs.resources import resources
from embed_pipeline.defs.schedules import hourly_retry, nightly_cleanup, nightly_pruning
from embed_pipeline.defs.sensors import embed_backlog
from embed_pipeline.defs.switch import pause_queue, resume_queue
from embed_pipeline.defs.upkeep import metrics_sensor, reconcile_sensor
from embed_pipeline.logs import log_to_stderr
from embed_pipeline.settings import load_settings, warnings

log_to_stderr()
settings = load_settings()
for warning in warnings(settings):
    logging.getLogger(__name__).warning(warning)


def _drains() -> dg.Definitions:
    """What every machine has that runs drains."""
    return dg.Definitions(
        # Pruning is here because the logs of a run are where it ran.
        jobs=[drain_embed_queue, prune_old_runs],
        schedules=[nightly_pruning],
        sensors=[embed_backlog],
        resources=resources(),
        # Of what runs assets, too: Dagster's own choice lets a run config name modules to import.
        executor=dg.in_process_executor,
    )


def _everything_else() -> dg.Definitions:
    """What a deployment has once."""
    queue = settings.queue
    metrics_interval = settings.metrics_interval
    history, quality = history_asset(queue), quality_asset(queue)
    return dg.Definitions(
        assets=[
            *graph_assets(settings),
            drains_asset(queue),
            queue_metrics_asset(metrics_interval, queue),
            operator_actions_asset(queue),
            plan_asset(queue),
            quality,
            history,
            cutover_asset(queue),
        ],
        asset_checks=[health_checks(queue), cutover_checks(queue)],
        jobs=[
            recover_stale_leases,
            retry_failed_jobs,
            cleanup_expired_jobs,
            cancel_jobs,
            restore_cancelled_jobs,
            reconcile_embeddings,
            initialise_schema,
            pause_queue,
            resume_queue,
            clear_limits,
            release_leases_of_run,
            cutover_start,
            cutover_status,
            cutover_go,
            cutover_rollback,
            cutover_finish,
        ],
        schedules=[
            nightly_cleanup,
            history_schedule(history, queue),
            quality_schedule(quality),
            hourly_retry,
        ],
        sensors=[
            recovery_sensor(settings.recovery_interval),
            upstream_sensor(queue),
            metrics_sensor(metrics_interval, queue),
            reconcile_sensor(settings.reconcile_interval, queue),
        ],
    )


defs = _drains()
if settings.code_server == "all":
    defs = dg.Definitions.merge(defs, _everything_else())
