"""The asset that keeps closed days, and the schedule that does not forget one."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.test_utils import freeze_time

from embed_pipeline import history
from embed_pipeline.defs.build import build_location
from embed_pipeline.defs.history import LOOK_BACK, history_asset, history_schedule
from embed_pipeline.defs.resources import resources
from embed_pipeline.defs.site import Site
from embed_pipeline.history.archive import Archive
from embed_pipeline.settings import load_settings
from tests.support.generated_history import insert, make_home, readings
from tests.support.project import BIN, ROOT

TODAY = datetime(2026, 11, 16, tzinfo=UTC)
DAY = timedelta(days=1)
YESTERDAY = TODAY - DAY


@pytest.fixture(scope="module")
def fresh_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = make_home(tmp_path_factory.mktemp("deployment") / "dagster")
    insert(home, readings(0))
    return home


@pytest.fixture
def instance(fresh_home: Path, tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """With files: a schedule opens its instance anew."""
    home = shutil.copytree(fresh_home, tmp_path / "dagster")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield instance


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    monkeypatch.setenv("EMBED_HISTORY_PATH", str(tmp_path / "history"))
    # The .env of a new checkout says today.
    monkeypatch.setenv("EMBED_HISTORY_FROM", "2026-01-01")
    return Archive.at(str(tmp_path / "history"))


def read_at(instance: dg.DagsterInstance, at: datetime, **figures: int) -> None:
    with freeze_time(at):
        instance.report_runless_asset_event(
            dg.AssetMaterialization("embed_queue_metrics", metadata=figures)
        )


def materialize(instance: dg.DagsterInstance, day: datetime) -> dg.ExecuteInProcessResult:
    site = Site((load_settings(),))
    with freeze_time(TODAY + DAY / 2):
        return dg.materialize(
            [history_asset(site, site.first)],
            instance=instance,
            partition_key=f"{day:%Y-%m-%d}",
            resources=resources(site),
            raise_on_error=False,
        )


def reason(result: dg.ExecuteInProcessResult) -> str:
    """What the operator reads on the page of the failed run."""
    [failure] = [event for event in result.all_events if event.is_step_failure]
    return str(failure.step_failure_data.error)


def tick(instance: dg.DagsterInstance, at: datetime = TODAY) -> list[str] | str | None:
    """The days that the schedule asks for, or why it asks for none."""
    site = Site((load_settings(),))
    with dg.build_schedule_context(
        instance=instance,
        scheduled_execution_time=at + timedelta(minutes=20),
        resources=resources(site),
        repository_def=build_location(site.first).get_repository_def(),
    ) as context:
        found = history_schedule(site).evaluate_tick(context)
    if not found.run_requests:
        return found.skip_message
    return [str(request.partition_key) for request in found.run_requests]


def test_a_closed_day_is_written_and_read_again(
    instance: dg.DagsterInstance, archive: Archive
) -> None:
    read_at(instance, YESTERDAY, pending=1)
    read_at(instance, TODAY, pending=2)

    result = materialize(instance, YESTERDAY)
    instance.wipe_assets([dg.AssetKey("embed_queue_metrics")])

    assert result.success
    [event] = result.asset_materializations_for_node("queue_metrics_history")
    assert event.metadata["queue_metrics_rows"].value == 1
    assert history.queue_metrics(instance=instance)["pending"].tolist() == [1]


def test_a_range_of_days_is_exported_by_one_run(
    tmp_path: Path, instance: dg.DagsterInstance, archive: Archive
) -> None:
    now = datetime.now(UTC)
    days = [f"{now - back * DAY:%Y-%m-%d}" for back in (3, 2, 1)]
    for back in (3, 2, 1):
        read_at(instance, now - back * DAY, pending=back)

    launched = subprocess.run(
        [
            *(BIN / "dg", "launch", "--assets", "queue_metrics_history"),
            *("--partition-range", f"{days[0]}...{days[-1]}"),
        ],
        cwd=ROOT,
        env={**os.environ, "DAGSTER_HOME": str(tmp_path / "dagster")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert launched.returncode == 0, launched.stderr
    assert [str(day) for day in archive.days("queue_metrics")] == days
    assert len(instance.get_runs()) == 1
    found = instance.fetch_materializations(dg.AssetKey("queue_metrics_history"), limit=10)
    rows = {
        record.partition_key: record.asset_materialization.metadata["queue_metrics_rows"].value
        for record in found.records
        if record.asset_materialization
    }
    assert rows == dict.fromkeys(days, 1)


def test_a_day_that_is_not_over_is_refused(instance: dg.DagsterInstance, archive: Archive) -> None:
    read_at(instance, TODAY, pending=1)

    with pytest.raises(dg.DagsterUnknownPartitionError, match="2026-11-16"):
        materialize(instance, TODAY)

    assert archive.days("queue_metrics") == []


def test_a_damaged_file_fails_the_run_with_what_to_do(
    instance: dg.DagsterInstance, archive: Archive
) -> None:
    read_at(instance, YESTERDAY, pending=1)
    materialize(instance, YESTERDAY)
    file = archive.root / "queue_metrics" / "2026-11-15.parquet"
    file.write_bytes(b"damaged")

    result = materialize(instance, YESTERDAY)

    assert "2026-11-15.parquet cannot be read" in reason(result)
    assert file.read_bytes() == b"damaged"


def test_every_closed_day_with_readings_and_no_file_is_asked_for(
    instance: dg.DagsterInstance, archive: Archive
) -> None:
    for days in (LOOK_BACK + 1, LOOK_BACK, 3, 1, 0):
        read_at(instance, TODAY - days * DAY, pending=1)
    materialize(instance, TODAY - 3 * DAY)

    assert tick(instance) == ["2026-10-17", "2026-11-15"]


def test_no_day_before_the_first_one_is_asked_for_or_missing(
    instance: dg.DagsterInstance, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    for days in (2, 1):
        read_at(instance, TODAY - days * DAY, pending=1)

    monkeypatch.setenv("EMBED_HISTORY_FROM", "2026-11-15")

    assert tick(instance) == ["2026-11-15"]
    site = Site((load_settings(),))
    partitions = history_asset(site, site.first).partitions_def
    assert partitions is not None
    with freeze_time(TODAY + DAY / 2):
        assert partitions.get_partition_keys() == ["2026-11-15"]


def test_a_day_is_asked_for_also_when_only_drains_were_reported(
    instance: dg.DagsterInstance, archive: Archive
) -> None:
    with freeze_time(YESTERDAY):
        instance.report_runless_asset_event(
            dg.AssetMaterialization("entity_embeddings", metadata={"drain_run_id": "run-1"})
        )

    assert tick(instance) == ["2026-11-15"]
    materialize(instance, YESTERDAY)
    assert tick(instance) == "every closed day with readings is exported"


def test_nothing_to_export_is_said(instance: dg.DagsterInstance, archive: Archive) -> None:
    read_at(instance, TODAY, pending=1)

    assert tick(instance) == "every closed day with readings is exported"
    assert not archive.root.exists()
