"""A history of any length, written where Dagster keeps it.

Through its API a reading takes 33 ms, so 90 days would take more than an hour. Here one reading is
reported through the API, and the row that it left is copied with other times and values.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pandas as pd

from embed_pipeline.domain.coverage import CoverageReport
from embed_pipeline.domain.figures import coverage_figures, queue_figures
from tests.unit.test_domain_figures import BUSY, PAID

ASSET = "embed_queue_metrics"
FIRST = datetime(2026, 8, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
KINDS = {int: "Int", float: "Float"}


def figures() -> dict[str, int | float]:
    """A reading with every figure there is."""
    return {**queue_figures(BUSY), **coverage_figures(CoverageReport(PAID))}


def readings(count: int, *, first: datetime = FIRST, every: timedelta = MINUTE) -> pd.DataFrame:
    """One row per reading, each with values of its own."""
    number = np.arange(count)
    moving = {
        "pending": number % 977,
        "completed_total": number * 3,
        "oldest_pending_seconds": (number % 311) * 0.125,
        "coverage_percent": 100 - (number % 400) / 8,
    }
    index = pd.date_range(first, periods=count, freq=every, name="at", unit="us")
    return pd.DataFrame({**figures(), **moving}, index=index)


def by_day(frame: pd.DataFrame) -> Iterator[tuple[date, pd.DataFrame]]:
    """The rows of each day."""
    for day in sorted({at.date() for at in frame.index}):
        yield day, frame.loc[str(day) : str(day)]


def make_home(home: Path) -> Path:
    """A Dagster home with a storage that has seen one reading, long ago."""
    home.mkdir(parents=True)
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization(ASSET, metadata={"x": 1}))
    return home


def insert(home: Path, frame: pd.DataFrame) -> None:
    """Put readings into the event log; the one that ``make_home`` left is replaced."""
    with closing(sqlite3.connect(index_file(home))) as database, database:
        [columns] = database.execute(
            "SELECT run_id, event, dagster_event_type, asset_key FROM event_logs LIMIT 1"
        ).fetchall()
        run_id, event, kind, asset = columns
        database.execute('DELETE FROM event_logs WHERE event LIKE \'%"label": "x"%\'')
        database.executemany(
            "INSERT INTO event_logs (run_id, event, dagster_event_type, timestamp, asset_key) "
            "VALUES (?, ?, ?, ?, ?)",
            (
                (run_id, text, kind, at.strftime("%Y-%m-%d %H:%M:%S.%f"), asset)
                for at, text in _events(json.loads(event), frame)
            ),
        )


def delete(home: Path, day: date) -> int:
    """Delete what the event log has of a day, and say how many rows that were."""
    with closing(sqlite3.connect(index_file(home))) as database, database:
        return database.execute(
            "DELETE FROM event_logs WHERE timestamp >= ? AND timestamp < ?",
            (f"{day} 00:00:00", f"{day + timedelta(days=1)} 00:00:00"),
        ).rowcount


def index_file(home: Path) -> Path:
    """Where SQLite has the events of all assets."""
    return home / "history" / "runs" / "index.db"


def _events(template: dict[str, Any], frame: pd.DataFrame) -> Iterator[tuple[datetime, str]]:
    data = template["dagster_event"]["event_specific_data"]["materialization"]
    for at, values in zip(frame.index, frame.to_dict("records"), strict=True):
        template["timestamp"] = at.timestamp()
        data["metadata_entries"] = [_entry(name, value) for name, value in values.items()]
        yield at, json.dumps(template)


def _entry(name: Any, value: Any) -> Mapping[str, Any]:
    kind = KINDS[type(value)]
    return {
        "__class__": "EventMetadataEntry",
        "description": None,
        "entry_data": {"__class__": f"{kind}MetadataEntryData", "value": value},
        "label": name,
    }
