"""The tables an analyst can have, read from the archive and the event log together."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import dagster as dg
import pandas as pd

from embed_pipeline.history.days import gaps, overlaps
from embed_pipeline.history.frames import frame_of, joined, resampled
from embed_pipeline.history.keys import asset_key
from embed_pipeline.history.moments import Moment, to_time
from embed_pipeline.history.progress import Tick, shown_progress
from embed_pipeline.history.records import Record, read_records
from embed_pipeline.history.sources import (
    Instance,
    archive_for,
    has_storage,
    opened_instance,
    own_home,
    queue_for,
)

DRAIN: Final = "drain_"


@dataclass(frozen=True, slots=True)
class Table:
    """Which materializations make the rows of a table, and how."""

    name: str
    asset: str
    row: Callable[[dict[str, Any]], dict[str, Any] | None]
    """The row, or None where the materialization is about something else."""
    former: str | None = None
    """The asset that earlier versions have kept the rows in."""


def _figures(values: dict[str, Any]) -> dict[str, Any] | None:
    figures = {name: value for name, value in values.items() if isinstance(value, (int, float))}
    # A switch is a figure too: its mean is the share of time in which it was on.
    return {name: value + 0 for name, value in figures.items()} or None


def _coverage(values: dict[str, Any]) -> dict[str, Any] | None:
    return _figures(values) if "coverage_percent" in values else None


def _drain(values: dict[str, Any]) -> dict[str, Any] | None:
    if f"{DRAIN}run_id" not in values:
        return None
    row = {name.removeprefix(DRAIN): values[name] for name in values if name.startswith(DRAIN)}
    config = row.pop("config", {})
    return row | {f"config_{name}": value for name, value in config.items() if value is not None}


METRICS: Final = Table("queue_metrics", "embed_queue_metrics", _figures)
COVERAGE: Final = Table("coverage", "entity_embeddings", _coverage)
DRAINS: Final = Table("drains", "embed_drains", _drain, former="entity_embeddings")
TABLES: Final = (METRICS, COVERAGE, DRAINS)
DRAIN_COLUMNS: Final = (
    "run_id",
    "leased",
    "completed",
    "retried",
    "given_back",
    "released",
    "superseded",
    "moved",
    "fenced",
    "lost",
    "recovered",
    "recovery_errors",
    "heartbeats",
    "heartbeats_failed",
    "cache_hits",
    "in_pieces",
    "in_batches",
    "requests",
    "requests_limited",
    "holds_clamped",
    "tokens",
    "seconds",
    "seconds_waiting",
    "seconds_idle",
    "failed_transient",
    "failed_permanent",
    "failed_critical",
    "throughput",
    "cost_usd",
    "ending",
    "reason",
    "owner",
    "model",
    "config_max_minutes",
    "config_max_jobs",
    "config_linger_seconds",
    "config_requests_at_once",
    "config_jobs_per_request",
    "config_jobs_per_lease",
    "config_mode",
    "config_queue",
)
"""The columns that docs/history.md explains."""


def queue_metrics(
    since: Moment = None,
    until: Moment = None,
    resample: str | None = None,
    *,
    queue: str | None = None,
    instance: Instance = None,
    archive: str | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """Every figure of the queue over time: one row per reading, or per ``resample`` ("1h").

    Args:
        since: from then on; ``"7d"`` is seven days ago, None is the beginning.
        until: up to, and without, then.
        resample: a rule of pandas; totals keep their last value, ages their worst, the rest is
            averaged.
        queue: the queue it is about; the one of the settings if None.
        instance: an open Dagster instance or a ``DAGSTER_HOME``; the project's own if None.
        archive: the folder or address of the exported days; ``EMBED_HISTORY_PATH`` if None.
        progress: show a bar on stderr.
    """
    frame = load(
        METRICS,
        since,
        until,
        queue=queue,
        instance=instance,
        archive=archive,
        progress=progress,
    )
    return resampled(frame, resample) if resample else frame


def coverage(
    since: Moment = None,
    until: Moment = None,
    resample: str | None = None,
    *,
    queue: str | None = None,
    instance: Instance = None,
    archive: str | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """How well the entities were covered: one row per scan whose result was news."""
    frame = load(
        COVERAGE,
        since,
        until,
        queue=queue,
        instance=instance,
        archive=archive,
        progress=progress,
    )
    return resampled(frame, resample) if resample else frame


def drains(
    since: Moment = None,
    until: Moment = None,
    *,
    queue: str | None = None,
    instance: Instance = None,
    archive: str | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """One row per drain, at its end, with its report and its config.

    Every column is there, also one that is empty in all rows.
    """
    frame = load(
        DRAINS,
        since,
        until,
        queue=queue,
        instance=instance,
        archive=archive,
        progress=progress,
    )
    missing = [name for name in DRAIN_COLUMNS if name not in frame]
    return frame.reindex(columns=[*frame.columns, *missing])


def load(
    table: Table,
    since: Moment,
    until: Moment,
    *,
    queue: str | None,
    instance: Instance,
    archive: str | None,
    progress: bool,
) -> pd.DataFrame:
    """Join the exported days with the rest of the event log."""
    now = datetime.now(UTC)
    start, end = to_time(since, now=now), to_time(until, now=now)
    queue = queue_for(queue, instance, archive)
    files = archive_for(instance, archive, queue=queue)
    found = files.days(table.name) if files else []
    days = [day for day in found if overlaps(day, start, end)]
    parts = [files.read(table.name, day) for day in days] if files else []
    # Exported days are of use also where Dagster itself is not.
    if instance is not None or not found or has_storage(own_home()):
        with opened_instance(instance) as opened, shown_progress(progress, start, end or now) as at:
            parts += [
                frame_of(rows(opened, table, queue, since=first, until=last, tick=at))
                for first, last in gaps(days, start, end)
            ]
    frame = joined(parts)
    # The first and the last day were read whole.
    if start is not None:
        frame = frame[frame.index >= start]
    return frame if end is None else frame[frame.index < end]


def rows(
    instance: dg.DagsterInstance,
    table: Table,
    queue: str,
    *,
    since: datetime | None,
    until: datetime | None,
    tick: Tick = lambda _: None,
) -> Iterator[Record]:
    """The rows of a table in a time, as the event log has them."""
    for name in (table.former, table.asset):
        asset = asset_key(name, queue) if name else None
        if asset is None:
            continue
        for record in read_records(instance, asset, since=since, until=until, on_progress=tick):
            row = table.row(record.values)
            if row is not None:
                yield Record(record.at, row)
