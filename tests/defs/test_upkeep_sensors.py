"""Recovery by itself: a sensor looks, a run of the op works; each look is recorded."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from embed_pipeline.defs import recovery as module
from embed_pipeline.defs.recovery import REQUEST_TAG, START, WHY_TAG
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.store.lookout import EXPIRED, STRAYS
from tests.defs.conftest import Deployment, Now, SensorUnderTest
from tests.support.queue_harness import LEASE, Neo4jUnderTest

INTERVAL = timedelta(minutes=1)
OWNER = "run-of-the-dead/host/7"
JOB = "recover_stale_leases"
VAIN = "no lease has expired"
Status = dg.DagsterRunStatus


@pytest.fixture
def recovery(sensor: Callable[..., SensorUnderTest], now: Now) -> SensorUnderTest:
    return sensor("stale_leases", EMBED_JOB_RECOVERY_INTERVAL=str(INTERVAL.seconds * 1000))


@pytest.fixture
async def started(deployment: Deployment, recovery: SensorUnderTest, now: Now) -> SensorUnderTest:
    """The sensor of a deployment whose first recovery is over, when the next look is due."""
    given_run(deployment, await recovery.tick(), Status.SUCCESS)
    now.advance(INTERVAL)
    return recovery


async def given_expired(queue: Neo4jUnderTest, *uids: str, owner: str = OWNER) -> None:
    """Jobs whose worker has been silent for two leases."""
    queue.clock.advance(-2 * LEASE)
    await queue.leased(*uids, owner=owner)
    queue.clock.advance(2 * LEASE)


def given_run(deployment: Deployment, data: Any, status: Status) -> dg.DagsterRun:
    """The run that the daemon makes of a request."""
    [request] = data.run_requests
    run = dg.DagsterRun(job_name=JOB, status=status, tags=dict(request.tags))
    return deployment.instance.add_run(run)


def why(data: Any) -> list[str]:
    return [request.tags[WHY_TAG] for request in data.run_requests]


async def recoveries(deployment: Deployment) -> int:
    return (await deployment.queue.counters())["recoveries"]


async def test_m1b_m90_the_first_tick_of_a_deployment_requests_a_recovery_at_once(
    deployment: Deployment, recovery: SensorUnderTest
) -> None:
    await given_expired(deployment.queue, "ada", "bob")

    data = await recovery.tick()

    assert why(data) == [START]
    assert await deployment.queue.statuses("ada", "bob") == [JobStatus.PROCESSING] * 2
    assert recovery.definition.job_name == JOB


async def test_m90_the_run_that_is_requested_takes_the_leases_away(
    deployment: Deployment, recovery: SensorUnderTest
) -> None:
    await given_expired(deployment.queue, "ada", "bob")
    [request] = (await recovery.tick()).run_requests

    result = await deployment.run(JOB, tags=dict(request.tags))

    assert result.success
    assert await deployment.queue.statuses("ada", "bob") == [JobStatus.PENDING] * 2
    assert await recoveries(deployment) == 1


async def test_m90_a_look_that_finds_nothing_starts_no_run_and_is_recorded_as_a_recovery_of_0(
    deployment: Deployment, started: SensorUnderTest
) -> None:
    await deployment.queue.leased("ada")
    before, counted = await deployment.queue.nodes(), await recoveries(deployment)
    first = await deployment.queue.last_recovery()

    data = await started.tick()

    assert (data.run_requests, data.skip_message) == ([], VAIN)
    assert await deployment.queue.nodes() == before
    assert await recoveries(deployment) == counted + 1
    last = await deployment.queue.last_recovery()
    assert first is not None
    assert last is not None
    assert first < last


async def test_m90_leases_that_expired_are_the_only_other_reason_for_a_run(
    deployment: Deployment, started: SensorUnderTest, now: Now
) -> None:
    await given_expired(deployment.queue, "ada")

    data = await started.tick()
    given_run(deployment, data, Status.SUCCESS)
    await deployment.run(JOB)
    now.advance(INTERVAL)
    after = await started.tick()

    assert why(data) == [EXPIRED]
    assert (after.run_requests, after.skip_message) == ([], VAIN)


async def test_m90_what_another_program_wrote_is_put_right_by_a_run_too(
    deployment: Deployment, started: SensorUnderTest
) -> None:
    await deployment.queue.given_jobs("ada")
    await deployment.queue.run("MATCH (j:EmbedJob) REMOVE j:EmbedPending")

    assert why(await started.tick()) == [STRAYS]


@pytest.mark.parametrize("status", [None, Status.NOT_STARTED, Status.STARTING])
async def test_m90_a_run_that_waits_to_be_started_is_requested_again_after_two_intervals(
    deployment: Deployment, started: SensorUnderTest, now: Now, status: Status | None
) -> None:
    await given_expired(deployment.queue, "ada")
    first = await started.tick()
    run = given_run(deployment, first, status) if status else None
    now.advance(2 * INTERVAL)
    patient = await started.tick()
    now.advance(timedelta(seconds=1) + INTERVAL)
    again = await started.tick()

    assert patient.run_requests == []
    assert patient.skip_message == (
        f"its run was requested, because {EXPIRED}, and waits to be started"
    )
    assert why(again) == [EXPIRED]
    assert again.run_requests[0].tags[REQUEST_TAG] != first.run_requests[0].tags[REQUEST_TAG]
    if run and status is Status.NOT_STARTED:
        # Never two in line.
        found = deployment.instance.get_run_by_id(run.run_id)
        assert found is not None
        assert found.status is Status.CANCELED


async def test_m90_the_run_of_the_start_is_requested_again_too_though_nothing_has_expired(
    recovery: SensorUnderTest, now: Now
) -> None:
    await recovery.tick()
    now.advance(2 * INTERVAL + timedelta(seconds=1))

    assert why(await recovery.tick()) == [START]


async def test_m90_while_a_run_recovers_no_other_is_requested(
    deployment: Deployment, started: SensorUnderTest, now: Now
) -> None:
    await given_expired(deployment.queue, "ada")
    run = given_run(deployment, await started.tick(), Status.STARTED)
    now.advance(5 * INTERVAL)

    data = await started.tick()

    assert (data.run_requests, data.skip_message) == ([], f"run {run.run_id} recovers")


async def test_m90_a_run_that_failed_is_followed_by_another_while_leases_are_expired(
    deployment: Deployment, started: SensorUnderTest, now: Now
) -> None:
    await given_expired(deployment.queue, "ada")
    given_run(deployment, await started.tick(), Status.FAILURE)
    now.advance(INTERVAL)

    assert why(await started.tick()) == [EXPIRED]


async def test_m90_with_a_short_interval_a_run_has_a_minute_to_start(
    deployment: Deployment, sensor: Callable[..., SensorUnderTest], now: Now
) -> None:
    """A busy machine would launch runs all day, none of which begins within two seconds."""
    short = sensor("stale_leases", EMBED_JOB_RECOVERY_INTERVAL="1000")
    given_run(deployment, await short.tick(), Status.STARTING)
    now.advance(timedelta(seconds=55))
    patient = await short.tick()
    now.advance(timedelta(seconds=10))

    assert (why(patient), why(await short.tick())) == ([], [START])


async def test_m4_before_the_next_look_is_due_a_tick_says_when_it_is(
    deployment: Deployment, sensor: Callable[..., SensorUnderTest], now: Now
) -> None:
    slow = sensor("stale_leases", EMBED_JOB_RECOVERY_INTERVAL=str(10 * INTERVAL.seconds * 1000))
    given_run(deployment, await slow.tick(), Status.SUCCESS)
    now.advance(INTERVAL)

    data = await slow.tick()

    assert data.skip_message == (
        f"recovery was requested, because {START}; the next look is in 540 s"
    )


async def test_m90_processes_that_take_turns_are_one_start_each(
    deployment: Deployment, started: SensorUnderTest, now: Now, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two daemons, or several code servers; else every tick would be a new start."""
    first, turns = module.BOOT, []
    for boot in ("another process", first, "another process", first):
        monkeypatch.setattr(module, "BOOT", boot)
        now.advance(INTERVAL)
        data = await started.tick()
        turns.append(why(data))
        if data.run_requests:
            given_run(deployment, data, Status.SUCCESS)

    assert turns == [[START], [], [], []]


