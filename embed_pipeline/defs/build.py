"""Everything Dagster can see, listed by hand and made for the settings that are given."""

from collections.abc import Mapping, Sequence

import dagster as dg

from embed_pipeline.defs.assets import drains_asset, operator_actions_asset, queue_metrics_asset
from embed_pipeline.defs.batches import batches_sensor, collect_batches
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
from embed_pipeline.defs.explaining import explain_entity
from embed_pipeline.defs.graph import graph_assets, upstream_sensor
from embed_pipeline.defs.history import history_asset, history_schedule
from embed_pipeline.defs.job_filters import cancel_jobs, restore_cancelled_jobs, retry_failed_jobs
from embed_pipeline.defs.jobs import (
    cleanup_expired_jobs,
    initialise_schema,
    recover_stale_leases,
    release_leases_of_run,
)
from embed_pipeline.defs.limits import clear_limits
from embed_pipeline.defs.plan import plan_asset
from embed_pipeline.defs.pruning import prune_old_runs
from embed_pipeline.defs.quality import quality_asset, quality_schedule
from embed_pipeline.defs.reconciling import reconcile_embeddings
from embed_pipeline.defs.recovery import recovery_sensor
from embed_pipeline.defs.resources import NothingHandedOn, resources
from embed_pipeline.defs.schedules import cleanup_schedule, pruning_schedule, retry_schedule
from embed_pipeline.defs.sensors import backlog_sensor
from embed_pipeline.defs.site import Site
from embed_pipeline.defs.switch import pause_queue, resume_queue
from embed_pipeline.defs.upkeep import metrics_sensor, reconcile_sensor
from embed_pipeline.settings import Settings


def build_defs(
    *embeddings: Settings, upstream: Mapping[str, Sequence[dg.AssetKey]] | None = None
) -> dg.Definitions:
    """Make the definitions of a code location that keeps these embeddings.

    They can be merged with those of a project: ``dg.Definitions.merge(own, build_defs(settings))``.
    Nothing is read from the environment. What a second queue would repeat carries its name.
    ``upstream`` names the assets of the project that write the nodes of an embedding: lineage goes
    through, and when they are materialized, the embedding follows.
    """
    site = Site(embeddings, upstream or {})
    defs = _drains(site)
    if site.first.code_server == "all":
        defs = dg.Definitions.merge(defs, _everything_else(site))
    return defs


def build_location(*embeddings: Settings) -> dg.Definitions:
    """The same as a code location of its own, which leaves nothing to Dagster's defaults.

    Those would let a run config name modules to import, and a folder for outputs.
    """
    own = dg.Definitions(
        executor=dg.in_process_executor, resources={"io_manager": NothingHandedOn()}
    )
    return dg.Definitions.merge(own, build_defs(*embeddings))


def _drains(site: Site) -> dg.Definitions:
    """What every machine that runs drains needs."""
    return dg.Definitions(
        # Pruning is here because the logs of a run are where it ran.
        jobs=[drain_embed_queue.of(site), prune_old_runs.of(site)],
        schedules=[pruning_schedule(site)],
        sensors=[backlog_sensor(site)],
        resources=resources(site),
    )


def _everything_else(site: Site) -> dg.Definitions:
    jobs = [
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
        collect_batches,
        release_leases_of_run,
        explain_entity,
        cutover_start,
        cutover_status,
        cutover_go,
        cutover_rollback,
        cutover_finish,
    ]
    return dg.Definitions(
        assets=[asset for settings in site.embeddings for asset in _assets(site, settings)],
        asset_checks=[
            checks
            for settings in site.embeddings
            for checks in (health_checks(site, settings), cutover_checks(site, settings))
        ],
        jobs=[job.of(site) for job in jobs],
        schedules=[
            cleanup_schedule(site),
            history_schedule(site),
            quality_schedule(site),
            retry_schedule(site),
        ],
        sensors=[
            recovery_sensor(site),
            batches_sensor(site),
            upstream_sensor(site),
            metrics_sensor(site),
            reconcile_sensor(site),
        ],
    )


def _assets(site: Site, settings: Settings) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    queue = settings.queue
    return [
        *graph_assets(site, settings),
        drains_asset(queue),
        queue_metrics_asset(site, settings),
        operator_actions_asset(site, settings),
        plan_asset(site, settings),
        quality_asset(site, settings),
        history_asset(site, settings),
        cutover_asset(queue),
    ]
