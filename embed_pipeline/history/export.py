"""Writes a closed day into the archive."""

from datetime import date

import dagster as dg
import pandas as pd

from embed_pipeline.domain.queue_name import DEFAULT_QUEUE
from embed_pipeline.history.archive import Archive
from embed_pipeline.history.days import DAY, start_of
from embed_pipeline.history.frames import frame_of, joined
from embed_pipeline.history.tables import TABLES, Table, rows


def export_day(
    instance: dg.DagsterInstance, archive: Archive, day: date, *, queue: str = DEFAULT_QUEUE
) -> dict[str, int]:
    """Write every table of a day, and say how many rows each has.

    What is in a file stays, also when its events are gone; a file to which nothing is added is
    left as it is. A day on which nothing happened at all leaves no file: it may be the wrong
    instance.
    """
    old = {table: _read(archive, table, day) for table in TABLES}
    new = {table: _missing(instance, table, queue, day, old[table]) for table in TABLES}
    has_happened = any(len(new[table]) or old[table] is not None for table in TABLES)
    counts = {}
    for table in TABLES:
        before, added = old[table], new[table]
        if has_happened and (before is None or len(added)):
            archive.write(table.name, day, joined([*([] if before is None else [before]), added]))
        counts[table.name] = len(added) + (0 if before is None else len(before))
    return counts


def _read(archive: Archive, table: Table, day: date) -> pd.DataFrame | None:
    return archive.read(table.name, day) if day in archive.days(table.name) else None


def _missing(
    instance: dg.DagsterInstance, table: Table, queue: str, day: date, known: pd.DataFrame | None
) -> pd.DataFrame:
    """The rows of a day that are in the event log and not in the file."""
    first = start_of(day)
    found = frame_of(rows(instance, table, queue, since=first, until=first + DAY))
    return found if known is None else found[~found.index.isin(known.index)]
