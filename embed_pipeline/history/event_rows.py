"""Deletes single events from Dagster's event log, for which open-source Dagster has no API.

Its own tables, through its own connections: SQLite keeps an event twice (in the index of all runs
and in the file of events without a run), PostgreSQL once. Only events without a run are touched,
and never the newest materialization of an asset or the newest result of a check: pages show those.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Final

import dagster as dg
from dagster._core.instance import RUNLESS_RUN_ID
from dagster._core.storage.event_log import SqlEventLogStorage
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.sqlalchemy_compat import db_select

READINGS: Final = (
    dg.DagsterEventType.ASSET_MATERIALIZATION.value,
    dg.DagsterEventType.ASSET_OBSERVATION.value,
)
EVALUATION: Final = dg.DagsterEventType.ASSET_CHECK_EVALUATION.value
PAGE: Final = 200
"""Events per transaction: SQLite lets one write at a time, and sensors report meanwhile."""

Connect = Callable[[], AbstractContextManager[Any]]


def sql_storage(instance: dg.DagsterInstance) -> SqlEventLogStorage | None:
    """The event log, if its tables are known: SQLite, PostgreSQL or MySQL."""
    storage = instance.event_log_storage
    return storage if isinstance(storage, SqlEventLogStorage) else None


def count_readings(instance: dg.DagsterInstance, asset: dg.AssetKey, *, until: datetime) -> int:
    """How many readings of an asset could be deleted that were made before ``until``."""
    storage = sql_storage(instance)
    if storage is None:
        return 0
    wanted = _readings(instance, asset, None, until)
    with storage.index_connection() as connection:
        return len(connection.execute(db_select([_EVENTS.id]).where(*wanted)).fetchall())


def delete_readings(
    instance: dg.DagsterInstance, asset: dg.AssetKey, *, since: datetime, until: datetime
) -> int:
    """Delete the readings of an asset from ``since`` to before ``until``; how many there were."""
    storage = sql_storage(instance)
    if storage is None:
        return 0
    wanted = _readings(instance, asset, since, until)
    # The index last: it is what says that a day has something left to delete.
    return max(_delete(connect, wanted) for connect in _connections(storage))


def delete_evaluations(
    instance: dg.DagsterInstance, assets: Sequence[dg.AssetKey], *, until: datetime
) -> int:
    """Delete the results of checks before ``until``, but the newest of each; how many."""
    storage = sql_storage(instance)
    if storage is None:
        return 0
    table, count = AssetCheckExecutionsTable, 0
    while rows := _old_evaluations(storage, assets, until):
        # An evaluation has no asset in the event log, so it is found by its text.
        wanted = (
            _EVENTS.run_id == RUNLESS_RUN_ID,
            _EVENTS.dagster_event_type == EVALUATION,
            _EVENTS.timestamp.in_([row.evaluation_event_timestamp for row in rows]),
            _EVENTS.event.in_([row.evaluation_event for row in rows]),
        )
        for connect in _connections(storage):
            _delete(connect, wanted)
        with storage.index_connection() as connection:
            ids = [row.id for row in rows]
            connection.execute(table.delete().where(table.c.id.in_(ids)))
        count += len(rows)
    return count


_EVENTS: Final = SqlEventLogStorageTable.c


def _readings(
    instance: dg.DagsterInstance, asset: dg.AssetKey, since: datetime | None, until: datetime
) -> tuple[Any, ...]:
    newest = instance.get_latest_materialization_event(asset)
    end = _stored(until)
    if newest is not None:
        end = min(end, _stored(datetime.fromtimestamp(newest.timestamp, UTC)))
    return (
        _EVENTS.run_id == RUNLESS_RUN_ID,
        _EVENTS.asset_key == asset.to_string(),
        _EVENTS.dagster_event_type.in_(READINGS),
        _EVENTS.timestamp < end,
        *([_EVENTS.timestamp >= _stored(since)] if since else []),
    )


def _old_evaluations(
    storage: SqlEventLogStorage, assets: Sequence[dg.AssetKey], until: datetime
) -> list[Any]:
    table = AssetCheckExecutionsTable.c
    of_assets = table.asset_key.in_([asset.to_string() for asset in assets])
    with storage.index_connection() as connection:
        order = db_select([table.id, table.asset_key, table.check_name]).order_by(table.id)
        known = connection.execute(order.where(of_assets)).fetchall()
        newest = {(row.asset_key, row.check_name): row.id for row in known}
        query = db_select([table.id, table.evaluation_event, table.evaluation_event_timestamp])
        wanted = query.where(
            of_assets,
            table.run_id == RUNLESS_RUN_ID,
            table.evaluation_event_timestamp < _stored(until),
            table.id.not_in(list(newest.values())),
        )
        return list(connection.execute(wanted.order_by(table.id).limit(PAGE)).fetchall())


def _connections(storage: SqlEventLogStorage) -> Iterator[Connect]:
    yield lambda: storage.run_connection(RUNLESS_RUN_ID)
    yield storage.index_connection


def _delete(connect: Connect, wanted: Sequence[Any]) -> int:
    events, tags, count = SqlEventLogStorageTable, AssetEventTagsTable, 0
    while True:
        with connect() as connection:
            found = connection.execute(db_select([_EVENTS.id]).where(*wanted).limit(PAGE))
            ids = [row.id for row in found.fetchall()]
            connection.execute(tags.delete().where(tags.c.event_id.in_(ids)))
            connection.execute(events.delete().where(_EVENTS.id.in_(ids)))
        count += len(ids)
        if len(ids) < PAGE:
            return count


def _stored(time: datetime) -> datetime:
    """Format a time as Dagster stores it: UTC, without a zone."""
    return time.astimezone(UTC).replace(tzinfo=None)
