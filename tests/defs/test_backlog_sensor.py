"""The sensor that starts drains: when there is work, not too many, and never without a reason."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from embed_pipeline.defs import sensors
from embed_pipeline.defs.runs import DRAIN_JOB, DRAIN_TAG, STANDBY_TAG, WORKER_TAG, worker_mark
from embed_pipeline.domain import pacing
from embed_pipeline.domain.job import NewJob
from embed_pipeline.domain.rate_window import RateLimits
from tests.defs.conftest import A_MOMENT, Deployment, SensorUnderTest

STARTED = dg.DagsterRunStatus.STARTED


@pytest.fixture
def backlog(sensor: Callable[..., SensorUnderTest]) -> SensorUnderTest:
    return sensor("embed_backlog")


@pytest.fixture
def one_job_per_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few jobs are a long queue."""
    for module in (pacing, sensors):
        monkeypatch.setattr(module, "JOBS_PER_DRAIN", 1)


def given_drain(
    instance: dg.DagsterInstance, status: dg.DagsterRunStatus = STARTED, **more: Any
) -> dg.DagsterRun:
    tags = {DRAIN_TAG: "true", **more.pop("tags", {})}
    return instance.add_run(dg.DagsterRun(job_name=DRAIN_JOB, status=status, tags=tags, **more))


