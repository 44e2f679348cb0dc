"""Keeps the history of metrics beyond Dagster's event log: closed days as Parquet."""

from datetime import UTC, date
from typing import Final

import dagster as dg

from embed_pipeline.defs.assets import QUEUE_GROUP
from embed_pipeline.defs.describing import described
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.domain.errors import HistoryError
from embed_pipeline.history.archive import Archive
from embed_pipeline.history.days import DAY, start_of
from embed_pipeline.history.export import export_day
from embed_pipeline.history.records import has_records
from embed_pipeline.history.tables import METRICS, TABLES

FIRST_DAY: Final = "2026-01-01"
LOOK_BACK: Final = 30
"""Days that are exported late if the deployment stood still."""


@dg.asset(
    partitions_def=dg.DailyPartitionsDefinition(start_date=FIRST_DAY, timezone="UTC"),
    deps=["embed_queue_metrics", "entity_embeddings"],
    group_name=QUEUE_GROUP,
    kinds={"parquet"},
)
def queue_metrics_history(
    context: dg.AssetExecutionContext, neo4j: Neo4jResource
) -> dg.MaterializeResult:
    """The readings, drains and coverage of a closed day, as Parquet files in EMBED_HISTORY_PATH.

    The schedule daily_history writes each day once it is over. Materializing a day again gives the
    same files; what is in a file stays, also when the events it came from are gone.
    """
    day = date.fromisoformat(context.partition_key)
    address = neo4j.settings.history_path
    try:
        counts = export_day(context.instance, Archive.at(address), day)
    except HistoryError as error:
        raise dg.Failure(str(error)) from None
    rows = {f"{table}_rows": count for table, count in counts.items()}
    return dg.MaterializeResult(metadata={**rows, "folder": address})


@described(
    dg.schedule,
    target=queue_metrics_history,
    cron_schedule="20 0 * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
)
def daily_history(
    context: dg.ScheduleEvaluationContext, neo4j: Neo4jResource
) -> list[dg.RunRequest] | dg.SkipReason:
    """Export each of the last 30 days that has readings and no file yet, at 00:20 UTC."""
    today = (context.scheduled_execution_time).astimezone(UTC).date()
    done = set(Archive.at(neo4j.settings.history_path).days(METRICS.name))
    days = [today - DAY * back for back in range(LOOK_BACK, 0, -1)]
    missing = [day for day in days if day not in done and _has_rows(context.instance, day)]
    if not missing:
        return dg.SkipReason("every closed day with readings is exported")
    return [dg.RunRequest(partition_key=day.isoformat()) for day in missing]


def _has_rows(instance: dg.DagsterInstance, day: date) -> bool:
    first = start_of(day)
    assets = {table.asset for table in TABLES}
    return any(has_records(instance, asset, since=first, until=first + DAY) for asset in assets)
