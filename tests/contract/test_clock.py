"""A clock of the server that is set back: nothing live is taken, nothing waits for it to catch up.

Somebody has looked for expired leases before, as in every deployment whose recovery is on.
"""

from datetime import timedelta

import pytest

from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.rate_window import RateLimits
from tests.support.queue_harness import LEASE, QueueUnderTest

MOMENT = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
STEPS = [timedelta(minutes=10), timedelta(hours=1), timedelta(days=400)]


@pytest.fixture(params=STEPS, ids=["10 min", "1 h", "400 days"])
def step(request: pytest.FixtureRequest) -> timedelta:
    return request.param


async def recover(queue: QueueUnderTest) -> list[str]:
    return [job.entity_uid for job in await queue.jobs.recover_expired(limit=10)]


async def test_i11_a_live_lease_is_not_taken(queue: QueueUnderTest, step: timedelta) -> None:
    await recover(queue)
    [ada, bob] = await queue.leased("ada", "bob")
    await queue.jobs.heartbeat([bob.lease], duration=LEASE)

    queue.clock.advance(-step)

    assert await recover(queue) == []
    beat = await queue.jobs.heartbeat([ada.lease, bob.lease], duration=LEASE)
    assert beat.held == (ada.lease, bob.lease)


async def test_i10_a_dead_lease_ends_one_lease_later(
    queue: QueueUnderTest, step: timedelta
) -> None:
    await recover(queue)
    [_, bob] = await queue.leased("ada", "bob")
    queue.clock.advance(MINUTE)
    await queue.jobs.heartbeat([bob.lease], duration=LEASE)

    queue.clock.advance(-step)
    await recover(queue)
    queue.clock.advance(LEASE - MOMENT)
    assert await recover(queue) == []
    queue.clock.advance(2 * MOMENT)

    assert sorted(await recover(queue)) == ["ada", "bob"]


async def test_a_lease_taken_after_the_step_is_as_long_as_any(
    queue: QueueUnderTest, step: timedelta
) -> None:
    await recover(queue)
    await queue.leased("before")

    queue.clock.advance(-step)
    await queue.leased("after")
    lock_until = (await queue.job("after")).lock_until
    queue.clock.advance(MOMENT)
    await recover(queue)

    assert (await queue.job("after")).lock_until == lock_until


async def test_m20_a_retry_waits_as_long_as_its_policy_says(
    queue: QueueUnderTest, step: timedelta
) -> None:
    await recover(queue)
    [item] = await queue.leased("ada")
    await queue.fail(item.lease)
    run_after = (await queue.job("ada")).run_after
    assert run_after is not None
    delay = run_after - queue.clock.now

    queue.clock.advance(-step)
    await recover(queue)

    assert (await queue.lease()).jobs == ()
    queue.clock.advance(delay)
    assert [found.lease.entity_uid for found in (await queue.lease()).jobs] == ["ada"]


async def test_the_breaker_lets_its_probe_through_after_its_pause(
    queue: QueueUnderTest, step: timedelta
) -> None:
    await recover(queue)
    await queue.given_jobs("ada")
    breaker = await queue.switch.open_breaker("the key is wrong")
    assert breaker.probe_at is not None
    pause = breaker.probe_at - queue.clock.now

    queue.clock.advance(-step)
    await recover(queue)

    assert (await queue.lease()).refusal == "breaker open: the key is wrong"
    queue.clock.advance(pause)
    assert len((await queue.lease()).jobs) == 1


async def test_m9_the_rate_limit_opens_after_an_interval(
    queue: QueueUnderTest, step: timedelta
) -> None:
    limiter = queue.limiter(RateLimits(requests=2, interval=MINUTE))
    for _ in range(2):
        assert (await limiter.acquire()).is_granted

    queue.clock.advance(-step)
    wait = (await limiter.peek()).wait
    queue.clock.advance(MINUTE - MOMENT)
    early = await limiter.acquire()
    queue.clock.advance(wait - MINUTE + MOMENT)

    assert MINUTE < wait < MINUTE + 5 * MOMENT
    assert not early.is_granted
    assert (await limiter.peek()).is_granted


async def test_a_pause_of_the_provider_is_no_longer_than_it_asked_for(
    queue: QueueUnderTest, step: timedelta
) -> None:
    limiter = queue.limiter(RateLimits())
    await limiter.hold(MINUTE, owner="run-1", said="slow down")

    queue.clock.advance(-step)
    wait = (await limiter.peek()).wait
    queue.clock.advance(MINUTE)

    assert wait == MINUTE
    assert (await limiter.acquire()).is_granted


async def test_many_small_steps_back_never_take_a_lease(queue: QueueUnderTest) -> None:
    [item] = await queue.leased("ada")

    for _ in range(20):
        await recover(queue)
        queue.clock.advance(-20 * MOMENT)

    assert (await queue.job("ada")).status is JobStatus.PROCESSING
    assert (await queue.complete(item.lease))[0].value == "completed"
