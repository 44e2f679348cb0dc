"""The server's clock is set while drains work: nothing is applied twice, nothing gets stuck.

The promises one by one, with exact times, are in ``tests/contract/test_clock.py``; here a real
server has a clock that really jumps.
"""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from embed_pipeline.domain.job import JobFilter
from tests.proof.clocks.conftest import LEASE_MS
from tests.proof.clocks.stepped_clock import HOUR, SteppedClock, step
from tests.support.drain_harness import DrainUnderTest, until
from tests.support.drain_launcher import Drains
from tests.support.openai_server import but_not_to_the_probe, failure, most_in_any_window

JOBS = 6


async def fences(queue: DrainUnderTest) -> set[int]:
    return {job.fence for job in await queue.admin.find_jobs(JobFilter())}


async def beaten(queue: DrainUnderTest) -> None:
    """Wait for a heartbeat by the clock as it is now."""

    async def confirmed() -> set[Any]:
        rows = await queue.run(
            """
            MATCH (j:EmbedProcessing)
            RETURN DISTINCT 0 <= j.lock_until - datetime.realtime().epochMillis <= $lease
              AND j.heartbeat_at <= datetime.realtime().epochMillis AS confirmed
            """,
            lease=LEASE_MS,
        )
        return {row["confirmed"] for row in rows}

    async with asyncio.timeout(300):
        while await confirmed() != {True}:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.1)


async def test_r15_after_a_step_forward_work_is_repeated_and_applied_once(
    stepped_queue: DrainUnderTest, server_clock: SteppedClock, stepped_drains: Drains
) -> None:
    queue, drains = stepped_queue, stepped_drains
    # Long enough for the step to come before the next heartbeat.
    drains.environment |= {"EMBED_JOB_LOCK_DURATION_MS": "120000"}
    await queue.given(JOBS)
    with queue.provider.holding():
        robbed = drains.start()
        await until(lambda: queue.provider.requests)

        await step(queue, server_clock, HOUR)
        # A healthy lease looks expired until its next heartbeat, also to its own drain.
        await queue.jobs.recover_expired(limit=JOBS)
    report = await drains.report(robbed)

    assert report["fenced"] + report["lost"] == JOBS
    assert report["completed"] == JOBS
    assert await queue.counted() == {"completed": JOBS}
    assert await fences(queue) == {2}


@pytest.mark.proof
async def test_i11_steps_back_take_no_lease_from_a_drain_that_beats(
    stepped_queue: DrainUnderTest, server_clock: SteppedClock, stepped_drains: Drains
) -> None:
    queue, drains = stepped_queue, stepped_drains
    await step(queue, server_clock, HOUR)
    await queue.given(JOBS)
    with queue.provider.holding():
        working = drains.start()
        await until(lambda: queue.provider.requests)

        for offset in (timedelta(0), -HOUR, -1.5 * HOUR):
            await step(queue, server_clock, offset)
            assert await queue.jobs.recover_expired(limit=JOBS) == []
            await beaten(queue)
    report = await drains.report(working)

    assert (report["completed"], report["lost"]) == (JOBS, 0)
    assert await fences(queue) == {1}


@pytest.mark.parametrize("back", [pytest.param(HOUR / 2, marks=pytest.mark.proof), HOUR])
async def test_i10_after_a_step_back_the_jobs_of_a_dead_drain_are_done_by_another(
    stepped_queue: DrainUnderTest,
    server_clock: SteppedClock,
    stepped_drains: Drains,
    back: timedelta,
) -> None:
    queue, drains = stepped_queue, stepped_drains
    await queue.given(JOBS)
    with queue.provider.holding():
        dead = drains.start()
        await until(lambda: queue.provider.requests)
        dead.kill()

    await step(queue, server_clock, -back)
    report = await drains.until_all_completed(queue, JOBS)

    assert (report["recovered"], report["completed"]) == (JOBS, JOBS)
    assert await fences(queue) == {2}


@pytest.mark.proof
async def test_m20_after_a_step_back_retries_do_not_wait_for_the_clock_to_catch_up(
    stepped_queue: DrainUnderTest, server_clock: SteppedClock, stepped_drains: Drains
) -> None:
    queue, drains = stepped_queue, stepped_drains
    await queue.given(JOBS)
    queue.provider.answer_with = but_not_to_the_probe(lambda _: failure(500, "down", None))
    report = await drains.report(drains.start())
    assert report["retried"] == JOBS

    await step(queue, server_clock, -HOUR)
    queue.provider.answer_with = None
    report = await drains.until_all_completed(queue, JOBS)

    assert report["completed"] == JOBS
    assert {job.attempts for job in await queue.admin.find_jobs(JobFilter())} == {2}


@pytest.mark.proof
async def test_m9_a_step_back_neither_closes_nor_opens_the_rate_limit(
    stepped_queue: DrainUnderTest, server_clock: SteppedClock, stepped_drains: Drains
) -> None:
    queue, drains = stepped_queue, stepped_drains
    drains.environment |= {
        "EMBEDDING_RATE_LIMIT_TOKENS": "2",
        "EMBEDDING_RATE_LIMIT_INTERVAL": "3000",
    }
    await queue.given(JOBS)
    running = drains.start(jobs_per_request=1)
    await until(lambda: len(queue.provider.requests) >= 2)

    await step(queue, server_clock, -HOUR)
    report = await drains.report(running)

    assert report["completed"] == JOBS
    assert most_in_any_window(queue.provider.times, 3.0) <= 2
