"""Lets readings leave Dagster's event log once their day is exported and compared."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import dagster as dg
import pandas as pd

from embed_pipeline.history.archive import Archive
from embed_pipeline.history.days import DAY, start_of
from embed_pipeline.history.event_rows import count_readings, delete_evaluations, delete_readings
from embed_pipeline.history.export import export_day
from embed_pipeline.history.frames import frame_of
from embed_pipeline.history.keys import asset_key
from embed_pipeline.history.tables import TABLES, rows

MOST_DAYS: Final = 31
"""Days per run: a deployment that has never forgotten anything catches up in some nights."""
CHECKED: Final = ("embed_queue_metrics", "entity_embeddings", "entity_vector_index")
"""The assets whose checks are reported without a run."""


@dataclass(slots=True)
class Forgotten:
    """What was deleted from the event log."""

    readings: int = 0
    evaluations: int = 0
    days: int = 0
    differing: list[str] = field(default_factory=list)
    """Days that stay, because their files do not say the same."""


def last_day_kept(now: datetime, *, days: int) -> datetime:
    """The start of the first day that is not older than so many days."""
    return start_of((now - timedelta(days=days)).date())


def old_readings(instance: dg.DagsterInstance, queue: str, *, before: datetime) -> int:
    """How many readings could leave the event log; the newest of each asset never does."""
    return sum(count_readings(instance, asset, until=before) for asset in _assets(queue))


def forget(
    instance: dg.DagsterInstance, archive: Archive, queue: str, *, before: datetime
) -> Forgotten:
    """Delete the days before ``before`` from the event log whose exported files agree with it.

    A day without a file is exported first. What differs stays, and is said.
    """
    done = Forgotten()
    for day in _old_days(instance, queue, before):
        if done.days + len(done.differing) >= MOST_DAYS:
            break
        export_day(instance, archive, day, queue=queue)
        if _is_exported(instance, archive, day, queue):
            done.days += 1
            first = start_of(day)
            for asset in _assets(queue):
                done.readings += delete_readings(instance, asset, since=first, until=first + DAY)
        else:
            done.differing.append(day.isoformat())
    checked = [asset_key(name, queue) for name in CHECKED]
    done.evaluations = delete_evaluations(instance, checked, until=before)
    return done


def _assets(queue: str) -> list[dg.AssetKey]:
    return [asset_key(name, queue) for name in sorted({table.asset for table in TABLES})]


def _old_days(instance: dg.DagsterInstance, queue: str, before: datetime) -> Iterator[date]:
    """The days before ``before`` with rows in the event log, in order."""
    since: datetime | None = None
    while found := [
        at for asset in _assets(queue) if (at := _first_after(instance, asset, since)) is not None
    ]:
        day = min(found).date()
        if start_of(day) >= before:
            return
        yield day
        since = start_of(day) + DAY


def _first_after(
    instance: dg.DagsterInstance, asset: dg.AssetKey, since: datetime | None
) -> datetime | None:
    wanted = dg.AssetRecordsFilter(
        asset_key=asset, after_timestamp=since.timestamp() - 1e-6 if since else None
    )
    found = instance.fetch_materializations(wanted, limit=1, ascending=True).records
    return datetime.fromtimestamp(found[0].timestamp, UTC) if found else None


def _is_exported(instance: dg.DagsterInstance, archive: Archive, day: date, queue: str) -> bool:
    """Whether the files have every row of the event log, with the same figures."""
    first = start_of(day)
    for table in TABLES:
        logged = _said(frame_of(rows(instance, table, queue, since=first, until=first + DAY)))
        if logged and day not in archive.days(table.name):
            return False
        if logged and logged - _said(archive.read(table.name, day)):
            return False
    return True


def _said(frame: pd.DataFrame) -> Counter[tuple[Any, ...]]:
    """The rows without their empty columns."""
    frame = frame.sort_index(axis="columns")
    names = list(frame.columns)
    return Counter(
        (at, *((n, v) for n, v in zip(names, values, strict=True) if not pd.isna(v)))
        for at, *values in frame.itertuples(name=None)
    )
