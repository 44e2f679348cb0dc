"""Keeps the history of metrics beyond Dagster's event log: closed days as Parquet."""

from datetime import date
from typing import Final

import dagster as dg

from embed_pipeline.defs.assets import METRICS, QUEUE_GROUP
from embed_pipeline.defs.border import asset
from embed_pipeline.defs.draining import DRAINS
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import EMBEDDINGS
from embed_pipeline.defs.site import Site
from embed_pipeline.defs.ticks import Tick, assets_of, schedule
from embed_pipeline.history.days import DAY, start_of
from embed_pipeline.history.keys import asset_key
from embed_pipeline.history.records import has_records
from embed_pipeline.settings import Settings

HISTORY: Final = "queue_metrics_history"
LOOK_BACK: Final = 30
"""Days that are exported late if the deployment stood still."""


def history_asset(site: Site, settings: Settings) -> dg.AssetsDefinition:
    """The exported days of a queue."""
    queue = settings.queue

    @asset(
        site,
        settings,
        HISTORY,
        partitions_def=dg.DailyPartitionsDefinition(
            start_date=settings.history_from.isoformat(), timezone="UTC"
        ),
        deps=[asset_key(name, queue) for name in (METRICS, EMBEDDINGS, DRAINS)],
        group_name=QUEUE_GROUP,
        kinds={"parquet"},
        # A range of days is one run, also from the command line, where no daemon is at hand.
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def queue_metrics_history(context: dg.AssetExecutionContext, neo4j: Neo4jResource) -> None:
        """The readings, drains and coverage of a closed day, as Parquet files: EMBED_HISTORY_PATH.

        The schedule daily_history writes each day once it is over. Materializing a day again gives
        the same files; what is in a file stays, also when the events it came from are gone. A range
        of days is exported by one run.
        """
        from embed_pipeline.history.archive import Archive
        from embed_pipeline.history.export import export_day

        address = neo4j.settings.history_path
        for key in context.partition_keys:
            day = date.fromisoformat(key)
            counts = export_day(context.instance, Archive.at(address), day, queue=queue)
            rows = {f"{table}_rows": count for table, count in counts.items()}
            context.add_asset_metadata({**rows, "folder": address}, partition_key=key)

    return queue_metrics_history


def history_schedule(site: Site) -> dg.ScheduleDefinition:
    """Exports each day of a queue once it is over."""

    @schedule(site, target=assets_of(site, HISTORY), cron_schedule="20 0 * * *")
    def daily_history(tick: Tick, neo4j: Neo4jResource) -> list[dg.RunRequest] | dg.SkipReason:
        """Export each of the last 30 days that has readings and no file yet, at 00:20 UTC."""
        from embed_pipeline.history import tables
        from embed_pipeline.history.archive import Archive

        queue, today, first = neo4j.settings.queue, tick.day, neo4j.settings.history_from
        done = set(Archive.at(neo4j.settings.history_path).days(tables.METRICS.name))
        days = [day for back in range(LOOK_BACK, 0, -1) if (day := today - DAY * back) >= first]
        missing = [day for day in days if day not in done and _has_rows(tick.instance, queue, day)]
        if not missing:
            return dg.SkipReason("every closed day with readings is exported")
        key, tags = asset_key(HISTORY, queue), site.tags(neo4j.settings)
        return [
            dg.RunRequest(partition_key=day.isoformat(), asset_selection=[key], tags=tags)
            for day in missing
        ]

    return daily_history


def _has_rows(instance: dg.DagsterInstance, queue: str, day: date) -> bool:
    from embed_pipeline.history import tables

    first = start_of(day)
    assets = {asset_key(table.asset, queue) for table in tables.TABLES}
    return any(has_records(instance, asset, since=first, until=first + DAY) for asset in assets)
