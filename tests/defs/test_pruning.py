"""Old runs are deleted; what they measured stays."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorTick,
    InstigatorType,
    SensorInstigatorData,
    TickData,
    TickStatus,
)
from dagster._core.storage.compute_log_manager import ComputeIOType
from dagster._core.test_utils import freeze_time

from embed_pipeline import history
from embed_pipeline.defs.pruning import PRUNED, TICKING, old_runs, repository_of
from embed_pipeline.defs.runs import DRAIN_JOB, ENDED, REPOSITORY_TAG
from tests.defs.conftest import Deployment, fresh_definitions
from tests.support.dagster_results import figures
from tests.support.origins import origin_at

Status = dg.DagsterRunStatus
METRICS = dg.AssetKey("embed_queue_metrics")
OWN = "__repository__@embed_pipeline"
FOREIGN = "__repository__@acme"


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """With files: there every run has one of its own."""
    with dg.instance_for_test() as instance:
        yield instance


def run_that(
    instance: dg.DagsterInstance,
    ended: Status | None,
    *,
    days_ago: float,
    job: str = DRAIN_JOB,
    repository: str = OWN,
) -> str:
    """A run with events that came to this end so long ago; None if it is still under way."""
    run = instance.add_run(
        dg.DagsterRun(
            job_name=job, run_id=str(uuid.uuid4()), remote_job_origin=origin_at(repository, job)
        )
    )
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


def write_log(instance: dg.DagsterInstance, *key: str) -> None:
    """Write what a step or a tick prints, where Dagster would."""
    with instance.compute_log_manager.open_log_stream(key, ComputeIOType.STDERR) as stream:
        # Text, though Dagster says bytes.
        said: Any = stream
        said.write("said")


def has_log(instance: dg.DagsterInstance, *key: str) -> bool:
    return instance.compute_log_manager.get_log_data(key).stderr is not None


def files_of(instance: dg.DagsterInstance, run_id: str) -> list[Path]:
    return [path for path in Path(instance.root_directory).rglob("*") if run_id in path.name]


def ticked(
    instance: dg.DagsterInstance, sensor: str, *, location: str = "embed_pipeline"
) -> InstigatorTick:
    """A tick that has said something, of a sensor that the daemon knows."""
    place = GrpcServerCodeLocationOrigin(host="localhost", port=1, location_name=location)
    origin = RemoteRepositoryOrigin(place, "__repository__").get_instigator_origin(sensor)
    state = InstigatorState(
        origin,
        InstigatorType.SENSOR,
        InstigatorStatus.DECLARED_IN_CODE,
        SensorInstigatorData(),
    )
    if instance.get_instigator_state(origin.get_id(), state.selector_id) is None:
        instance.add_instigator_state(state)
    tick = instance.create_tick(
        TickData(
            origin.get_id(),
            sensor,
            InstigatorType.SENSOR,
            TickStatus.SKIPPED,
            datetime.now(UTC).timestamp(),
            selector_id=state.selector_id,
        )
    )
    write_log(instance, "__repository__", sensor, str(tick.tick_id))
    return tick


def forget(instance: dg.DagsterInstance, tick: InstigatorTick) -> None:
    """Delete a tick as the retention of Dagster does, which leaves its log."""
    assert tick.tick_data.selector_id is not None
    instance.purge_ticks(
        tick.instigator_origin_id, tick.tick_data.selector_id, before=tick.timestamp + 1e-6
    )


async def prune(deployment: Deployment, **config: object) -> dg.ExecuteInProcessResult:
    """Launch the job; in process nothing has an origin, so that a tag stands for it."""
    return await deployment.run("prune_old_runs", config, tags={REPOSITORY_TAG: OWN})


def runs_in(instance: dg.DagsterInstance) -> set[str]:
    return {run.run_id for run in instance.get_runs()}


async def test_old_runs_go_with_their_files(deployment: Deployment) -> None:
    instance = deployment.instance
    old = [run_that(instance, status, days_ago=15) for status in ENDED]
    young = [run_that(instance, status, days_ago=13) for status in ENDED]
    under_way = run_that(instance, None, days_ago=15)
    for run_id in (*old, *young, under_way):
        write_log(instance, run_id, "compute_logs", "drain")
    assert all(files_of(instance, run_id) for run_id in (*old, *young, under_way))
    last_sign = instance.get_run_records(dg.RunsFilter([under_way]))[0].update_timestamp
    assert datetime.now(UTC) - last_sign.replace(tzinfo=UTC) > timedelta(days=14)

    result = await prune(deployment)

    assert figures(result)["deleted"] == 3
    assert runs_in(instance) == {*young, under_way, result.run_id}
    assert not any(files_of(instance, run_id) for run_id in old)
    assert all(files_of(instance, run_id) for run_id in (*young, under_way))
    assert all(has_log(instance, run_id, "compute_logs", "drain") for run_id in (*young, under_way))


async def test_what_was_measured_stays(deployment: Deployment) -> None:
    instance = deployment.instance
    with freeze_time(datetime.now(UTC) - timedelta(days=400)):
        instance.report_runless_asset_event(dg.AssetMaterialization(METRICS))
    by_hand = run_that(instance, Status.SUCCESS, days_ago=400, job="__ASSET_JOB")
    run_that(instance, Status.SUCCESS, days_ago=400)

    result = await prune(deployment, days=1)

    assert figures(result)["deleted"] == 1
    assert runs_in(instance) == {by_hand, result.run_id}
    assert instance.get_latest_materialization_event(METRICS) is not None


async def test_m82_readings_of_the_same_age_leave_the_event_log_for_the_files(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBED_HISTORY_PATH", str(tmp_path / "history"))
    instance = deployment.instance
    for days_ago in (17, 16, 2):
        with freeze_time(datetime.now(UTC) - timedelta(days=days_ago)):
            reading = dg.AssetMaterialization(METRICS, metadata={"pending": days_ago})
            instance.report_runless_asset_event(reading)

    due = await deployment.tick_schedule("nightly_pruning")
    counted = figures(await prune(deployment, dry_run=True))
    result = figures(await prune(deployment))
    still_due = await deployment.tick_schedule("nightly_pruning")

    assert len(due.run_requests) == 1
    assert counted["would_delete_readings"] == result["deleted_readings"] == 2
    assert still_due.run_requests == []
    assert len(instance.fetch_materializations(METRICS, limit=10).records) == 1
    archive = str(tmp_path / "history")
    found = history.queue_metrics(instance=instance, archive=archive)
    assert found["pending"].tolist() == [17, 16, 2]


async def test_a_dry_run_deletes_nothing(deployment: Deployment) -> None:
    instance = deployment.instance
    old = run_that(instance, Status.FAILURE, days_ago=15)

    result = await prune(deployment, dry_run=True)

    assert figures(result) == {
        "would_delete": 1,
        "would_delete_tick_logs": 0,
        "would_delete_readings": 0,
    }
    assert runs_in(instance) == {old, result.run_id}
    assert files_of(instance, old)


async def test_the_setting_decides_unless_the_run_says_otherwise(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_that(deployment.instance, Status.SUCCESS, days_ago=15)
    monkeypatch.setenv("EMBED_RUN_RETENTION_DAYS", "30")

    by_setting = figures(await prune(deployment, dry_run=True))
    by_config = figures(await prune(deployment, dry_run=True, days=14))

    assert by_setting["would_delete"] == 0
    assert by_config["would_delete"] == 1


async def test_the_schedule_starts_a_run_only_when_there_is_something_to_delete(
    deployment: Deployment,
) -> None:
    run_that(deployment.instance, Status.SUCCESS, days_ago=13)
    nothing = await deployment.tick_schedule("nightly_pruning")

    run_that(deployment.instance, Status.SUCCESS, days_ago=15)
    something = await deployment.tick_schedule("nightly_pruning")

    assert nothing.skip_message == ("no run ended, and no reading was taken, more than 14 days ago")
    assert nothing.run_requests == []
    assert len(something.run_requests) == 1


async def test_the_runs_of_another_deployment_stay_though_their_jobs_have_the_same_names(
    deployment: Deployment,
) -> None:
    instance = deployment.instance
    run_that(instance, Status.SUCCESS, days_ago=15)
    foreign = [
        run_that(instance, Status.SUCCESS, days_ago=15, job=job, repository=FOREIGN)
        for job in PRUNED
    ]
    write_log(instance, foreign[0], "compute_logs", "drain")

    result = await prune(deployment)

    assert figures(result)["deleted"] == 1
    assert runs_in(instance) == {*foreign, result.run_id}
    assert has_log(instance, foreign[0], "compute_logs", "drain")


async def test_a_run_that_does_not_know_where_it_belongs_deletes_nothing(
    deployment: Deployment,
) -> None:
    old = run_that(deployment.instance, Status.SUCCESS, days_ago=15)

    result = await deployment.run("prune_old_runs")

    assert not result.success
    assert "Launch it in Dagster's UI" in str(result.all_events)
    assert old in runs_in(deployment.instance)


async def test_the_logs_of_ticks_that_are_gone_go_too(deployment: Deployment) -> None:
    instance = deployment.instance
    gone, kept = [ticked(instance, "embed_backlog") for _ in range(2)]
    forget(instance, gone)
    # Their logs are in the same folder, since both code locations name their sensors alike.
    foreign = ticked(instance, "embed_backlog", location="acme")
    of_others = ticked(instance, "a_sensor_of_theirs")
    forget(instance, of_others)

    counted = figures(await prune(deployment, dry_run=True))
    result = figures(await prune(deployment))

    folder = ("__repository__", "embed_backlog")
    assert (counted["would_delete"], counted["would_delete_tick_logs"]) == (0, 1)
    assert (result["deleted"], result["deleted_tick_logs"]) == (0, 1)
    assert not has_log(instance, *folder, str(gone.tick_id))
    assert has_log(instance, *folder, str(kept.tick_id))
    assert has_log(instance, *folder, str(foreign.tick_id))
    assert has_log(instance, "__repository__", "a_sensor_of_theirs", str(of_others.tick_id))


async def test_logs_alone_are_worth_a_run_of_the_schedule(deployment: Deployment) -> None:
    forget(deployment.instance, ticked(deployment.instance, "embed_backlog"))

    tick = await deployment.tick_schedule("nightly_pruning")

    assert len(tick.run_requests) == 1


def test_a_schedule_finds_out_where_it_belongs(instance: dg.DagsterInstance) -> None:
    own = ticked(instance, "nightly_pruning")
    foreign = ticked(instance, "nightly_pruning", location="acme")
    keys = [["__repository__", "nightly_pruning", str(tick.tick_id)] for tick in (own, foreign)]

    assert [repository_of(instance, key) for key in keys] == [OWN, FOREIGN]
    assert repository_of(instance, None) is None


def test_no_more_runs_are_read_than_asked_for(instance: dg.DagsterInstance) -> None:
    for job in PRUNED[:3]:
        run_that(instance, Status.SUCCESS, days_ago=15, job=job)

    found = [len(old_runs(instance, OWN, days=14, limit=limit)) for limit in (1, 2, 3, 9)]

    assert found == [1, 2, 3, 3]


def test_every_job_and_every_tick_of_the_project_is_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")

    defs = fresh_definitions()

    assert {job.name for job in defs.jobs or ()} == set(PRUNED)
    ticking = [*(defs.sensors or ()), *(defs.schedules or ())]
    assert {instigator.name for instigator in ticking} == set(TICKING)
