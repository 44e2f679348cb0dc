"""The clock of a worker's machine is wrong: nobody asks it, so nothing changes."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import LiteralString

import pytest

from embed_pipeline.domain.job import JobFilter
from tests.proof.clocks.conftest import LEASE_MS
from tests.proof.clocks.stepped_clock import HOUR, SteppedClock
from tests.support.drain_harness import DrainUnderTest, until
from tests.support.drain_launcher import Drains

JOBS = 6


@pytest.fixture
def worker_clock(tmp_path: Path) -> SteppedClock:
    return SteppedClock(tmp_path / "worker")


async def lease_lengths(queue: DrainUnderTest) -> list[int]:
    """How long the leases still last by the server's clock, in milliseconds."""
    rows = await queue.run(
        """
        MATCH (j:EmbedProcessing)
        RETURN j.lock_until - datetime.realtime().epochMillis AS left
        """
    )
    return [row["left"] for row in rows]


async def next_heartbeat(queue: DrainUnderTest) -> None:
    """Wait until all leases end later than now."""
    last: LiteralString = "MATCH (j:EmbedProcessing) RETURN min(j.lock_until) AS until"
    [before] = await queue.run(last)
    async with asyncio.timeout(300):
        while (await queue.run(last))[0]["until"] <= before["until"]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("offset", [HOUR, -HOUR])
async def test_a_wrong_clock_makes_leases_neither_longer_nor_shorter(
    queue: DrainUnderTest, drains: Drains, worker_clock: SteppedClock, offset: timedelta
) -> None:
    await queue.given(JOBS)
    worker_clock.set(offset)
    with queue.provider.holding():
        wrong = drains.start(environment=worker_clock.environment)
        await until(lambda: queue.provider.requests)

        left = await lease_lengths(queue)
        second = await drains.report(drains.start(environment=worker_clock.environment))
        taken = await queue.jobs.recover_expired(limit=JOBS)
    report = await drains.report(wrong)

    assert len(left) == JOBS
    assert all(0 < each <= LEASE_MS for each in left)
    assert (second["recovered"], taken) == (0, [])
    assert (report["completed"], report["lost"]) == (JOBS, 0)
    assert {job.fence for job in await queue.admin.find_jobs(JobFilter())} == {1}


async def test_a_clock_that_jumps_between_heartbeats_changes_nothing(
    queue: DrainUnderTest, drains: Drains, worker_clock: SteppedClock
) -> None:
    await queue.given(JOBS)
    with queue.provider.holding():
        jumping = drains.start(environment=worker_clock.environment)
        await until(lambda: queue.provider.requests)

        for offset in (HOUR, -HOUR):
            worker_clock.set(offset)
            await next_heartbeat(queue)
            assert await queue.jobs.recover_expired(limit=JOBS) == []
    report = await drains.report(jumping)

    assert (report["completed"], report["lost"], report["heartbeats_failed"]) == (JOBS, 0, 0)
