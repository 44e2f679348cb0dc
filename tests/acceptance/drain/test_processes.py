"""Drains in processes of their own: killed, suspended, and several under one limit."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from embed_pipeline.domain.filters import JobFilter
from tests.conftest import TestServer
from tests.drain_harness import DrainUnderTest, until
from tests.openai_server import KEY, most_in_any_window
from tests.project import ROOT
from tests.queue_harness import DIMENSIONS, MODEL

LEASE_MS = 6_000


class Drains:
    """Starts drains, and ends those that a test has left."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self._started: list[subprocess.Popen[str]] = []

    def start(self, **options: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.drain_process", json.dumps(options)],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    async def report(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        said, _ = await asyncio.to_thread(process.communicate)
        assert process.returncode == 0
        return json.loads(said)

    async def until_all_completed(self, queue: DrainUnderTest, jobs: int) -> dict[str, Any]:
        """Run a drain that waits for jobs to come back, until all are done."""
        process = self.start(until_empty=False)
        async with asyncio.timeout(120):
            # What is waited for happens in another process.
            while (await queue.counted()).get("completed") != jobs:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        process.terminate()
        return await self.report(process)

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def drains(neo4j_server: TestServer, queue: DrainUnderTest) -> Iterator[Drains]:
    started = Drains(
        {
            **os.environ,
            **neo4j_server.environment,
            "EMBED_JOB_RETENTION_DAYS": "14",
            "EMBED_JOB_LOCK_DURATION_MS": str(LEASE_MS),
            "EMBED_JOB_RECOVERY_INTERVAL": "200",
            "EMBEDDING_MODEL": MODEL,
            "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
            "EMBEDDING_RATE_LIMIT_TOKENS": "1000",
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": queue.provider.base_url,
        }
    )
    yield started
    started.end()


async def test_m26_jobs_of_a_killed_drain_complete_with_nothing_done_by_hand(
    queue: DrainUnderTest, drains: Drains
) -> None:
    await queue.given(10)
    queue.provider.gate.clear()
    killed = drains.start()
    await until(lambda: queue.provider.requests)

    killed.kill()
    queue.provider.gate.set()
    report = await drains.until_all_completed(queue, 10)

    assert report["recovered"] == 10
    assert await queue.counted() == {"completed": 10}
    jobs = await queue.admin.find_jobs(JobFilter())
    assert {job.attempts for job in jobs} == {2}
    assert {job.fence for job in jobs} == {2}


async def test_m29_a_suspended_drain_loses_its_jobs_and_writes_nothing_when_it_wakes(
    queue: DrainUnderTest, drains: Drains
) -> None:
    await queue.given(10)
    queue.provider.gate.clear()
    suspended = drains.start()
    await until(lambda: queue.provider.requests)

    suspended.send_signal(signal.SIGSTOP)
    queue.provider.gate.set()
    second = await drains.until_all_completed(queue, 10)
    vectors = [await queue.vector(f"e{n}") for n in range(10)]
    suspended.send_signal(signal.SIGCONT)
    first = await drains.report(suspended)

    assert second["recovered"] == second["completed"] == 10
    assert (first["completed"], first["lost"]) == (0, 10)
    assert await queue.counted() == {"completed": 10}
    assert [await queue.vector(f"e{n}") for n in range(10)] == vectors
    assert {job.fence for job in await queue.admin.find_jobs(JobFilter())} == {2}


async def test_m9_four_processes_keep_one_limit(queue: DrainUnderTest, drains: Drains) -> None:
    await queue.given(24)
    drains.environment |= {
        "EMBEDDING_RATE_LIMIT_TOKENS": "6",
        "EMBEDDING_RATE_LIMIT_INTERVAL": "3000",
        "EMBED_JOB_LOCK_DURATION_MS": "60000",
    }

    running = [drains.start(jobs_per_request=1, jobs_per_lease=4) for _ in range(4)]
    reports = [await drains.report(process) for process in running]

    assert sum(report["completed"] for report in reports) == 24
    assert len(queue.provider.times) == 24
    assert most_in_any_window(queue.provider.times, 3.0) <= 6


async def test_m49_m53_a_terminated_drain_leaves_nothing_owned(
    queue: DrainUnderTest, drains: Drains
) -> None:
    await queue.given(40)
    queue.provider.gate.clear()
    process = drains.start(jobs_per_request=5, jobs_per_lease=20, requests_at_once=2)
    await until(lambda: len(queue.provider.requests) == 2)

    process.terminate()
    queue.provider.gate.set()
    report = await drains.report(process)

    assert report["ending"] == "it was told to stop"
    assert report["completed"] == 10
    assert await queue.counted() == {"completed": 10, "pending": 30}
    owned = await queue.run("MATCH (j:EmbedJob) WHERE j.lock_owner IS NOT NULL RETURN j.id")
    assert owned == []