async def test_a_restart_requests_a_recovery_at_once_whatever_the_cursor_says(
    started: SensorUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await started.tick()
    monkeypatch.setattr(module, "BOOT", "another process")

    assert why(await started.tick()) == [START]


async def test_a_clock_that_was_set_back_does_not_stop_recovery(
    deployment: Deployment, started: SensorUnderTest, now: Now
) -> None:
    await given_expired(deployment.queue, "ada")
    now.advance(-timedelta(days=1))

    assert why(await started.tick()) == [EXPIRED]


async def test_m60_a_failing_look_says_why_and_the_next_tick_tries_again(
    recovery: SensorUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setenv("NEO4J_URI", "bolt://127.0.0.1:9")
        with pytest.raises(dg.Failure) as caught:
            await recovery.tick()
    assert (caught.value.description or "").startswith("Cannot reach Neo4j at 127.0.0.1:9; is it")

    assert why(await recovery.tick()) == [START]


async def test_the_grace_of_the_settings_is_honoured(
    deployment: Deployment, started: SensorUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await given_expired(deployment.queue, "ada")
    monkeypatch.setenv("EMBED_JOB_RECOVERY_GRACE_MS", str(24 * 3_600_000))

    assert (await started.tick()).skip_message == VAIN


async def test_m4_an_interval_of_zero_turns_recovery_off(
    deployment: Deployment, sensor: Callable[..., SensorUnderTest]
) -> None:
    await given_expired(deployment.queue, "ada")
    off = sensor("stale_leases", EMBED_JOB_RECOVERY_INTERVAL="0")

    data = await off.tick()

    assert off.definition.default_status is dg.DefaultSensorStatus.STOPPED
    assert data.skip_message == "recovery is off (EMBED_JOB_RECOVERY_INTERVAL=0)"
    assert data.run_requests == []
    assert await recoveries(deployment) == 0


@pytest.mark.parametrize(
    ("interval", "pause"), [("1000", 1), ("20000", 13), ("60000", 43), ("86400000", 43)]
)
def test_m14_a_recovery_is_looked_for_often_enough(
    sensor: Callable[..., SensorUnderTest], interval: str, pause: int
) -> None:
    definition = sensor("stale_leases", EMBED_JOB_RECOVERY_INTERVAL=interval).definition

    assert definition.default_status is dg.DefaultSensorStatus.RUNNING
    assert definition.minimum_interval_seconds == pause


@pytest.mark.parametrize("cursor", ["", "not json", "[]", "7"])
async def test_a_cursor_that_nobody_here_wrote_is_forgotten(
    recovery: SensorUnderTest, cursor: str
) -> None:
    recovery.cursor = cursor

    assert why(await recovery.tick()) == [START]
    assert json.loads(recovery.cursor)["request"]["why"] == START
