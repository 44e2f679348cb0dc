"""What the jobs of a killed drain cost, and that one which kills takes nobody along."""

from datetime import timedelta
from typing import Any

import pytest

from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.store.queue import open_queue
from tests.support.drain_harness import DrainUnderTest

JOBS = 2_048
POISON = "e1000"


class Mortal:
    """The real store, as long as the process of its drain lives: the dead write nothing."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.is_dead = False

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._store, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            if self.is_dead:
                raise ConnectionError("the process is gone")
            return await operation(*arguments, **options)

        return call


async def lives(queue: DrainUnderTest, number: int) -> bool:
    """One drain with a process of its own, which a request with the poison kills.

    What a dead one held is taken back as Dagster does it.
    """
    store, run_id = Mortal(queue.jobs), f"run-{number}"

    def answer(body: dict[str, Any]) -> None:
        store.is_dead |= any(POISON in text.split() for text in body["input"])

    queue.provider.answer_with = answer
    try:
        await queue.drained(owner=f"{run_id}/test", store=store, heartbeat_store=store)
    except ConnectionError:
        assert store.is_dead
    await queue.admin.recover_owner(run_id)
    # The pause before the next attempt is over.
    await queue.run("MATCH (j:EmbedPending) WHERE j.run_after IS NOT NULL SET j.run_after = 0")
    return store.is_dead


async def given_the_jobs_of_a_killed_drain(queue: DrainUnderTest) -> None:
    await queue.given(JOBS)
    await queue.lease("dead/test", limit=JOBS)
    await queue.admin.recover_owner("dead")


async def test_m71_the_jobs_of_a_killed_drain_take_at_most_40_requests(
    queue: DrainUnderTest,
) -> None:
    """And at the default limit five minutes, on a moved clock: each drain uses a minute of it."""
    queue.limits, queue.limiter_clock = RateLimits(), queue.clock
    await given_the_jobs_of_a_killed_drain(queue)
    began = queue.clock.now

    while (await queue.counted()).get("pending"):
        await queue.drained(max_time=timedelta(seconds=50))
        limiter = open_queue(queue.driver, database=queue.database, clock=queue.clock)
        queue.clock.advance((await limiter.limiter(queue.limits).peek()).wait)

    assert await queue.counted() == {"completed": JOBS}
    assert len(queue.provider.requests) <= 40
    assert queue.clock.now - began <= timedelta(minutes=5)


async def test_m71_a_poison_among_them_takes_at_most_140_requests_and_nobody_along(
    queue: DrainUnderTest,
) -> None:
    await given_the_jobs_of_a_killed_drain(queue)

    deaths = sum([await lives(queue, number) for number in range(3)])

    assert deaths == 2
    assert await queue.counted() == {"completed": JOBS - 1, "failed": 1}
    poison = await queue.job(POISON)
    assert (poison.status.value, poison.attempts) == ("failed", 3)
    assert len(queue.provider.requests) <= 140


@pytest.mark.parametrize("attempts", [1, 2, 5])
async def test_m71_whatever_the_attempts_only_the_poison_fails(
    queue: DrainUnderTest, attempts: int
) -> None:
    await queue.given(10, prefix="e100")
    await queue.run("MATCH (j:EmbedJob) SET j.max_attempts = $most", most=attempts)

    for number in range(attempts + 1):
        await lives(queue, number)

    failed = 10 if attempts == 1 else 1
    assert (await queue.counted())["failed"] == failed
    assert (await queue.job(POISON)).attempts == attempts
