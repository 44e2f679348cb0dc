"""A drain that stays for a while although nothing is due, with time that the test moves."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.job import JobStatus, NewJob
from embed_pipeline.domain.results import LeaseBatch, RecoveredJob
from embed_pipeline.domain.text import RECIPE, render_for
from embed_pipeline.embedding.mock import MockEmbedder
from embed_pipeline.testing.clock import FakeClock
from embed_pipeline.testing.limiter import FakeRateLimiter
from embed_pipeline.testing.memory import FakeQueue
from embed_pipeline.worker.engine import Drain
from embed_pipeline.worker.intake import Intake
from embed_pipeline.worker.lease_keeper import Holdings
from embed_pipeline.worker.options import DrainOptions, Parts
from embed_pipeline.worker.report import DrainReport, Ending
from embed_pipeline.worker.settling import Settler
from tests.support.drain_harness import until

MODEL = "mock-model"
PAUSE = timedelta(seconds=1) / 64
"""A power of two, so that times add up exactly as floats."""
MINUTE = timedelta(minutes=1)
OPTIONS = DrainOptions(idle_pause=PAUSE, linger=10 * MINUTE)


@pytest.fixture
def clock() -> FakeClock:
    """The worker's clock; the event loop keeps its own."""
    return FakeClock()


@dataclass
class WatchedQueue(FakeQueue):
    """Notes what it is asked."""

    calls: Counter[str] = field(default_factory=Counter)
    counted: Counter[str] = field(default_factory=Counter)

    async def lease(self, **options: Any) -> LeaseBatch:
        self.calls["lease"] += 1
        return await super().lease(**options)

    async def recover_expired(self, **options: Any) -> list[RecoveredJob]:
        self.calls["recover"] += 1
        return await super().recover_expired(**options)

    async def count(self, counts: Mapping[str, int]) -> None:
        self.counted.update(counts)

    async def given(self, uid: str) -> None:
        self.put_entity(uid, f"text of {uid}")
        await self.enqueue([NewJob(uid, MODEL)])


@dataclass
class Lingering:
    """A drain that is under way."""

    queue: WatchedQueue
    clock: FakeClock
    report: DrainReport
    running: asyncio.Task[DrainReport]
    stop: asyncio.Event

    async def look(self) -> None:
        """Let one pause go by, and wait for what the drain does then."""
        looks = self.queue.calls["lease"]
        self.clock.advance(PAUSE)
        await until(lambda: self.queue.calls["lease"] > looks or self.running.done())

    async def completed(self, count: int) -> None:
        """Wait for so many completed jobs, and for two looks that find no more."""
        await until(lambda: self.report.completed == count)
        await self.look()
        await self.look()


@pytest.fixture
def queue(clock: FakeClock) -> WatchedQueue:
    return WatchedQueue(clock=clock)


StartDrain = Callable[..., Lingering]


def parts_on(queue: WatchedQueue, clock: FakeClock) -> Parts:
    @asynccontextmanager
    async def open_store() -> AsyncGenerator[WatchedQueue]:
        yield queue

    return Parts(
        store=queue,
        open_store=open_store,
        limiter=FakeRateLimiter(),
        switch=queue,
        counters=queue,
        embedder=MockEmbedder(model=MODEL, dimensions=4),
        render=render_for(EntityShape()),
        recipe=RECIPE,
        clock=clock.monotonic,
    )


@pytest.fixture
def start(queue: WatchedQueue, clock: FakeClock) -> StartDrain:
    def start(**options: Any) -> Lingering:
        stop = asyncio.Event()
        parts = parts_on(queue, clock)
        drain = Drain(parts, owner="run-1", options=replace(OPTIONS, **options), stop=stop)
        return Lingering(queue, clock, drain.report, asyncio.create_task(drain.run()), stop)

    return start


@pytest.mark.parametrize(
    ("silence", "pause"), [(0, 0.1), (4, 0.1), (8, 0.2), (12, 0.3), (60, 0.3), (3_600, 0.3)]
)
def test_a_drain_looks_soon_after_work_and_slower_when_nothing_comes(
    silence: float, pause: float
) -> None:
    assert DrainOptions().pause_after(silence) == pytest.approx(pause)


@pytest.mark.parametrize(("after", "most"), [(0.0, 600), (12.0, 200), (600.0, 200)])
def test_the_looks_of_a_minute_are_bounded(after: float, most: int) -> None:
    options, looks, silence = DrainOptions(), 0, after
    while silence < after + 60:
        silence += options.pause_after(silence)
        looks += 1

    assert looks <= most + 1  # whose last one may begin the next minute


