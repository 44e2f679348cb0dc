"""A server of its own that is killed and started again in the middle of a drain."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from embed_pipeline.devserver.neo4j_server import Neo4jServer
from embed_pipeline.devserver.temporary import temporary_server
from embed_pipeline.store.connection import Connection, open_driver
from embed_pipeline.store.job_store import Neo4jJobStore
from embed_pipeline.worker.report import DrainReport, Ending
from tests.conftest import QUICK, SMALL
from tests.support.drain_harness import DrainUnderTest, until
from tests.support.openai_server import OpenAIServer

JOBS = 300
WAITS = re.compile(r"Neo4j does not answer \(\w+\); waiting until it does")
"""Which error it is depends on what was under way: a commit whose answer is lost has its own."""
SHORT_PATIENCE = timedelta(seconds=1)
"""With the half minute of production the drain would hardly notice so short an outage."""


@pytest.fixture(scope="module")
def own_server() -> Iterator[Neo4jServer]:
    """A server that a test may kill; whoever does starts it again."""
    with temporary_server(memory=SMALL, tuning=QUICK) as server:
        yield server


@pytest.fixture
async def queue(own_server: Neo4jServer, provider: OpenAIServer) -> AsyncIterator[DrainUnderTest]:
    connection = Connection(own_server.uri, own_server.username, own_server.password)
    async with open_driver(connection) as driver:
        under_test = DrainUnderTest(driver, "neo4j", connection=connection, server=provider)
        await under_test.wipe()
        yield under_test


@pytest.mark.proof
async def test_a_watching_drain_outlives_a_restart_and_counts_what_happened(
    queue: DrainUnderTest, own_server: Neo4jServer
) -> None:
    await queue.given(JOBS)
    queue.provider.latency = 0.2
    database = replace(queue.queue.database, patience=SHORT_PATIENCE)
    stop, said = asyncio.Event(), list[str]()

    async with queue.drain(
        store=Neo4jJobStore(database, queue.config),
        until_empty=False,
        stop=stop,
        say=said.append,
        jobs_per_lease=100,
        jobs_per_request=20,
        heartbeat=timedelta(seconds=1),
    ) as drain:
        running = asyncio.create_task(drain.run())
        await until(lambda: drain.report.completed >= 50)
        pid = own_server.status().pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda: any(WAITS.search(line) for line in said) or running.done())
        await asyncio.to_thread(own_server.start)
        await asyncio.to_thread(own_server.wait_until_ready)
        await until(lambda: drain.report.completed >= JOBS or running.done())
        stop.set()
        report = await running

    assert report.ending is Ending.STOPPED
    assert WAITS.fullmatch(said[0])
    assert "Neo4j answers again" in said[-1]
    assert await queue.counted() == {"completed": JOBS}
    assert report.completed == JOBS
    assert added_up(report) == report.leased
    # One worker, no lease that ran out: nothing was taken away from it.
    assert (report.fenced, report.lost) == (0, 0)
    assert (await queue.counters())["fenced"] == 0
    assert set(await queue.attempts()) == {1}


def added_up(report: DrainReport) -> int:
    """Every way in which a lease can end."""
    return (
        report.completed
        + report.failed.total()
        + report.retried
        + report.given_back
        + report.released
        + report.superseded
        + report.moved
        + report.fenced
        + report.lost
    )
