"""Drains in processes of their own: killed, suspended, and several under one limit."""

import signal
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from embed_pipeline.domain.job import JobFilter
from tests.conftest import TestServer
from tests.support.drain_harness import DrainUnderTest, until
from tests.support.drain_launcher import Drains, environment_for
from tests.support.openai_server import most_in_any_window

LEASE_MS = 15_000
"""Of drains that are killed or suspended; one that finishes their jobs has a lease that holds."""


@pytest.fixture
def drains(neo4j_server: TestServer, queue: DrainUnderTest) -> Iterator[Drains]:
    started = Drains(environment_for(neo4j_server, queue.provider, lease_ms=LEASE_MS))
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
    for job in await queue.admin.find_jobs(JobFilter()):
        assert f"job={job.id} recovered from owner={first['owner']}" in drains.said()
    assert (first["completed"], first["lost"]) == (0, 10)
    assert await queue.counted() == {"completed": 10}
    assert [await queue.vector(f"e{n}") for n in range(10)] == vectors
    assert {job.fence for job in await queue.admin.find_jobs(JobFilter())} == {2}


async def test_m9_m68_four_processes_keep_one_limit_with_only_neo4j_between_them(
    queue: DrainUnderTest, drains: Drains, neo4j_server: TestServer
) -> None:
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
    known = {urlsplit(neo4j_server.uri).port or 7687, queue.provider.port}
    assert all(set(report["peers"]) <= known for report in reports)
    assert any(report["peers"] for report in reports)


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
    assert (report["threads"], report["sockets"]) == (["MainThread"], 0)