async def test_silence_begins_anew_with_every_job(queue: WatchedQueue, clock: FakeClock) -> None:
    report = DrainReport("run-1", MODEL)
    settler = Settler(queue, Holdings(clock.monotonic), report)
    intake = Intake(parts_on(queue, clock), DrainOptions(linger=10 * MINUTE), settler, report)
    await intake.take()
    clock.advance(MINUTE)
    await intake.take()
    at_rest = intake.pause

    await queue.given("ada")
    await intake.take()

    assert (at_rest, intake.pause) == (pytest.approx(0.3), pytest.approx(0.1))


async def test_it_ends_when_its_last_job_is_long_enough_ago(
    queue: WatchedQueue, start: StartDrain
) -> None:
    await queue.given("first")
    drain = start()
    await drain.completed(1)

    drain.clock.advance(9 * MINUTE)
    await drain.look()
    stayed = not drain.running.done()
    drain.clock.advance(MINUTE)
    report = await drain.running

    assert stayed
    assert report.ending is Ending.EMPTY


async def test_a_job_that_comes_meanwhile_is_embedded_and_prolongs_the_stay(
    queue: WatchedQueue, start: StartDrain
) -> None:
    await queue.given("first")
    drain = start()
    await drain.completed(1)

    drain.clock.advance(9 * MINUTE)
    await queue.given("late")
    await drain.completed(2)
    drain.clock.advance(9 * MINUTE)
    await drain.look()
    stayed = not drain.running.done()
    drain.clock.advance(MINUTE)
    report = await drain.running

    assert stayed
    assert (report.completed, report.ending) == (2, Ending.EMPTY)
    assert queue.entities["late"].vector is not None


async def test_one_that_never_gets_a_job_stays_as_long(
    queue: WatchedQueue, start: StartDrain
) -> None:
    drain = start()
    await until(lambda: queue.calls["lease"])
    await drain.look()
    await drain.look()

    stayed = not drain.running.done()
    drain.clock.advance(10 * MINUTE)
    report = await drain.running

    assert stayed
    assert (report.leased, report.ending) == (0, Ending.EMPTY)


async def test_time_without_anything_to_do_does_not_count_against_its_speed(
    queue: WatchedQueue, start: StartDrain
) -> None:
    await queue.given("first")
    drain = start()
    await drain.completed(1)

    drain.clock.advance(10 * MINUTE)
    report = await drain.running

    assert report.seconds_idle >= 600
    assert replace(report, seconds=660.0).throughput == pytest.approx(
        1 / (660.0 - report.seconds_idle)
    )


async def test_it_holds_nothing_while_it_lingers(queue: WatchedQueue, start: StartDrain) -> None:
    await queue.given("first")
    drain = start()
    await drain.completed(1)

    held = [job for job in queue.jobs.values() if job.lock_owner is not None]
    drain.stop.set()
    await drain.running

    assert held == []


async def test_a_stop_ends_it_without_waiting_for_the_next_look(
    queue: WatchedQueue, start: StartDrain
) -> None:
    drain = start(idle_pause=timedelta(hours=1), recovery_interval=timedelta(0))
    await until(lambda: queue.calls["lease"])

    drain.stop.set()
    report = await drain.running

    assert report.ending is Ending.STOPPED
    assert queue.calls["lease"] == 1


async def test_it_does_not_stay_longer_than_its_budget_of_time(
    queue: WatchedQueue, start: StartDrain
) -> None:
    await queue.given("first")
    drain = start(max_time=5 * MINUTE)
    await drain.completed(1)

    drain.clock.advance(5 * MINUTE)
    report = await drain.running

    assert report.ending is Ending.BUDGET


async def test_a_queue_that_is_paused_ends_it(queue: WatchedQueue, start: StartDrain) -> None:
    drain = start()
    await until(lambda: queue.calls["lease"])

    await queue.pause(by="alice")
    await drain.look()
    report = await drain.running

    assert (report.ending, report.reason) == (Ending.CLOSED, "paused by alice")


async def test_recovery_and_counting_go_on(queue: WatchedQueue, start: StartDrain) -> None:
    await queue.given("first")
    drain = start(recovery_interval=MINUTE)
    await drain.completed(1)
    await queue.given("of a dead worker")
    await queue.lease(owner="dead", model=MODEL, limit=1, duration=timedelta(seconds=30))

    drain.clock.advance(MINUTE)
    await until(lambda: drain.report.recovered == 1 and queue.counted["requests"] == 1)
    while drain.report.completed < 2:
        drain.clock.advance(timedelta(seconds=1))
        await drain.look()
    drain.stop.set()
    report = await drain.running

    assert queue.calls["recover"] == 2
    assert report.completed == 2
    assert (await queue.counts())[JobStatus.COMPLETED] == 2