def dead_worker() -> dict[str, str]:
    """The tag of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    mark = worker_mark(process.pid)
    process.wait()
    return {WORKER_TAG: mark}


def live_worker() -> dict[str, str]:
    return {WORKER_TAG: worker_mark(os.getpid())}


def status_of(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRunStatus:
    found = instance.get_run_by_id(run.run_id)
    assert found is not None
    return found.status


async def skipped(backlog: SensorUnderTest) -> str:
    """The reason of a tick that starts nothing."""
    data = await backlog.tick()
    assert data.run_requests == []
    return data.skip_message


async def test_due_jobs_start_a_drain(deployment: Deployment, backlog: SensorUnderTest) -> None:
    await deployment.queue.given_jobs("ada", "bob")

    data = await backlog.tick()

    [request] = data.run_requests
    assert request.tags["embed_pipeline/due"] == "2 due"
    assert data.skip_message is None


async def test_on_standby_a_drain_is_started_that_stays(
    deployment: Deployment, sensor: Callable[..., SensorUnderTest]
) -> None:
    backlog = sensor("embed_backlog", EMBED_STANDBY="true")

    [request] = (await backlog.tick()).run_requests
    given_drain(deployment.instance, tags=request.tags)

    staying = {"max_minutes": 60, "linger_seconds": 3600}
    assert request.run_config == {"ops": {"drain": {"config": staying}}}
    assert request.tags["embed_pipeline/due"] == "standing by: the queue is empty"
    assert request.tags[STANDBY_TAG] == "true"
    assert await skipped(backlog) == "the queue is empty; a drain stands by"


async def test_the_cursor_says_what_was_started_last_and_why(
    deployment: Deployment, backlog: SensorUnderTest
) -> None:
    await deployment.queue.given_jobs("ada")
    await backlog.tick()
    started = backlog.cursor
    assert started is not None
    assert started.endswith(" started 1: 1 due")

    await deployment.queue.switch.pause(by="operator")
    await skipped(backlog)

    assert backlog.cursor == started


@pytest.mark.parametrize(("allowed", "started"), [("1", 1), ("2", 2), ("5", 3)])
async def test_a_long_queue_starts_several_drains_up_to_the_setting(
    deployment: Deployment,
    sensor: Callable[..., SensorUnderTest],
    one_job_per_drain: None,
    allowed: str,
    started: int,
) -> None:
    await deployment.queue.given_jobs("ada", "bob", "eve")

    data = await sensor("embed_backlog", EMBED_DRAINS_AT_ONCE=allowed).tick()

    assert len(data.run_requests) == started


@pytest.mark.parametrize(
    "status", [dg.DagsterRunStatus.NOT_STARTED, STARTED, dg.DagsterRunStatus.CANCELING]
)
async def test_drains_under_way_count(
    deployment: Deployment,
    backlog: SensorUnderTest,
    one_job_per_drain: None,
    status: dg.DagsterRunStatus,
) -> None:
    await deployment.queue.given_jobs("ada", "bob", "eve")
    given_drain(deployment.instance, status)

    assert len((await backlog.tick()).run_requests) == 1
    given_drain(deployment.instance, status)

    assert await skipped(backlog) == "enough drains running: 2 of 2 (2 or more due)"


async def test_an_idle_queue_starts_no_run_in_ten_ticks(
    deployment: Deployment, backlog: SensorUnderTest
) -> None:
    reasons = [await skipped(backlog) for _ in range(10)]

    assert set(reasons) == {"the queue is empty"}
    assert deployment.instance.get_runs_count() == 0


async def test_a_paused_queue_starts_nothing(
    deployment: Deployment, backlog: SensorUnderTest
) -> None:
    await deployment.queue.given_jobs("ada")
    await deployment.queue.switch.pause(by="operator")
    since = f"{deployment.queue.clock.now:%Y-%m-%d %H:%M:%S} UTC"

    reason = await skipped(backlog)

    assert reason == f"the queue is paused since {since} by operator (1 pending)"


async def test_an_open_breaker_starts_nothing(
    deployment: Deployment, backlog: SensorUnderTest
) -> None:
    await deployment.queue.given_jobs("ada")
    deployment.queue.clock.advance(A_MOMENT)
    breaker = await deployment.queue.switch.open_breaker("the key is wrong")

    reason = await skipped(backlog)

    since, probe = (f"{at:%Y-%m-%d %H:%M:%S} UTC" for at in (breaker.since, breaker.probe_at))
    assert reason == (
        f"breaker open since {since}: the key is wrong; one job may be tried at {probe} (1 pending)"
    )


async def test_when_a_probe_is_due_one_drain_tries_it(
    deployment: Deployment, backlog: SensorUnderTest, one_job_per_drain: None
) -> None:
    await deployment.queue.given_jobs("ada", "bob")
    deployment.queue.clock.advance(-timedelta(hours=1))
    await deployment.queue.switch.open_breaker("the key is wrong")

    assert len((await backlog.tick()).run_requests) == 1


async def test_a_used_up_rate_limit_starts_nothing(
    deployment: Deployment, sensor: Callable[..., SensorUnderTest]
) -> None:
    await deployment.queue.given_jobs("ada")
    for _ in range(20):
        await deployment.queue.limiter(RateLimits(interval=timedelta(hours=1))).acquire()

    reason = await skipped(sensor("embed_backlog", EMBEDDING_RATE_LIMIT_INTERVAL="3600000"))

    assert re.fullmatch(r"waiting for the rate limit: (1 h( \d+ min)?|\d+ min) \(1 due\)", reason)


async def test_a_pause_of_the_provider_starts_nothing_and_says_who_passed_it_on(
    deployment: Deployment, backlog: SensorUnderTest
) -> None:
    await deployment.queue.given_jobs("ada")
    limiter = deployment.queue.limiter(RateLimits())
    grant = await limiter.hold(timedelta(days=1), owner="run-7/host/1", said="slow down")
    assert grant.hold is not None
    end = f"{grant.hold.until:%Y-%m-%d %H:%M:%S} UTC"

    reason = await skipped(backlog)

    assert reason == (
        f"the provider told run-7/host/1 of queue default to wait until {end}: "
        '"slow down" (it wanted 24 h, cut to 15 min); '
        "'embed-pipeline limits clear' or the job clear_limits ends it (1 due)"
    )


async def test_jobs_of_another_model_start_nothing(
    deployment: Deployment, backlog: SensorUnderTest
) -> None:
    await deployment.queue.put_entity("ada")
    await deployment.queue.admin.enqueue([NewJob("ada", "old-model")])

    reason = await skipped(backlog)

    assert reason == "no pending job is for the model test-model (1 pending for others)"


async def test_a_retry_that_is_not_due_starts_nothing(
    deployment: Deployment, backlog: SensorUnderTest
) -> None:
    [leased] = await deployment.queue.leased("ada")
    deployment.queue.clock.advance(timedelta(hours=1))
    await deployment.queue.fail(leased.lease)

    assert (await skipped(backlog)).startswith("nothing due before ")


async def test_a_drain_whose_process_is_gone_is_failed_and_does_not_count(
    deployment: Deployment,
    backlog: SensorUnderTest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pacing, "FIRST_PAUSE", timedelta(0))
    await deployment.queue.given_jobs("ada")
    gone = given_drain(deployment.instance, tags=dead_worker())

    data = await backlog.tick()

    assert status_of(deployment.instance, gone) is dg.DagsterRunStatus.FAILURE
    assert len(data.run_requests) == 1


async def test_after_a_failed_drain_the_next_one_waits(
    deployment: Deployment, backlog: SensorUnderTest
) -> None:
    await deployment.queue.given_jobs("ada")
    given_drain(deployment.instance, tags=dead_worker())

    reason = await skipped(backlog)

    assert reason.startswith("the last drain failed; the next one starts in ")


@pytest.mark.parametrize("tags", [live_worker(), {}], ids=["alive", "unknown"])
async def test_a_drain_that_may_be_alive_is_left_alone(
    deployment: Deployment, backlog: SensorUnderTest, tags: dict[str, str]
) -> None:
    await deployment.queue.given_jobs("ada")
    alive = given_drain(deployment.instance, tags=tags)

    reason = await skipped(backlog)

    assert status_of(deployment.instance, alive) is STARTED
    assert reason == "enough drains running: 1 of 2 (1 due)"


async def test_a_repeated_drain_is_not_taken_for_its_dead_predecessor(
    deployment: Deployment, backlog: SensorUnderTest
) -> None:
    tags = dead_worker()
    first = given_drain(deployment.instance, dg.DagsterRunStatus.FAILURE, tags=tags)
    # Re-execute in the UI copies the tags; the op writes its own a little later.
    again = given_drain(
        deployment.instance, parent_run_id=first.run_id, root_run_id=first.run_id, tags=tags
    )

    await backlog.tick()

    assert status_of(deployment.instance, again) is STARTED


async def test_a_missing_schema_is_an_error_that_says_what_to_do(
    deployment: Deployment, backlog: SensorUnderTest
) -> None:
    await deployment.queue.run("MATCH (queue:EmbedQueue) DELETE queue")

    with pytest.raises(dg.Failure) as caught:
        await backlog.tick()

    assert caught.value.description == "there is no queue 'default'; run 'embed-pipeline init'"
