"""Recovery by itself: at the start, then by the interval; each look is recorded, also the vain."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from embed_pipeline.defs import upkeep
from embed_pipeline.domain.job import JobStatus
from tests.defs.conftest import Deployment, Now, SensorUnderTest
from tests.queue_harness import LEASE, Neo4jUnderTest

INTERVAL = timedelta(minutes=1)
OWNER = "run-of-the-dead/host/7"


@pytest.fixture
def recovery(sensor: Callable[..., SensorUnderTest], now: Now) -> SensorUnderTest:
    return sensor("stale_leases", EMBED_JOB_RECOVERY_INTERVAL=str(INTERVAL.seconds * 1000))


async def given_expired(queue: Neo4jUnderTest, *uids: str, owner: str = OWNER) -> None:
    """Jobs whose worker has been silent for two leases."""
    queue.clock.advance(-2 * LEASE)
    await queue.leased(*uids, owner=owner)
    queue.clock.advance(2 * LEASE)


async def recoveries(deployment: Deployment) -> int:
    return (await deployment.queue.counters())["recoveries"]


async def test_m1b_the_first_tick_of_a_deployment_recovers_at_once(
    deployment: Deployment, recovery: SensorUnderTest
) -> None:
    await given_expired(deployment.queue, "ada", "bob")

    data = await recovery.tick()

    assert data.skip_message == "recovered 2 expired leases"
    assert data.run_requests == []
    assert await deployment.queue.statuses("ada", "bob") == [JobStatus.PENDING] * 2


async def test_a_valid_lease_is_left_alone(
    deployment: Deployment, recovery: SensorUnderTest
) -> None:
    await deployment.queue.leased("ada")
    before = await deployment.queue.nodes()

    await recovery.tick()

    assert await deployment.queue.nodes() == before


async def test_m4_before_the_interval_has_passed_a_tick_says_when_the_next_is_due(
    deployment: Deployment, recovery: SensorUnderTest, now: Now
) -> None:
    await recovery.tick()
    await given_expired(deployment.queue, "ada")
    now.advance(INTERVAL - timedelta(seconds=20))

    data = await recovery.tick()

    assert data.skip_message == "recovered 0; next in 20 s"
    assert await deployment.queue.statuses("ada") == [JobStatus.PROCESSING]
    assert await recoveries(deployment) == 1


async def test_m4_m14_after_the_interval_the_next_tick_recovers(
    deployment: Deployment, recovery: SensorUnderTest, now: Now
) -> None:
    await recovery.tick()
    await given_expired(deployment.queue, "ada")
    now.advance(INTERVAL)

    data = await recovery.tick()

    assert data.skip_message == "recovered 1 expired leases"
    assert await deployment.queue.statuses("ada") == [JobStatus.PENDING]


async def test_a_restart_recovers_at_once_whatever_the_cursor_says(
    deployment: Deployment, recovery: SensorUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await recovery.tick()
    await given_expired(deployment.queue, "ada")
    monkeypatch.setattr(upkeep, "BOOT", "another process")

    assert (await recovery.tick()).skip_message == "recovered 1 expired leases"


async def test_a_clock_that_was_set_back_does_not_stop_recovery(
    deployment: Deployment, recovery: SensorUnderTest, now: Now
) -> None:
    await recovery.tick()
    await given_expired(deployment.queue, "ada")
    now.advance(-timedelta(days=1))

    assert (await recovery.tick()).skip_message == "recovered 1 expired leases"


async def test_m14_every_recovery_is_recorded_also_a_vain_one(
    deployment: Deployment, recovery: SensorUnderTest, now: Now
) -> None:
    assert await deployment.queue.last_recovery() is None

    data = await recovery.tick()
    first = await deployment.queue.last_recovery()
    now.advance(INTERVAL)
    await recovery.tick()
    second = await deployment.queue.last_recovery()

    assert data.skip_message == "recovered 0 expired leases"
    assert data.asset_events == []
    assert first is not None
    assert second is not None
    assert first < second
    assert await recoveries(deployment) == 2
    assert json.loads(recovery.cursor or "")["count"] == 0


async def test_m70_what_was_recovered_is_named_with_its_former_owner(
    deployment: Deployment, recovery: SensorUnderTest
) -> None:
    await given_expired(deployment.queue, "ada", "bob")
    jobs = [await deployment.queue.job(uid) for uid in ("ada", "bob")]

    [event] = (await recovery.tick()).asset_events

    assert isinstance(event, dg.AssetObservation)
    assert event.asset_key == dg.AssetKey("embed_queue_metrics")
    assert event.metadata["recovered_now"].value == 2
    shown = rows(event.metadata["recovered_jobs"])
    assert {row["job"] for row in shown} == {job.id for job in jobs}
    assert event.metadata["job_ids"].value == [row["job"] for row in shown]
    assert [row["former owner"] for row in shown] == [OWNER] * 2
    assert [row["now"] for row in shown] == ["pending"] * 2


async def test_m60_a_failing_recovery_says_why_and_the_next_tick_tries_again(
    deployment: Deployment,
    recovery: SensorUnderTest,
    monkeypatch: pytest.MonkeyPatch,
    now: Now,
) -> None:
    await recovery.tick()
    await given_expired(deployment.queue, "ada")
    now.advance(INTERVAL)
    with monkeypatch.context() as broken:
        broken.setenv("NEO4J_URI", "bolt://127.0.0.1:9")
        with pytest.raises(dg.Failure) as caught:
            await recovery.tick()
    assert (caught.value.description or "").startswith("Cannot reach Neo4j at 127.0.0.1:9; is it")

    data = await recovery.tick()

    assert data.skip_message == "recovered 1 expired leases"


async def test_the_grace_of_the_settings_is_honoured(
    deployment: Deployment, sensor: Callable[..., SensorUnderTest]
) -> None:
    await given_expired(deployment.queue, "ada")
    patient = sensor("stale_leases", EMBED_JOB_RECOVERY_GRACE_MS=str(24 * 3_600_000))

    assert (await patient.tick()).skip_message == "recovered 0 expired leases"


async def test_m4_an_interval_of_zero_turns_recovery_off(
    deployment: Deployment, sensor: Callable[..., SensorUnderTest]
) -> None:
    await given_expired(deployment.queue, "ada")
    off = sensor("stale_leases", EMBED_JOB_RECOVERY_INTERVAL="0")

    data = await off.tick()

    assert off.definition.default_status is dg.DefaultSensorStatus.STOPPED
    assert data.skip_message == "recovery is off (EMBED_JOB_RECOVERY_INTERVAL=0)"
    assert await deployment.queue.statuses("ada") == [JobStatus.PROCESSING]
    assert await recoveries(deployment) == 0


@pytest.mark.parametrize(
    ("interval", "pause"), [("1000", 1), ("20000", 5), ("60000", 14), ("86400000", 14)]
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

    assert (await recovery.tick()).skip_message == "recovered 0 expired leases"


def rows(table: Any) -> list[dict[str, Any]]:
    return [dict(record.data) for record in table.records]
