"""Reads materializations from a Dagster instance, a page at a time."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import dagster as dg

PAGE: Final = 250
"""Records per query. Pages of 1,000 took 40 MB more at the peak and saved no time."""


class Record(NamedTuple):
    """One materialization."""

    at: datetime
    values: dict[str, Any]


def read_records(
    instance: dg.DagsterInstance,
    asset: dg.AssetKey,
    *,
    since: datetime | None,
    until: datetime | None,
    on_progress: Callable[[datetime], None] = lambda _: None,
) -> Iterator[Record]:
    """Yield the materializations of an asset from ``since`` to before ``until``, oldest first."""
    wanted = dg.AssetRecordsFilter(
        asset_key=asset,
        # The filter leaves out the moment itself.
        after_timestamp=since.timestamp() - 1e-6 if since else None,
        before_timestamp=until.timestamp() if until else None,
    )
    cursor: str | None = None
    while True:
        page = instance.fetch_materializations(wanted, limit=PAGE, cursor=cursor, ascending=True)
        for record in page.records:
            event = record.asset_materialization
            if event is not None:
                yield Record(_time(record), _values(event))
        if page.records:
            on_progress(_time(page.records[-1]))
        if not page.has_more:
            return
        cursor = page.cursor


def has_records(
    instance: dg.DagsterInstance, asset: dg.AssetKey, *, since: datetime, until: datetime
) -> bool:
    """Whether there is a materialization in this time."""
    wanted = dg.AssetRecordsFilter(
        asset_key=asset,
        after_timestamp=since.timestamp() - 1e-6,
        before_timestamp=until.timestamp(),
    )
    return bool(instance.fetch_materializations(wanted, limit=1).records)


def _time(record: dg.EventLogRecord) -> datetime:
    return datetime.fromtimestamp(record.timestamp, UTC)


def _values(event: dg.AssetMaterialization) -> dict[str, Any]:
    found = {name: metadata.value for name, metadata in event.metadata.items()}
    return {name: value for name, value in found.items() if value is not None}
