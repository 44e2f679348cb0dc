"""One structured line for each event of a drain, with the ids of its jobs."""

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.job import Lease, NewJob
from embed_pipeline.domain.results import Completion
from embed_pipeline.domain.text import RECIPE, render_for
from embed_pipeline.domain.vector import vector_of
from embed_pipeline.embedding.mock import MockEmbedder
from embed_pipeline.testing.limiter import FakeRateLimiter
from embed_pipeline.testing.memory import FakeQueue
from embed_pipeline.worker.engine import Drain
from embed_pipeline.worker.lease_keeper import Heartbeat, Holdings
from embed_pipeline.worker.options import DrainOptions, Parts
from embed_pipeline.worker.report import DrainReport
from embed_pipeline.worker.settling import Settler

MODEL = "mock-model"
OWNER = "run-1/host/7"
LEASE = timedelta(hours=1)


class Counted:
    def __init__(self) -> None:
        self.totals = Counter[str]()

    async def count(self, counts: Mapping[str, int]) -> None:
        self.totals.update(counts)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger="embed_pipeline")
    return caplog


@pytest.fixture
async def queue() -> FakeQueue:
    queue = FakeQueue()
    for uid in ("ada", "eve"):
        queue.put_entity(uid, f"text of {uid}")
    await queue.enqueue([NewJob("ada", MODEL), NewJob("eve", MODEL)])
    return queue


async def leased(queue: FakeQueue) -> tuple[Holdings, list[Lease]]:
    batch = await queue.lease(owner=OWNER, model=MODEL, limit=2, duration=LEASE)
    leases = [item.lease for item in batch.jobs]
    holdings = Holdings()
    holdings.add(leases, deadline=float("inf"))
    return holdings, leases


def line_about(lines: pytest.LogCaptureFixture, what: str) -> tuple[int, str]:
    [(level, text)] = [
        (level, text) for _, level, text in lines.record_tuples if text.startswith(f"{what} ")
    ]
    return level, text


async def test_m80_a_drain_says_what_it_acquires_and_what_it_holds_at_its_end(
    queue: FakeQueue, lines: pytest.LogCaptureFixture
) -> None:
    @asynccontextmanager
    async def open_store() -> AsyncGenerator[FakeQueue]:
        yield queue

    counted = Counted()
    parts = Parts(
        store=queue,
        open_store=open_store,
        limiter=FakeRateLimiter(),
        switch=queue,
        counters=counted,
        embedder=MockEmbedder(model=MODEL, dimensions=4),
        render=render_for(EntityShape()),
        recipe=RECIPE,
    )

    await Drain(parts, owner=OWNER, options=DrainOptions(idle_pause=timedelta(0))).run()

    assert counted.totals["completed"] == 2
    level, acquired = line_about(lines, "acquired")
    assert level == logging.INFO
    assert f"owner={OWNER} run=run-1 jobs=2 ids=" in acquired
    assert all(id_ in acquired for id_ in queue.jobs)
    assert line_about(lines, "shutdown") == (
        logging.INFO,
        f"shutdown owner={OWNER} run=run-1 jobs=0 ids=",
    )


async def test_m80_a_release_names_its_jobs(
    queue: FakeQueue, lines: pytest.LogCaptureFixture
) -> None:
    holdings, leases = await leased(queue)

    await Settler(queue, holdings, DrainReport(OWNER, MODEL)).release(leases)

    level, said = line_about(lines, "released")
    assert level == logging.INFO
    assert all(lease.job_id in said for lease in leases)


async def test_m80_a_heartbeat_names_its_jobs_for_whoever_debugs(
    queue: FakeQueue, lines: pytest.LogCaptureFixture
) -> None:
    holdings, leases = await leased(queue)
    report: Any = DrainReport(OWNER, MODEL)
    heart = Heartbeat(holdings, report, lambda: queue, interval=LEASE / 3, lease=LEASE)  # pyright: ignore

    await heart._extend(queue, leases)

    level, said = line_about(lines, "heartbeat")
    assert level == logging.DEBUG
    assert all(lease.job_id in said for lease in leases)


async def test_m80_a_fenced_write_names_its_job(
    queue: FakeQueue, lines: pytest.LogCaptureFixture
) -> None:
    holdings, leases = await leased(queue)
    await queue.recover_owner("run-1")

    vector = vector_of([1.0, 0.0, 0.0, 0.0])
    rows = [Completion(lease, vector, "hash") for lease in leases]
    await Settler(queue, holdings, DrainReport(OWNER, MODEL)).complete(rows)

    for lease in leases:
        level, said = line_about(lines, f"job={lease.job_id}")
        assert level == logging.WARNING
        assert said.endswith(f"owner={OWNER} run=run-1 fenced")
