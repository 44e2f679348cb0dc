"""The history as analysts read it: exported days and the event log, as one."""

import asyncio
import shutil
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from dagster._core.test_utils import freeze_time

from embed_pipeline import history
from embed_pipeline.defs.draining import keep_report
from embed_pipeline.defs.drains import DrainConfig
from embed_pipeline.defs.metadata import of_coverage
from embed_pipeline.domain.coverage import CoverageReport
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.figures import coverage_figures
from embed_pipeline.domain.queue_name import DEFAULT_QUEUE
from embed_pipeline.history.archive import Archive
from embed_pipeline.history.export import export_day
from embed_pipeline.settings import load_settings
from embed_pipeline.worker.report import DrainReport, Ending
from tests.conftest import TestServer
from tests.support.generated_history import FIRST, delete, insert, make_home, readings
from tests.support.queue_harness import Neo4jUnderTest

TODAY = datetime(2026, 11, 16, tzinfo=UTC)
DAY = timedelta(days=1)
NOON = TODAY + DAY / 2


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def archive() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def fresh_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_home(tmp_path_factory.mktemp("deployment") / "dagster")


@pytest.fixture
def home(fresh_home: Path, tmp_path: Path) -> Path:
    """A Dagster home of the test's own: making one takes seconds, copying it does not."""
    return shutil.copytree(fresh_home, tmp_path / "dagster")


def read_at(instance: dg.DagsterInstance, at: datetime, **figures: Any) -> None:
    with freeze_time(at):
        instance.report_runless_asset_event(
            dg.AssetMaterialization("embed_queue_metrics", metadata=figures)
        )


def scan_at(instance: dg.DagsterInstance, at: datetime, report: CoverageReport) -> None:
    with freeze_time(at):
        instance.report_runless_asset_event(
            dg.AssetMaterialization("entity_embeddings", metadata=of_coverage(report))
        )


def drain_at(instance: dg.DagsterInstance, at: datetime, run_id: str, **report: Any) -> DrainReport:
    """A drain that ended then, told as the op tells it."""
    done = DrainReport(owner=f"{run_id}/host/1", model="text-embedding-3-small", **report)
    with freeze_time(at):
        keep_report(
            instance,
            done,
            run_id=run_id,
            queue=DEFAULT_QUEUE,
            config=DrainConfig(max_jobs=7).model_dump(),
            errors={},
        )
    return done


def export(instance: dg.DagsterInstance, archive: str, *days: datetime) -> None:
    for day in days:
        export_day(instance, Archive.at(archive), day.date())


def files(archive: str) -> dict[str, bytes]:
    found = Archive.at(archive).root.rglob("*.parquet")
    return {str(path): path.read_bytes() for path in found}


class TestJoining:
    def test_exported_days_and_the_event_log_are_one_table(
        self, instance: dg.DagsterInstance, archive: str
    ) -> None:
        for hour in range(0, 72, 6):
            read_at(instance, TODAY + timedelta(hours=hour), pending=hour)
        whole = history.queue_metrics(instance=instance, archive=archive)

        export(instance, archive, TODAY + DAY)

        found = history.queue_metrics(instance=instance, archive=archive)
        assert found["pending"].tolist() == list(range(0, 72, 6))
        pd.testing.assert_frame_equal(found, whole)

    def test_a_reading_at_midnight_belongs_to_the_day_that_begins(
        self, instance: dg.DagsterInstance, archive: str
    ) -> None:
        moment = timedelta(microseconds=1)
        for number, at in enumerate((TODAY - moment, TODAY, TODAY + DAY - moment, TODAY + DAY)):
            read_at(instance, at, pending=number)

        export(instance, archive, TODAY)

        [day] = [Archive.at(archive).read("queue_metrics", TODAY.date())]
        assert day["pending"].tolist() == [1, 2]
        found = history.queue_metrics(instance=instance, archive=archive)
        assert found["pending"].tolist() == [0, 1, 2, 3]

    @pytest.mark.parametrize("is_exported", [False, True], ids=["event log", "file"])
    def test_since_is_in_and_until_is_out(
        self, instance: dg.DagsterInstance, archive: str, is_exported: bool
    ) -> None:
        for hour in range(24):
            read_at(instance, TODAY + timedelta(hours=hour), pending=hour)
        if is_exported:
            export(instance, archive, TODAY)

        found = history.queue_metrics(
            since="2026-11-16T06:00", until="2026-11-16T09:00", instance=instance, archive=archive
        )

        assert found["pending"].tolist() == [6, 7, 8]

    def test_a_day_without_readings_leaves_no_file_and_no_rows(
        self, instance: dg.DagsterInstance, archive: str
    ) -> None:
        read_at(instance, TODAY, pending=1)
        read_at(instance, TODAY + 2 * DAY, pending=2)

        export(instance, archive, TODAY, TODAY + DAY, TODAY + 2 * DAY)

        days = Archive.at(archive).days("queue_metrics")
        assert days == [TODAY.date(), (TODAY + 2 * DAY).date()]
        found = history.queue_metrics(instance=instance, archive=archive, resample="1D")
        assert found["pending"].isna().tolist() == [False, True, False]

    def test_files_of_an_older_version_have_fewer_columns(
        self, instance: dg.DagsterInstance, archive: str
    ) -> None:
        read_at(instance, NOON - DAY, pending=1)
        export(instance, archive, TODAY - DAY)
        read_at(instance, NOON, pending=2, fenced_total=5)

        found = history.queue_metrics(instance=instance, archive=archive)

        assert found["pending"].tolist() == [1, 2]
        assert found["fenced_total"].isna().tolist() == [True, False]

    def test_only_numbers_are_figures(self, instance: dg.DagsterInstance, archive: str) -> None:
        read_at(instance, NOON, pending=1, is_new=True, model="m", nothing=None, age=0.5)
        read_at(instance, NOON + timedelta(hours=1), model="no figure at all")

        found = history.queue_metrics(instance=instance, archive=archive)

        assert found.to_dict("records") == [{"pending": 1, "is_new": 1, "age": 0.5}]
        assert str(found["is_new"].dtype) == "int64"

    def test_more_records_than_a_page_holds(self, home: Path, archive: str) -> None:
        put = readings(2_500)
        insert(home, put)

        found = history.queue_metrics(instance=home, archive=archive)

        pd.testing.assert_frame_equal(found, put, check_freq=False)


