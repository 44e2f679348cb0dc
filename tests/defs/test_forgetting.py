"""M82: readings leave Dagster's event log once their day is exported and compared."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pandas as pd
import pytest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord
from dagster._core.test_utils import freeze_time

from embed_pipeline import history
from embed_pipeline.domain.queue_name import DEFAULT_QUEUE
from embed_pipeline.history.archive import Archive
from embed_pipeline.history.event_rows import PAGE
from embed_pipeline.history.forgetting import forget, last_day_kept, old_readings
from tests.support.postgres import running_postgres

METRICS = dg.AssetKey("embed_queue_metrics")
EMBEDDINGS = dg.AssetKey("entity_embeddings")
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def home(folder: Path, storage: str = "") -> Path:
    folder.mkdir()
    (folder / "dagster.yaml").write_text(f"telemetry:\n  enabled: false\n{storage}")
    return folder


@pytest.fixture(params=["sqlite", "postgres"])
def instance(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    if request.param == "sqlite":
        with dg.DagsterInstance.from_config(str(home(tmp_path / "dagster"))) as instance:
            yield instance
        return
    with running_postgres() as address:
        url = address.replace("postgresql://", "postgresql+psycopg2://")
        storage = f"storage:\n  postgres:\n    postgres_url: {url}\n"
        with dg.DagsterInstance.from_config(str(home(tmp_path / "dagster", storage))) as instance:
            yield instance


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive.at(str(tmp_path / "history"))


def report(
    instance: dg.DagsterInstance,
    days_ago: float,
    *events: dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation,
) -> None:
    with freeze_time(NOW - days_ago * DAY):
        for event in events:
            instance.report_runless_asset_event(event)


def reading(pending: int, asset: dg.AssetKey = METRICS) -> dg.AssetMaterialization:
    figures = {"pending": pending, "oldest_pending_seconds": pending / 3}
    return dg.AssetMaterialization(asset, metadata=figures)


def drained(run: str) -> dg.AssetMaterialization:
    metadata = {"drain_run_id": run, "drain_config": {"max_jobs": None, "max_minutes": 5}}
    return dg.AssetMaterialization(EMBEDDINGS, metadata=metadata)


def looked(name: str, *, passed: bool) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(METRICS, name, passed=passed, metadata={})


def logged(instance: dg.DagsterInstance, asset: dg.AssetKey = METRICS) -> list[int | float]:
    """How many days ago the readings were taken that the event log has."""
    found = instance.fetch_materializations(asset, limit=1_000, ascending=True).records
    return [round((NOW.timestamp() - record.timestamp) / 86_400, 2) for record in found]


def forget_now(instance: dg.DagsterInstance, archive: Archive) -> tuple[int, list]:
    before = last_day_kept(NOW, days=14)
    possible = old_readings(instance, DEFAULT_QUEUE, before=before)
    done = forget(instance, archive, DEFAULT_QUEUE, before=before)
    assert done.differing or possible == done.readings
    return done.readings, done.differing


def test_m82_old_readings_leave_the_log_and_the_history_says_the_same(
    instance: dg.DagsterInstance, archive: Archive
) -> None:
    other = dg.AssetKey(["acme", "embed_queue_metrics"])
    for days_ago in (40, 15.1, 15, 14, 1):
        report(instance, days_ago, reading(int(days_ago)), drained(f"run-{days_ago}"))
        report(instance, days_ago, dg.AssetObservation(METRICS), reading(7, other))
    tables = (history.queue_metrics, history.drains)
    address = str(archive.root)
    before = [table(instance=instance, archive=address) for table in tables]

    deleted, differing = forget_now(instance, archive)
    again = forget_now(instance, archive)

    assert (deleted, differing) == (9, [])
    assert again == (0, [])
    assert logged(instance) == logged(instance, EMBEDDINGS) == [14, 1]
    assert len(instance.fetch_observations(METRICS, limit=10).records) == 2
    assert logged(instance, other) == [40, 15.1, 15, 14, 1]
    after = [table(instance=instance, archive=address) for table in tables]
    for one, two in zip(before, after, strict=True):
        pd.testing.assert_frame_equal(one, two, check_dtype=False, check_like=True)


@pytest.mark.parametrize("instance", ["sqlite"], indirect=True)
def test_m82_nothing_of_a_forgotten_day_is_left_in_any_file(
    instance: dg.DagsterInstance, archive: Archive
) -> None:
    count = PAGE + 3
    for number in range(count):
        report(instance, 20 + number / 10_000, reading(number))
    report(instance, 0, reading(0))

    deleted, _ = forget_now(instance, archive)

    assert deleted == count
    folder = Path(instance.root_directory) / "history" / "runs"
    for name in ("index.db", ".db"):
        with closing(sqlite3.connect(folder / name)) as database:
            assert database.execute("SELECT count(*) FROM event_logs").fetchone() == (1,)


@pytest.mark.parametrize("instance", ["sqlite"], indirect=True)
def test_m82_a_day_whose_file_differs_stays_until_it_is_exported_again(
    instance: dg.DagsterInstance, archive: Archive
) -> None:
    for days_ago in (20, 16):
        report(instance, days_ago, reading(1))
    report(instance, 0, reading(2))
    day = (NOW - 20 * DAY).date()
    first = NOW - 20 * DAY
    index = pd.DatetimeIndex([first], name="at").as_unit("us")
    archive.write("queue_metrics", day, pd.DataFrame({"pending": [2]}, index=index))

    found = forget_now(instance, archive)
    kept = logged(instance)
    (archive.root / "queue_metrics" / f"{first:%Y-%m-%d}.parquet").unlink()
    mended = forget_now(instance, archive)

    assert found == (1, [day.isoformat()])
    assert kept == [20, 0]
    assert mended == (1, [])
    assert logged(instance) == [0]


@pytest.mark.parametrize("instance", ["sqlite"], indirect=True)
def test_m82_the_newest_reading_stays_however_old_it_is(
    instance: dg.DagsterInstance, archive: Archive
) -> None:
    report(instance, 400, reading(1))
    report(instance, 399, reading(2), dg.AssetObservation(METRICS))

    assert forget_now(instance, archive) == (1, [])
    assert logged(instance) == [399]
    newest = instance.get_latest_materialization_event(METRICS)
    assert newest is not None
    assert newest.asset_materialization is not None
    assert newest.asset_materialization.metadata["pending"].value == 2


def test_m82_results_of_checks_leave_too_but_the_newest_of_each(
    instance: dg.DagsterInstance, archive: Archive
) -> None:
    report(instance, 30, looked("a", passed=True), looked("b", passed=False))
    report(instance, 20, looked("a", passed=False))
    report(instance, 1, looked("a", passed=True))

    forget_now(instance, archive)

    def executions(name: str) -> list[AssetCheckExecutionRecord]:
        key = dg.AssetCheckKey(METRICS, name)
        storage = instance.event_log_storage
        return list(storage.get_asset_check_execution_history(key, limit=10))

    assert [record.status.value for record in executions("a")] == ["SUCCEEDED"]
    assert [record.status.value for record in executions("b")] == ["FAILED"]
    wanted = dg.EventRecordsFilter(dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    assert len(instance.event_log_storage.get_event_records(wanted, limit=10)) == 2
