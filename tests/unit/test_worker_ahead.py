"""What a drain leases while it still reads what it leased before."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.job import JobStatus, Lease, NewJob
from embed_pipeline.domain.results import LeaseBatch, LoadedEntity
from embed_pipeline.domain.text import RECIPE, render_for
from embed_pipeline.embedding.mock import MockEmbedder
from embed_pipeline.testing.clock import FakeClock
from embed_pipeline.testing.limiter import FakeRateLimiter
from embed_pipeline.testing.memory import FakeQueue
from embed_pipeline.worker.engine import Drain
from embed_pipeline.worker.options import DrainOptions, Parts
from tests.support.drain_harness import until

MODEL = "mock-model"
A_WHILE = 30
"""Turns of the event loop in which a drain could lease far more."""


@dataclass
class GatedQueue(FakeQueue):
    """Lets a test decide when leases and readings end."""

    asked: int = 0
    """How often somebody wanted a lease."""
    leased: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    may_lease: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(99))
    may_read: asyncio.Event = field(default_factory=asyncio.Event)
    worker_clock: FakeClock = field(default_factory=FakeClock)
    lease_takes: timedelta = timedelta(0)

    async def lease(self, **options: Any) -> LeaseBatch:
        self.asked += 1
        await self.may_lease.acquire()
        self.worker_clock.advance(self.lease_takes)
        batch = await super().lease(**options)
        self.leased += [item.lease.entity_uid for item in batch.jobs]
        return batch

    async def load(
        self, leases: Sequence[Lease], *, longest: int | None = None
    ) -> list[LoadedEntity]:
        self.read += [lease.entity_uid for lease in leases]
        await self.may_read.wait()
        return await super().load(leases, longest=longest)

    async def given(self, count: int) -> None:
        for number in range(count):
            self.put_entity(f"e{number}", f"text {number}")
        await self.enqueue([NewJob(f"e{number}", MODEL) for number in range(count)])


class OpenAndShut(FakeRateLimiter):
    """Grants, until told otherwise."""

    is_shut = False

    async def acquire(self, *, tokens: int = 0) -> Any:
        if self.is_shut:
            return await self.hold(timedelta(hours=1), owner="somebody", said="wait")
        return await super().acquire(tokens=tokens)


def drain_on(queue: GatedQueue, limiter: FakeRateLimiter, stop: asyncio.Event) -> Drain:
    @asynccontextmanager
    async def open_store() -> AsyncGenerator[GatedQueue]:
        yield queue

    parts: Any = Parts(
        store=queue,
        open_store=open_store,
        limiter=limiter,
        switch=queue,
        counters=None,  # pyright: ignore[reportArgumentType]
        embedder=MockEmbedder(model=MODEL, dimensions=4),
        render=render_for(EntityShape()),
        recipe=RECIPE,
        clock=queue.worker_clock.monotonic,
    )
    return Drain(parts, owner="run-1", options=DrainOptions(jobs_per_lease=1), stop=stop)


async def test_one_lease_and_no_more_is_taken_while_the_one_before_is_read() -> None:
    queue = GatedQueue()
    await queue.given(5)
    drain = drain_on(queue, FakeRateLimiter(), asyncio.Event())
    running = asyncio.create_task(drain.run())

    await until(lambda: len(queue.leased) == 2)
    for _ in range(A_WHILE):
        await asyncio.sleep(0)

    assert (queue.leased, queue.read) == (["e0", "e1"], ["e0"])
    queue.may_read.set()
    assert (await running).completed == 5
    assert queue.read == ["e0", "e1", "e2", "e3", "e4"]


async def test_nothing_is_leased_during_a_reading_after_a_lease_that_others_held_up() -> None:
    queue = GatedQueue(may_lease=asyncio.Semaphore(1), lease_takes=timedelta(seconds=2))
    await queue.given(4)
    running = asyncio.create_task(drain_on(queue, FakeRateLimiter(), asyncio.Event()).run())

    await until(lambda: queue.read == ["e0"])
    for _ in range(A_WHILE):
        await asyncio.sleep(0)
    asked_in_the_crowd = queue.asked
    # The crowd is gone.
    queue.lease_takes = timedelta(0)
    queue.may_read.set()
    queue.may_read.clear()
    queue.may_lease.release()
    await until(lambda: queue.read == ["e0", "e1"])
    await until(lambda: queue.asked == 3)

    assert asked_in_the_crowd == 1
    assert queue.leased == queue.read == ["e0", "e1"]
    queue.may_read.set()
    for _ in range(A_WHILE):
        queue.may_lease.release()
    assert (await running).completed == 4


async def test_jobs_whose_lease_ends_in_a_pause_are_given_back_unread() -> None:
    queue, limiter, stop = (
        GatedQueue(may_lease=asyncio.Semaphore(1)),
        OpenAndShut(),
        asyncio.Event(),
    )
    await queue.given(3)
    limiter.is_shut = True
    drain = drain_on(queue, limiter, stop)
    running = asyncio.create_task(drain.run())

    await until(lambda: queue.read == ["e0"])
    queue.may_read.set()
    await until(lambda: drain.waiting > 0)
    queue.may_lease.release()
    await until(lambda: len(queue.leased) == 2)
    await until(lambda: not any(job.lock_owner for job in queue.jobs.values()))

    assert queue.read == ["e0"]
    assert {(job.status, job.attempts) for job in queue.jobs.values()} == {(JobStatus.PENDING, 0)}
    stop.set()
    await running