class TestOutlivingTheEventLog:
    def test_a_deleted_day_is_still_there(self, home: Path, archive: str) -> None:
        put = readings(3 * 24, every=timedelta(hours=1))
        insert(home, put)
        second = (FIRST + DAY).date()
        with dg.DagsterInstance.from_config(str(home)) as instance:
            counts = export_day(instance, Archive.at(archive), second)
        assert counts == {"queue_metrics": 24, "coverage": 0, "drains": 0}

        assert delete(home, second) == 24

        found = history.queue_metrics(instance=home, archive=archive)
        pd.testing.assert_frame_equal(found, put, check_freq=False)
        assert len(history.queue_metrics(instance=home, archive="memory://nothing")) == 48

    def test_exporting_again_gives_the_same_bytes_also_without_the_events(
        self, home: Path, archive: str
    ) -> None:
        insert(home, readings(24, every=timedelta(hours=1)))
        with dg.DagsterInstance.from_config(str(home)) as instance:
            export(instance, archive, FIRST)
            first = files(archive)
            export(instance, archive, FIRST)
            again = files(archive)
            delete(home, FIRST.date())
            export(instance, archive, FIRST)

        assert len(first) == 3
        assert again == first
        assert files(archive) == first

    def test_two_archives_of_one_day_are_equal(
        self, instance: dg.DagsterInstance, archive: str
    ) -> None:
        read_at(instance, NOON, pending=1)

        export(instance, archive, TODAY)
        export(instance, f"{archive}-2", TODAY)

        assert list(files(archive).values()) == list(files(f"{archive}-2").values())

    def test_what_came_late_is_added_to_what_the_file_has(
        self, instance: dg.DagsterInstance, archive: str
    ) -> None:
        read_at(instance, NOON, pending=1)
        export(instance, archive, TODAY)
        read_at(instance, NOON + timedelta(hours=1), pending=2, fenced_total=3)

        export(instance, archive, TODAY)
        instance.wipe_assets([dg.AssetKey("embed_queue_metrics")])

        found = history.queue_metrics(instance=instance, archive=archive)
        assert found["pending"].tolist() == [1, 2]


