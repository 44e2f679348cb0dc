"""A provider that is down fails no job, costs no attempt, and is noticed when it is back."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from starlette.responses import HTMLResponse, Response

from embed_pipeline.domain.breaker import BreakerStatus
from embed_pipeline.domain.errors import PROBE_WORD, OutageError
from embed_pipeline.store.queue import open_queue
from embed_pipeline.testing.clock import FakeClock
from embed_pipeline.worker.report import DrainReport, Ending
from tests.support.drain_harness import DrainUnderTest, until
from tests.support.openai_server import failure, vectors

JOBS = 1_000
DRAINS, AT_ONCE = 2, 4
HOUR = timedelta(hours=1)


def is_probe(body: dict[str, Any]) -> bool:
    return body["input"] == [PROBE_WORD]


def down(_: dict[str, Any]) -> Response:
    return failure(503, "overloaded", None)


class MovedTime:
    """Drains one after the other, as the sensor starts them, on a clock that the test moves."""

    def __init__(self, queue: DrainUnderTest, *, roll: float = 0.0) -> None:
        self.queue = queue
        self.clock: FakeClock = queue.clock
        queue.limiter_clock = self.clock
        moved = open_queue(
            queue.driver,
            database=queue.database,
            config=replace(queue.config, roll=lambda: roll),
            clock=self.clock,
        )
        queue.jobs, queue.switch = moved.jobs, moved.switch
        self.began = self.clock.now
        self.reports: list[DrainReport] = []

    @property
    def passed(self) -> timedelta:
        return self.clock.now - self.began

    async def drain(self, **options: Any) -> DrainReport:
        self.reports.append(await self.queue.drained(**options))
        return self.reports[-1]

    async def until_next_try(self) -> None:
        breaker = (await self.queue.switch.state()).breaker
        assert breaker.probe_at is not None
        self.clock.advance(max(breaker.probe_at - self.clock.now, timedelta(seconds=1)))


@pytest.fixture
def moved(queue: DrainUnderTest) -> MovedTime:
    return MovedTime(queue)


async def test_m72_the_pauses_grow_from_ten_seconds_to_five_minutes(
    queue: DrainUnderTest, moved: MovedTime
) -> None:
    await queue.given(1)
    queue.provider.answer_with = down
    pauses = []

    for _ in range(7):
        await moved.drain()
        breaker = (await queue.switch.state()).breaker
        assert breaker.probe_at is not None
        pauses.append((breaker.probe_at - moved.clock.now).total_seconds())
        await moved.until_next_try()

    assert pauses == [10, 20, 40, 80, 160, 300, 300]
    assert (await queue.switch.state()).breaker.since == moved.began


async def test_m72_a_try_comes_up_to_a_tenth_of_its_pause_sooner(queue: DrainUnderTest) -> None:
    moved = MovedTime(queue, roll=1.0)

    breaker = await queue.switch.open_breaker("down", is_outage=True)

    assert breaker.probe_at == moved.began + timedelta(seconds=9)


def garbage(_: dict[str, Any]) -> Response:
    return HTMLResponse("<html>We are sorry</html>")


def hanging(_: dict[str, Any]) -> Any:
    async def answer() -> None:
        await asyncio.sleep(30)

    return answer()


def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


KINDS: dict[str, tuple[Callable[..., Any] | None, Callable[[int], str] | None, str]] = {
    "503": (down, None, "overloaded"),
    "html_with_200": (garbage, None, "the provider's answer is unreadable"),
    "hanging": (hanging, None, "longer than 2 s"),
    "connection_refused": (
        None,
        lambda _: f"http://127.0.0.1:{closed_port()}/v1",
        "Connection refused: 127.0.0.1:",
    ),
    # It speaks no TLS at this port.
    "tls_failure": (None, lambda port: f"https://127.0.0.1:{port}/v1", "no TLS, WRONG_VERSION"),
    # The system's own words differ; without any there would be no address either.
    "dns_failure": (None, lambda _: "https://no-such-host.invalid/v1", ": no-such-host.invalid"),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_m72_whatever_the_way_of_being_down_no_job_pays(
    queue: DrainUnderTest, moved: MovedTime, kind: str
) -> None:
    answer, address, said = KINDS[kind]
    await queue.given(3)
    queue.provider.answer_with = answer
    elsewhere = address(queue.provider.port) if address else None
    # A request that hangs is ended by the time that a batch has.
    timeout = timedelta(seconds=2) if kind == "hanging" else timedelta(minutes=10)

    report = await moved.drain(base_url=elsewhere, job_timeout=timeout, grace=timedelta(0))
    counted, attempts, job = await queue.counted(), await queue.attempts(), await queue.job("e0")
    breaker = (await queue.switch.state()).breaker
    queue.provider.answer_with = None
    await moved.until_next_try()
    back = await moved.drain()

    assert report.ending is Ending.OUTAGE
    assert (counted, attempts) == ({"pending": 3}, {0: 3})
    assert job.error is not None
    assert said in job.error
    assert breaker.reason is not None
    assert said in breaker.reason
    assert (breaker.status, breaker.is_outage) == (BreakerStatus.OPEN, True)
    assert report.fault is not None
    assert f"provider down since {breaker.since:%Y-%m-%d %H:%M:%S} UTC, next try at" in report.fault
    assert back.completed == 3


@pytest.mark.parametrize("kind", ["503", "connection_refused", "hanging"])
async def test_m72_an_hour_of_it_fails_nothing_costs_nothing_and_is_asked_rarely(
    queue: DrainUnderTest, moved: MovedTime, kind: str
) -> None:
    answer, address, _ = KINDS[kind]
    await queue.given(JOBS)
    queue.provider.answer_with = answer
    elsewhere = address(queue.provider.port) if address else None
    timeout = timedelta(milliseconds=100) if kind == "hanging" else timedelta(minutes=10)

    while moved.passed < HOUR:
        both = await asyncio.gather(
            *(
                moved.drain(
                    owner=f"run-{number}/test",
                    base_url=elsewhere,
                    job_timeout=timeout,
                    grace=timedelta(0),
                    jobs_per_request=100,
                    requests_at_once=AT_ONCE,
                )
                for number in range(DRAINS)
            )
        )
        assert {report.completed for report in both} == {0}
        assert Ending.OUTAGE in {report.ending for report in both}
        await moved.until_next_try()
    asked = sum(report.requests for report in moved.reports)
    seen = queue.provider.requests[:]
    counted, attempts = await queue.counted(), await queue.attempts()
    queue.provider.answer_with = None
    back = await moved.drain()

    assert (counted, attempts) == ({"pending": JOBS}, {0: JOBS})
    assert asked <= 40
    # Only those that were under way when the first one failed were for jobs.
    assert sum(not is_probe(body) for body in seen) <= DRAINS * AT_ONCE
    assert (back.ending, back.completed) == (Ending.EMPTY, JOBS)
    assert (await queue.switch.state()).breaker.status is BreakerStatus.CLOSED


async def test_m72_a_provider_that_flaps_every_20_seconds_fails_nothing(
    queue: DrainUnderTest, moved: MovedTime
) -> None:
    await queue.given(300)

    def flapping(body: dict[str, Any]) -> Response | None:
        # Every request takes three seconds.
        moved.clock.advance(timedelta(seconds=3))
        return down(body) if moved.passed.total_seconds() % 40 >= 20 else None

    queue.provider.answer_with = flapping
    while (await queue.counted()).get("pending") and moved.passed < HOUR:
        report = await moved.drain(jobs_per_request=25, requests_at_once=1, max_jobs=100)
        if report.ending is Ending.OUTAGE:
            await moved.until_next_try()

    assert await queue.counted() == {"completed": 300}
    assert any(report.ending is Ending.OUTAGE for report in moved.reports)
    assert set(await queue.attempts()) == {1}


async def test_m72_a_job_that_fails_alone_still_ends_failed_at_the_third_error(
    queue: DrainUnderTest, moved: MovedTime
) -> None:
    await queue.given(20)

    def stumbling(body: dict[str, Any]) -> Response | None:
        return down(body) if any("e7" in text.split() for text in body["input"]) else None

    queue.provider.answer_with = stumbling
    for _ in range(3):
        await moved.drain()
        moved.clock.advance(timedelta(minutes=20))

    assert {report.ending for report in moved.reports} == {Ending.EMPTY}
    assert await queue.counted() == {"completed": 19, "failed": 1}
    job = await queue.job("e7")
    assert (job.status.value, job.attempts) == ("failed", 3)
    assert (await queue.switch.state()).breaker.status is BreakerStatus.CLOSED


async def test_m72_a_drain_that_watches_sits_an_outage_out(queue: DrainUnderTest) -> None:
    await queue.given(5)
    queue.provider.answer_with = down
    stop = asyncio.Event()
    async with queue.drain(until_empty=False, stop=stop) as drain:
        running = asyncio.create_task(drain.run())
        await until(lambda: len(queue.provider.requests) >= 2)
        queue.provider.answer_with = None
        async with asyncio.timeout(60):
            while await queue.counted() != {"completed": 5}:
                await queue.run("MATCH (q:EmbedQueue) SET q.breaker_probe_at = 0")
                await asyncio.sleep(0.1)
        stop.set()
        report = await running

    assert report.ending is Ending.STOPPED
    assert await queue.attempts() == {1: 5}


async def test_m72_an_outage_in_the_middle_of_a_search_keeps_what_is_paid_for(
    queue: DrainUnderTest, moved: MovedTime
) -> None:
    """One text is bad; while it is looked for, the provider goes down."""
    await queue.given(8)
    answered: list[int] = []

    def answer(body: dict[str, Any]) -> Response:
        is_bad = any("e7" in text.split() for text in body["input"])
        if len(answered) > 3 or (is_bad and not is_probe(body)):
            answered.append(0)
            return down(body)
        answered.append(len(body["input"]))
        return vectors(body)

    queue.provider.answer_with = answer
    report = await moved.drain()

    assert report.ending is Ending.OUTAGE
    assert report.completed == 4
    assert await queue.counted() == {"completed": 4, "pending": 4}
    assert await queue.attempts() == {1: 4, 0: 4}


async def test_m72_a_pause_that_others_were_asked_for_is_no_answer_to_a_probe(
    queue: DrainUnderTest, moved: MovedTime
) -> None:
    """Nobody was asked, so nobody knows whether the provider is back."""
    await queue.given(5)
    queue.provider.answer_with = down
    await moved.drain()
    await moved.until_next_try()
    asked = len(queue.provider.requests)
    limiter = open_queue(queue.driver, database=queue.database, clock=moved.clock).limiter(
        queue.limits
    )
    await limiter.hold(timedelta(minutes=5), owner="run-2", said="slow down")

    held = await moved.drain(max_time=timedelta(seconds=30))
    breaker = (await queue.switch.state()).breaker
    moved.clock.advance(timedelta(minutes=6))
    back = await moved.drain()
    await moved.until_next_try()
    queue.provider.answer_with = None
    await moved.drain()

    assert held.requests == 0
    assert breaker.status is not BreakerStatus.CLOSED
    assert (breaker.is_outage, breaker.since) == (True, moved.began)
    # The next one to ask risks no job either.
    assert (back.ending, back.requests) == (Ending.OUTAGE, 1)
    assert is_probe(queue.provider.requests[asked])
    assert await queue.counted() == {"completed": 5}


def test_an_outage_is_a_transient_error() -> None:
    assert OutageError("x").category.value == "TRANSIENT"
