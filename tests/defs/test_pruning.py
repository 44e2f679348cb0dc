"""Old runs are deleted; what they measured stays."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.test_utils import freeze_time

from embed_pipeline.defs.pruning import PRUNED, old_runs
from embed_pipeline.defs.runs import DRAIN_JOB, ENDED
from tests.dagster_results import figures
from tests.defs.conftest import Deployment, fresh_definitions

Status = dg.DagsterRunStatus
METRICS = dg.AssetKey("embed_queue_metrics")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """With files: there every run has one of its own."""
    with dg.instance_for_test() as instance:
        yield instance


def run_that(
    instance: dg.DagsterInstance, ended: Status | None, *, days_ago: float, job: str = DRAIN_JOB
) -> str:
    """A run with events that came to this end so long ago; None if it is still under way."""
    run = instance.add_run(dg.DagsterRun(job_name=job, run_id=str(uuid.uuid4())))
    with freeze_time(datetime.now(UTC) - timedelta(days=days_ago)):
        match ended:
            case Status.FAILURE:
                instance.report_run_failed(run)
            case Status.CANCELED:
                instance.report_run_canceled(run)
            case _:
                kind = dg.DagsterEventType.RUN_SUCCESS if ended else dg.DagsterEventType.RUN_START
                instance.report_dagster_event(dg.DagsterEvent(kind.value, job), run.run_id)
    return run.run_id


def files_of(instance: dg.DagsterInstance, run_id: str) -> list[Path]:
    return list((Path(instance.root_directory) / "history" / "runs").glob(f"{run_id}*"))


def runs_in(instance: dg.DagsterInstance) -> set[str]:
    return {run.run_id for run in instance.get_runs()}


async def test_old_runs_go_with_their_files(deployment: Deployment) -> None:
    instance = deployment.instance
    old = [run_that(instance, status, days_ago=15) for status in ENDED]
    young = [run_that(instance, status, days_ago=13) for status in ENDED]
    under_way = run_that(instance, None, days_ago=15)
    assert all(files_of(instance, run_id) for run_id in (*old, *young, under_way))
    last_sign = instance.get_run_records(dg.RunsFilter([under_way]))[0].update_timestamp
    assert datetime.now(UTC) - last_sign.replace(tzinfo=UTC) > timedelta(days=14)

    result = await deployment.run("prune_old_runs")

    assert figures(result)["deleted"] == 3
    assert runs_in(instance) == {*young, under_way, result.run_id}
    assert not any(files_of(instance, run_id) for run_id in old)
    assert all(files_of(instance, run_id) for run_id in (*young, under_way))


async def test_what_was_measured_stays(deployment: Deployment) -> None:
    instance = deployment.instance
    with freeze_time(datetime.now(UTC) - timedelta(days=400)):
        instance.report_runless_asset_event(dg.AssetMaterialization(METRICS))
    by_hand = run_that(instance, Status.SUCCESS, days_ago=400, job="__ASSET_JOB")
    run_that(instance, Status.SUCCESS, days_ago=400)

    result = await deployment.run("prune_old_runs", {"days": 1})

    assert figures(result)["deleted"] == 1
    assert runs_in(instance) == {by_hand, result.run_id}
    assert instance.get_latest_materialization_event(METRICS) is not None


async def test_a_dry_run_deletes_nothing(deployment: Deployment) -> None:
    instance = deployment.instance
    old = run_that(instance, Status.FAILURE, days_ago=15)

    result = await deployment.run("prune_old_runs", {"dry_run": True})

    assert figures(result) == {"would_delete": 1}
    assert runs_in(instance) == {old, result.run_id}
    assert files_of(instance, old)


async def test_the_setting_decides_unless_the_run_says_otherwise(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_that(deployment.instance, Status.SUCCESS, days_ago=15)
    monkeypatch.setenv("EMBED_RUN_RETENTION_DAYS", "30")

    by_setting = figures(await deployment.run("prune_old_runs", {"dry_run": True}))
    by_config = figures(await deployment.run("prune_old_runs", {"dry_run": True, "days": 14}))

    assert by_setting == {"would_delete": 0}
    assert by_config == {"would_delete": 1}


async def test_the_schedule_starts_a_run_only_when_there_is_something_to_delete(
    deployment: Deployment,
) -> None:
    run_that(deployment.instance, Status.SUCCESS, days_ago=13)
    nothing = await deployment.tick_schedule("nightly_pruning")

    run_that(deployment.instance, Status.SUCCESS, days_ago=15)
    something = await deployment.tick_schedule("nightly_pruning")

    assert nothing.skip_message == "no run ended more than 14 days ago"
    assert nothing.run_requests == []
    assert len(something.run_requests) == 1


def test_no_more_runs_are_read_than_asked_for(instance: dg.DagsterInstance) -> None:
    for job in PRUNED[:3]:
        run_that(instance, Status.SUCCESS, days_ago=15, job=job)

    assert [len(old_runs(instance, days=14, limit=limit)) for limit in (1, 2, 3, 9)] == [1, 2, 3, 3]


def test_every_job_of_the_project_is_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")

    assert {job.name for job in fresh_definitions(monkeypatch).jobs or ()} == set(PRUNED)