class TestDrainsAndCoverage:
    def test_a_drain_is_a_row_with_its_report_and_config(
        self, instance: dg.DagsterInstance, archive: str
    ) -> None:
        report = drain_at(
            instance, NOON, "run-1", completed=5, seconds=2.0, tokens=100, ending=Ending.EMPTY
        )

        frame = history.drains(instance=instance, archive=archive)
        [row] = frame.dropna(axis="columns").to_dict("records")

        assert {"reason", "config_jobs_per_request"} <= set(frame.columns)
        expected = {name: value for name, value in report.as_dict().items() if value is not None}
        config = {
            f"config_{name}": value
            for name, value in DrainConfig(max_jobs=7).model_dump().items()
            if value is not None
        }
        assert row == {**expected, **config, "run_id": "run-1"}

    def test_drains_and_scans_of_one_asset_are_kept_apart(
        self, instance: dg.DagsterInstance, archive: str
    ) -> None:
        report = CoverageReport("m", entities=4)
        drain_at(instance, NOON, "run-1")
        scan_at(instance, NOON + timedelta(minutes=1), report)
        drain_at(instance, NOON + timedelta(minutes=2), "run-2")

        drains = history.drains(instance=instance, archive=archive)
        coverage = history.coverage(instance=instance, archive=archive)

        assert drains["run_id"].tolist() == ["run-1", "run-2"]
        assert coverage.to_dict("records") == [coverage_figures(report)]

    def test_a_figure_that_was_called_otherwise_keeps_its_own_column(
        self, instance: dg.DagsterInstance, archive: str
    ) -> None:
        drain_at(instance, NOON - DAY, "run-1", in_pieces=3)
        export(instance, archive, TODAY - DAY)
        kept, day = Archive.at(archive), (TODAY - DAY).date()
        # As files from before texts went in pieces have it: these were cut.
        former = kept.read("drains", day).rename(columns={"in_pieces": "truncated"})
        kept.write("drains", day, former)
        drain_at(instance, NOON, "run-2", in_pieces=2)
        export(instance, archive, TODAY)

        found = history.drains(instance=instance, archive=archive)

        assert found["run_id"].tolist() == ["run-1", "run-2"]
        assert found["truncated"].dropna().tolist() == [3]
        assert found["in_pieces"].dropna().tolist() == [2]

    def test_they_outlive_the_event_log_too(
        self, instance: dg.DagsterInstance, archive: str
    ) -> None:
        drain_at(instance, NOON, "run-1", reason="no credit", ending=Ending.CRITICAL)
        drain_at(instance, NOON, "run-2")
        scan_at(instance, NOON, CoverageReport("m", entities=4))
        before = [
            read(instance=instance, archive=archive) for read in (history.drains, history.coverage)
        ]

        export(instance, archive, TODAY)
        instance.wipe_assets([dg.AssetKey("entity_embeddings"), dg.AssetKey("embed_drains")])

        for read, rows in zip((history.drains, history.coverage), before, strict=True):
            pd.testing.assert_frame_equal(read(instance=instance, archive=archive), rows)
        assert before[0]["run_id"].tolist() == ["run-1", "run-2"]


async def test_it_can_be_read_inside_a_running_loop(
    instance: dg.DagsterInstance, archive: str
) -> None:
    read_at(instance, NOON, pending=1)
    asyncio.get_running_loop()

    assert len(history.queue_metrics(instance=instance, archive=archive)) == 1


@pytest.fixture
def neo4j_settings(neo4j_server: TestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in neo4j_server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")


@pytest.fixture
def fail(queue: Neo4jUnderTest, neo4j_settings: None) -> Callable[..., Any]:
    """A job that failed for good at the time of the queue's clock."""

    async def fail(uid: str, message: str, category: ErrorCategory) -> None:
        [item] = await queue.leased(uid)
        for _ in range(10):
            await queue.fail(item.lease, message=message, category=category)
            if (await queue.job(uid)).status == "failed":
                return
            queue.clock.advance(timedelta(days=1))
            [item] = (await queue.lease(limit=1)).jobs

    return fail


class TestFailures:
    async def test_failed_jobs_are_grouped_by_category_and_kind_of_error(
        self, queue: Neo4jUnderTest, fail: Callable[..., Any]
    ) -> None:
        times = []
        for uid, message in (("ada", "got 9000"), ("bob", "other"), ("cyd", "got 12")):
            await fail(uid, message, ErrorCategory.PERMANENT)
            times.append((await queue.job(uid)).processed_at)
            queue.clock.advance(timedelta(hours=1))

        found = history.failures()

        assert found["count"].tolist() == [2, 1]
        assert found["fingerprint"].tolist() == ["got <n>", "other"]
        top = found.iloc[0]
        latest = await queue.job("cyd")
        assert (top["category"], top["example_entity"]) == ("PERMANENT", "cyd")
        assert (top["example_job"], top["example_error"]) == (latest.id, "got 12")
        assert (top["first_seen"], top["last_seen"]) == (times[0], times[2])

    async def test_a_category_is_another_row_and_can_be_asked_for(
        self, fail: Callable[..., Any]
    ) -> None:
        await fail("ada", "boom", ErrorCategory.PERMANENT)
        await fail("bob", "boom", ErrorCategory.TRANSIENT)

        assert history.failures()["category"].tolist() == ["PERMANENT", "TRANSIENT"]
        assert history.failures(category="transient")["example_entity"].tolist() == ["bob"]

    async def test_since_and_until_are_about_the_time_of_failing(
        self, queue: Neo4jUnderTest, fail: Callable[..., Any]
    ) -> None:
        await fail("ada", "boom", ErrorCategory.PERMANENT)
        failed = (await queue.job("ada")).processed_at
        assert failed is not None

        assert len(history.failures(since=failed)) == 1
        assert len(history.failures(until=failed)) == 0

    async def test_nothing_failed_gives_no_rows_and_all_columns(
        self, queue: Neo4jUnderTest, neo4j_settings: None
    ) -> None:
        found = history.failures(settings=load_settings())

        assert len(found) == 0
        assert {"category", "count", "first_seen", "example_job"} <= set(found.columns)
        assert str(found["last_seen"].dtype) == "datetime64[us, UTC]"

    def test_an_unknown_category_is_refused_with_those_there_are(self) -> None:
        with pytest.raises(ValueError, match=r"'fatal'; it must be one of TRANSIENT, PERMANENT"):
            history.failures(category="fatal")
