"""What a drain promises, through the real store and a real HTTP server."""

import asyncio
import math
import time
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from starlette.responses import Response

from embed_pipeline.domain.breaker import BreakerStatus
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import JobFilter, JobStatus, NewJob
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.domain.results import RecoveredJob
from embed_pipeline.embedding.tokens import prepare
from embed_pipeline.testing.clock import FakeClock
from embed_pipeline.worker import chores as recovery, processing
from embed_pipeline.worker.engine import Drain
from embed_pipeline.worker.options import DrainOptions
from embed_pipeline.worker.report import Ending
from tests.support.drain_harness import DrainUnderTest, until
from tests.support.openai_server import but_not_to_the_probe, failure, most_in_any_window, vectors
from tests.support.queue_harness import MODEL

SECOND = timedelta(seconds=1)


async def test_a_backlog_is_completed_in_few_requests(queue: DrainUnderTest) -> None:
    await queue.given(300)

    report = await queue.drained(jobs_per_request=100)

    assert await queue.counted() == {"completed": 300}
    assert (report.leased, report.completed, report.requests) == (300, 300, 3)
    assert report.ending is Ending.EMPTY
    assert len(queue.provider.requests) == 3
    assert await queue.vector("e0") is not None


@pytest.mark.parametrize("jobs", [5_000, pytest.param(20_000, marks=pytest.mark.proof)])
async def test_m66_a_backlog_fits_into_one_window_of_the_default_limit(
    queue: DrainUnderTest, jobs: int
) -> None:
    queue.limits = RateLimits()
    await queue.given(jobs)

    report = await queue.drained()

    assert (queue.limits.requests, queue.limits.interval) == (20, timedelta(minutes=1))
    assert await queue.counted() == {"completed": jobs}
    assert report.requests == math.ceil(jobs / 2_048)
    assert report.released == 0


def holds(drain: Drain) -> int:
    """How many jobs it has; one lease under way may take again what was just given back."""
    return drain.report.leased - drain.report.released - drain.report.completed


async def test_m19_what_the_limit_leaves_is_released_and_finishes_by_itself(
    queue: DrainUnderTest,
) -> None:
    queue.limits = RateLimits(requests=3, interval=timedelta(hours=1))
    queue.limiter_clock = clock = FakeClock()
    await queue.given(10)

    async with queue.drain(jobs_per_request=1, jobs_per_lease=10) as drain:
        running = asyncio.create_task(drain.run())
        await until(lambda: drain.report.released >= 7 and holds(drain) == 0)
        in_the_pause = await queue.counted(), await queue.attempts()
        while not running.done():
            clock.advance(timedelta(hours=2))
            await asyncio.sleep(0.1)
        report = await running

    assert in_the_pause == ({"completed": 3, "pending": 7}, {0: 7, 1: 3})
    assert await queue.counted() == {"completed": 10}
    assert await queue.attempts() == {1: 10}
    assert report.seconds_waiting > 0


async def nearly_expired(queue: DrainUnderTest, drain: Drain) -> list[RecoveredJob]:
    """Let a lease come close to its end, and a beat extend it; says what recovery takes."""
    assert queue.store_clock is not None
    beats = drain.report.heartbeats
    # The first of the two may have begun before the time was moved.
    await until(lambda: drain.report.heartbeats >= beats + 2)
    queue.store_clock.advance(DrainOptions().lease - SECOND)
    return await queue.jobs.recover_expired(limit=100)


async def test_m5_m21_jobs_in_flight_keep_their_lease_through_a_pause_longer_than_it(
    queue: DrainUnderTest,
) -> None:
    queue = queue.on_a_clock()
    queue.limits = RateLimits(requests=1, interval=timedelta(hours=2))
    await queue.given(2)
    queue.provider.gate.clear()

    async with queue.drain(
        jobs_per_request=1, heartbeat=SECOND / 20, max_time=timedelta(hours=1)
    ) as drain:
        running = asyncio.create_task(drain.run())
        await until(lambda: drain.report.released >= 1 and holds(drain) == 1)
        released_at_once = await queue.counted()
        recovered = [await nearly_expired(queue, drain) for _ in range(3)]
        queue.provider.gate.set()
        report = await running

    assert released_at_once == {"processing": 1, "pending": 1}
    assert recovered == [[], [], []]
    assert report.completed == 1
    [done] = await queue.admin.find_jobs(JobFilter(statuses=frozenset({JobStatus.COMPLETED})))
    assert (done.fence, done.attempts, done.last_owner) == (1, 1, report.owner)


async def test_m9_no_window_holds_more_than_the_limit_of_two_drains_together(
    queue: DrainUnderTest,
) -> None:
    queue.limits = RateLimits(requests=5, interval=SECOND)
    await queue.given(20)

    await asyncio.gather(
        queue.drained(owner="run-1/a", jobs_per_request=1, jobs_per_lease=4),
        queue.drained(owner="run-2/b", jobs_per_request=1, jobs_per_lease=4),
    )

    assert await queue.counted() == {"completed": 20}
    assert most_in_any_window(queue.provider.times, 1.0) <= 5


async def test_a_429_pauses_everybody_and_burns_no_attempt(queue: DrainUnderTest) -> None:
    await queue.given(5)
    answers: list[Response | None] = [
        failure(429, "slow down", "rate_limit_exceeded", **{"retry-after-ms": "300"})
    ]
    queue.provider.answer_with = lambda _: answers.pop() if answers else None

    report = await queue.drained()

    assert await queue.counted() == {"completed": 5}
    assert await queue.attempts() == {1: 5}
    # A lease under way when the pause begins may take what was just given back, and returns it.
    assert report.released >= 5
    counters = await queue.counters()
    assert (counters["requests"], counters["requests_limited"]) == (2, 1)
    assert counters["released"] == report.released
    assert queue.provider.times[1] - queue.provider.times[0] >= 0.3


async def test_a_429_holds_all_other_workers_too(queue: DrainUnderTest) -> None:
    await queue.given(1)
    queue.provider.answer_with = lambda _: failure(
        429, "slow down", "rate_limit_exceeded", **{"retry-after": "600"}
    )

    report = await queue.drained(max_time=120 * SECOND)

    found = await queue.queue.limiter(queue.limits).peek()
    assert found.wait > 120 * SECOND
    assert report.ending is Ending.BUDGET
    assert report.reason == f"the rate limit lasts longer than the time left; {found.hold}"
    assert "told run-1/test of queue default to wait until 20" in str(found.hold)
    assert 'slow down"' in str(found.hold)
    assert report.holds_clamped == 0


async def test_a_drain_that_waits_for_the_provider_goes_on_when_the_pause_is_cleared(
    queue: DrainUnderTest,
) -> None:
    await queue.given(1)
    answers: list[Response | None] = [
        failure(429, "slow down", "rate_limit_exceeded", **{"retry-after": "600"})
    ]
    queue.provider.answer_with = lambda _: answers.pop() if answers else None

    async with queue.drain() as drain:
        running = asyncio.create_task(drain.run())
        await until(lambda: drain.report.released >= 1 and drain.waiting > 60)
        ended = await queue.queue.limiter(queue.limits).clear()
        await until(running.done)
        report = await running

    assert ended is not None
    assert report.completed == 1
    assert report.ending is Ending.EMPTY


async def test_a_search_for_a_bad_text_is_given_back_when_the_provider_asks_to_wait(
    queue: DrainUnderTest,
) -> None:
    await queue.given(4)
    limiter = queue.queue.limiter(queue.limits)
    queue.provider.answer_with = lambda _: failure(400, "invalid input", None)

    async with queue.drain(max_time=60 * SECOND, job_timeout=20 * SECOND) as drain:
        with queue.provider.holding():
            running = asyncio.create_task(drain.run())
            await until(lambda: queue.provider.requests)
            await limiter.hold(timedelta(minutes=5), owner="run-2", said="slow down")
        report = await running

    assert (report.requests, report.requests_limited, report.retried) == (1, 0, 0)
    # A lease that was under way when they came back may have taken them once more.
    assert report.released in (4, 8)
    assert await queue.attempts() == {0: 4}
    hold = (await limiter.read()).hold
    assert hold is not None
    assert hold.origin is not None
    assert hold.origin.owner == "run-2"


async def test_one_poisoned_text_fails_alone(queue: DrainUnderTest) -> None:
    await queue.given(499)
    await queue.put_entity("poison", "boom")
    await queue.admin.enqueue([NewJob("poison", MODEL)])

    def refuse(body: dict[str, Any]) -> Response | None:
        is_bad = any("boom" in text for text in body["input"])
        return failure(400, "invalid input", None) if is_bad else None

    queue.provider.answer_with = refuse

    report = await queue.drained()

    assert await queue.counted() == {"completed": 499, "failed": 1}
    job = await queue.job("poison")
    assert job.error_category is ErrorCategory.PERMANENT
    assert job.error is not None
    assert "invalid input" in job.error
    assert report.failed == {ErrorCategory.PERMANENT: 1}
    assert report.requests <= 2 + 2 * math.ceil(math.log2(500))
    assert await queue.attempts() == {1: 500}


def stumble(body: dict[str, Any]) -> Response | None:
    is_bad = any("boom" in text for text in body["input"])
    return failure(500, "oops", None) if is_bad else None


async def given_last_attempts(queue: DrainUnderTest, *, bad: int) -> None:
    await queue.given(20)
    for number in range(bad):
        await queue.put_entity(f"poison{number}", "boom")
    await queue.admin.enqueue([NewJob(f"poison{number}", MODEL) for number in range(bad)])
    await queue.run("MATCH (j:EmbedJob) SET j.attempts = j.max_attempts - 1")


async def test_i9_texts_that_the_provider_stumbles_over_fail_alone(queue: DrainUnderTest) -> None:
    """It says 500, as it does when it is down."""
    await given_last_attempts(queue, bad=2)
    queue.provider.answer_with = stumble

    report = await queue.drained()

    assert await queue.counted() == {"completed": 20, "failed": 2}
    assert (await queue.job("poison0")).status is JobStatus.FAILED
    assert report.failed == {ErrorCategory.TRANSIENT: 2}


async def test_a_provider_that_stumbles_over_all_is_not_asked_for_every_text(
    queue: DrainUnderTest,
) -> None:
    await given_last_attempts(queue, bad=0)
    queue.provider.answer_with = but_not_to_the_probe(lambda _: failure(500, "oops", None))

    await queue.drained()

    assert await queue.counted() == {"failed": 20}
    assert len(queue.provider.requests) == 4


async def test_what_was_answered_while_looking_for_a_bad_text_is_kept(
    queue: DrainUnderTest,
) -> None:
    """The whole is refused, the probe is not; the first half is answered, the second one fails."""
    await queue.given(4)
    answers = [failure(400, "invalid", None), None, None, failure(500, "oops", None)]
    queue.provider.answer_with = lambda _: answers.pop(0) if answers else None

    await queue.drained()

    requests = [body["input"] for body in queue.provider.requests]
    asked = Counter(text for texts in requests for text in texts)
    assert [len(texts) for texts in requests[:4]] == [4, 1, 2, 2]
    assert [asked[text] for text in requests[2]] == [2, 2]


async def test_r12_a_wrong_key_fails_no_job_and_opens_the_breaker(queue: DrainUnderTest) -> None:
    await queue.given(50)

    report = await queue.drained(api_key="sk-wrong-key-123", jobs_per_request=10)

    assert report.ending is Ending.CRITICAL
    assert report.reason is not None
    assert "AuthenticationError" in report.reason
    assert await queue.counted() == {"pending": 50}
    assert await queue.attempts() == {0: 50}
    state = await queue.switch.state()
    assert state.breaker.status is BreakerStatus.OPEN
    assert state.breaker.since is not None
    assert report.breaker == state.breaker
    noted = [job for job in await queue.admin.find_jobs(JobFilter()) if job.error]
    assert noted
    assert {job.error_category for job in noted} == {ErrorCategory.CRITICAL}
    rows = await queue.run("MATCH (n) RETURN properties(n) AS p")
    assert "sk-wrong-key-123" not in str(rows)
    refused = await queue.drained()
    assert refused.ending is Ending.CLOSED
    assert refused.reason is not None
    assert "breaker" in refused.reason


async def test_r12_a_probe_closes_the_breaker_and_everything_completes(
    queue: DrainUnderTest,
) -> None:
    await queue.given(20)
    await queue.drained(api_key="sk-wrong-key-123")
    await queue.run("MATCH (q:EmbedQueue) SET q.breaker_probe_at = 0")
    again = await queue.drained(api_key="sk-wrong-key-123")
    await queue.run("MATCH (q:EmbedQueue) SET q.breaker_probe_at = 0")

    report = await queue.drained()

    assert again.breaker is not None
    assert (again.breaker.status, again.breaker.failures) == (BreakerStatus.OPEN, 2)
    assert report.breaker is None
    assert report.completed == 20
    assert await queue.counted() == {"completed": 20}
    assert (await queue.switch.state()).breaker.status is BreakerStatus.CLOSED


async def test_m20_a_transient_failure_waits_for_its_time(queue: DrainUnderTest) -> None:
    await queue.given(3)
    queue.provider.answer_with = but_not_to_the_probe(lambda _: failure(500, "oops", None))

    report = await queue.drained()

    assert report.retried == 3
    assert await queue.counted() == {"pending": 3}
    for job in await queue.admin.find_jobs(JobFilter()):
        assert job.run_after is not None
        assert job.attempts == 1
    # The batch, the probe, and two of its texts.
    assert len(queue.provider.requests) == 4


async def test_m20_a_retry_that_is_due_still_waits_for_a_token(queue: DrainUnderTest) -> None:
    # One for the job, one for the word that tells its fault from an outage.
    queue.limits = RateLimits(requests=2, interval=timedelta(hours=1))
    await queue.given(1)
    queue.provider.answer_with = but_not_to_the_probe(lambda _: failure(500, "oops", None))
    await queue.drained()
    await queue.run("MATCH (j:EmbedJob) SET j.run_after = 1")
    due = await queue.job("e0")

    report = await queue.drained(max_time=120 * SECOND)

    # A lease under way when the pause begins may take it once more.
    assert report.leased == report.released >= 1
    assert report.requests == 0
    assert len(queue.provider.requests) == 2
    waiting = await queue.job("e0")
    assert (due.attempts, waiting.attempts) == (1, 1)
    assert waiting.run_after in (None, due.run_after)


async def test_m9_the_search_for_a_bad_text_stays_within_the_limit(
    queue: DrainUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processing, "LOOK_AGAIN", SECOND / 100)
    queue.limiter_clock = FakeClock()
    queue.limits = RateLimits(requests=2, interval=timedelta(hours=1))
    await queue.given(8)
    queue.provider.answer_with = lambda request: (
        failure(400, "bad text", None) if "Name: e5\n" in "".join(request["input"]) else None
    )
    windows = 1

    async with queue.drain() as drain:
        running = asyncio.create_task(drain.run())
        while not running.done():
            waited = drain.report.seconds_waiting
            await until(lambda: running.done() or drain.report.seconds_waiting > waited)  # noqa: B023
            assert len(queue.provider.requests) <= 2 * windows
            queue.limiter_clock.advance(timedelta(hours=2))
            windows += 1
        report = await running

    assert report.requests == len(queue.provider.requests) > 4
    assert await queue.counted() == {"completed": 7, "failed": 1}


async def test_m1_m15_m36_m70_expired_leases_are_recovered_before_the_first_lease(
    queue: DrainUnderTest, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Four pages, and none of them is left for later.
    monkeypatch.setattr(recovery, "JOBS_PER_RECOVERY", 5)
    await queue.given(20)
    await queue.lease("dead/run", limit=20, duration=timedelta(milliseconds=1))

    report = await queue.drained(recovery_interval=timedelta(hours=1))

    assert report.recovered == 20
    assert await queue.counted() == {"completed": 20}
    jobs = await queue.admin.find_jobs(JobFilter())
    assert all(f"job={job.id} recovered from owner=dead/run" in caplog.text for job in jobs)
    assert (await queue.counters())["recovered"] == 20


async def test_m4_with_interval_0_nothing_is_recovered(queue: DrainUnderTest) -> None:
    await queue.given(1)
    await queue.lease("dead/run", limit=1, duration=timedelta(milliseconds=1))

    report = await queue.drained(recovery_interval=timedelta(0))

    assert report.recovered == 0
    assert await queue.counted() == {"processing": 1}
    assert await queue.last_recovery() is None


async def test_r18_a_drain_that_finds_no_expired_lease_has_looked(queue: DrainUnderTest) -> None:
    await queue.given(1)

    report = await queue.drained()

    assert report.recovered == 0
    assert await queue.last_recovery() is not None


async def test_r14_suspects_are_worked_on_among_themselves(queue: DrainUnderTest) -> None:
    await queue.given(4)
    await queue.lease("dead/run", limit=4, duration=timedelta(milliseconds=1))
    await queue.given(6, prefix="healthy")

    report = await queue.drained()

    assert report.completed == 10
    sizes = [len(request["input"]) for request in queue.provider.requests]
    assert sorted(sizes) == [4, 6]


async def test_m28_a_job_longer_than_its_lease_completes_once_under_one_fence(
    queue: DrainUnderTest,
) -> None:
    queue = queue.on_a_clock()
    await queue.given(5)
    queue.provider.gate.clear()

    async with queue.drain(
        heartbeat=SECOND / 20, recovery_interval=SECOND / 20, job_timeout=timedelta(hours=1)
    ) as drain:
        running = asyncio.create_task(drain.run())
        await until(lambda: queue.provider.requests)
        recovered = [await nearly_expired(queue, drain) for _ in range(4)]
        queue.provider.gate.set()
        report = await running

    assert recovered == [[]] * 4
    assert (report.completed, report.lost, report.fenced, report.recovered) == (5, 0, 0, 0)
    jobs = await queue.admin.find_jobs(JobFilter())
    assert {job.fence for job in jobs} == {1}
    assert len(queue.provider.requests) == 1


async def test_m33_the_execution_timeout_fails_the_job_while_its_lease_is_valid(
    queue: DrainUnderTest,
) -> None:
    await queue.given(2)

    async def late(_: dict[str, Any]) -> None:
        await asyncio.sleep(20)

    queue.provider.answer_with = but_not_to_the_probe(late)

    report = await queue.drained(job_timeout=timedelta(seconds=3))

    assert report.retried == 2
    job = await queue.job("e0")
    assert job.status is JobStatus.PENDING
    assert job.error is not None
    assert "longer than 3 s" in job.error
    assert job.expiries == 0


async def test_m43_m46_a_job_cancelled_in_flight_gets_no_vector_and_its_siblings_do(
    queue: DrainUnderTest,
) -> None:
    await queue.given(5)
    queue.provider.gate.clear()

    async with queue.drain() as drain:
        running = asyncio.create_task(drain.run())
        await until(lambda: queue.provider.requests)
        await queue.admin.cancel_job((await queue.job("e3")).id, by="operator")
        queue.provider.gate.set()
        report = await running

    assert await queue.counted() == {"completed": 4, "cancelled": 1}
    assert await queue.vector("e3") is None
    assert report.completed == 4


async def test_m49_a_stop_completes_what_is_in_flight_and_releases_the_rest(
    queue: DrainUnderTest,
) -> None:
    await queue.given(30)
    queue.provider.gate.clear()
    stop = asyncio.Event()

    async with queue.drain(
        stop=stop, jobs_per_request=5, jobs_per_lease=15, requests_at_once=2
    ) as drain:
        running = asyncio.create_task(drain.run())
        await until(lambda: len(queue.provider.requests) == 2)
        stop.set()
        # What was ready, and the lease that was taken meanwhile.
        await until(lambda: drain.report.released == 5 + 15)
        # Whoever knows no grace has given back what is in flight by now.
        in_between = [await queue.counted() for _ in range(5)]
        queue.provider.gate.set()
        report = await running

    assert in_between == [{"processing": 10, "pending": 20}] * 5
    assert DrainOptions().grace == 30 * SECOND
    assert report.ending is Ending.STOPPED
    assert await queue.counted() == {"completed": 10, "pending": 20}
    assert await queue.attempts() == {0: 20, 1: 10}
    owned = await queue.run("MATCH (j:EmbedJob) WHERE j.lock_owner IS NOT NULL RETURN j.id")
    assert owned == []


async def test_m49_after_the_grace_requests_in_flight_are_given_back_too(
    queue: DrainUnderTest,
) -> None:
    await queue.given(3)
    queue.provider.gate.clear()
    stop = asyncio.Event()

    async with queue.drain(stop=stop, grace=timedelta(milliseconds=200)) as drain:
        running = asyncio.create_task(drain.run())
        await until(lambda: queue.provider.requests)
        stop.set()
        report = await running
    queue.provider.gate.set()

    assert report.released == 3
    assert await queue.counted() == {"pending": 3}
    assert await queue.attempts() == {0: 3}


async def test_m7_m45_two_drains_complete_each_job_once(queue: DrainUnderTest) -> None:
    await queue.given(1_000)

    reports = await asyncio.gather(
        queue.drained(owner="run-1/a", jobs_per_lease=50, jobs_per_request=25),
        queue.drained(owner="run-2/b", jobs_per_lease=50, jobs_per_request=25),
    )

    assert await queue.counted() == {"completed": 1_000}
    assert sum(report.completed for report in reports) == 1_000
    texts = [text for request in queue.provider.requests for text in request["input"]]
    assert len(texts) == len(set(texts)) == 1_000
    assert {job.fence for job in await queue.admin.find_jobs(JobFilter(), limit=2_000)} == {1}


async def test_m52_the_same_text_is_paid_for_once(queue: DrainUnderTest) -> None:
    await queue.given(3)
    await queue.drained()
    # As after the retention.
    await queue.run("MATCH (j:EmbedJob) DETACH DELETE j")
    await queue.admin.enqueue([NewJob(f"e{n}", MODEL) for n in range(3)])

    report = await queue.drained()

    assert (report.completed, report.cache_hits, report.requests) == (3, 3, 0)
    counters = await queue.counters()
    assert (counters["cache_hits"], counters["requests"], counters["tokens"]) == (3, 1, 3)
    assert len(queue.provider.requests) == 1


LONG_TEXT = "".join(f"日本語🙂 number {number}. " for number in range(5_700))


def by_length(text: str) -> list[float]:
    return [float(len(text)), 1.0, float(len(text) % 7), -3.0]


async def test_m119_of_a_long_text_nothing_is_lost_and_the_mean_is_stored(
    queue: DrainUnderTest,
) -> None:
    assert len(LONG_TEXT) > 100_000
    await queue.put_entity("long", LONG_TEXT)
    await queue.put_entity("short")
    await queue.admin.enqueue([NewJob("long", MODEL), NewJob("short", MODEL)])
    queue.provider.answer_with = lambda body: vectors(body, of_text=by_length)

    report = await queue.drained()

    [request] = queue.provider.requests
    pieces = [text for text in request["input"] if "short" not in text]
    assert len(pieces) > 5
    assert "".join(pieces) == f"Name: long\nType: test\nObservations:\n- {LONG_TEXT}"
    weighed = [
        [number * prepare(piece, max_tokens=8191).tokens for number in by_length(piece)]
        for piece in pieces
    ]
    sums = [sum(numbers) for numbers in zip(*weighed, strict=True)]
    norm = sum(number**2 for number in sums) ** 0.5
    assert await queue.vector("long") == pytest.approx([n / norm for n in sums], abs=1e-5)
    job = await queue.job("long")
    assert (report.in_pieces, job.pieces, report.requests) == (1, len(pieces), 1)
    assert (await queue.job("short")).pieces is None


async def test_m119_a_text_that_is_too_much_for_a_request_takes_several(
    queue: DrainUnderTest,
) -> None:
    await queue.put_entity("long", LONG_TEXT)
    await queue.admin.enqueue([NewJob("long", MODEL)])

    report = await queue.drained(tokens_per_request=20_000)

    sent = [request["input"] for request in queue.provider.requests]
    tokens = [sum(prepare(text, max_tokens=8_191).tokens for text in texts) for texts in sent]
    assert len(tokens) > 2
    assert max(tokens) <= 20_000
    assert "".join(text for texts in sent for text in texts).endswith(LONG_TEXT)
    assert (report.completed, report.requests) == (1, len(sent))


async def test_m43_of_a_long_text_that_is_cancelled_meanwhile_nothing_more_is_sent(
    queue: DrainUnderTest,
) -> None:
    await queue.put_entity("long", LONG_TEXT)
    await queue.admin.enqueue([NewJob("long", MODEL)])

    with queue.provider.holding():
        drain = asyncio.create_task(queue.drained(tokens_per_request=20_000))
        await until(lambda: queue.provider.requests)
        await queue.admin.cancel_job((await queue.job("long")).id, by="operator")
    report = await drain

    assert len(queue.provider.requests) == report.requests == 1
    assert (report.completed, report.lost) == (0, 1)
    assert await queue.counted() == {"cancelled": 1}
    assert await queue.vector("long") is None


async def test_m119_a_piece_that_is_refused_fails_its_text_and_no_other(
    queue: DrainUnderTest,
) -> None:
    await queue.put_entity("long", LONG_TEXT + "boom")
    await queue.put_entity("short")
    await queue.admin.enqueue([NewJob("long", MODEL), NewJob("short", MODEL)])

    def refuse(body: dict[str, Any]) -> Response | None:
        is_bad = any("boom" in text for text in body["input"])
        return failure(400, "invalid input", None) if is_bad else None

    queue.provider.answer_with = refuse

    await queue.drained()

    assert await queue.counted() == {"completed": 1, "failed": 1}
    assert await queue.vector("long") is None


async def test_a_text_that_changes_in_flight_is_embedded_again(queue: DrainUnderTest) -> None:
    await queue.given(1)
    queue.provider.gate.clear()

    async with queue.drain() as drain:
        running = asyncio.create_task(drain.run())
        await until(lambda: queue.provider.requests)
        await queue.put_entity("e0", "new text")
        queue.provider.gate.set()
        report = await running

    assert report.moved == 1
    assert "new text" in queue.provider.requests[-1]["input"][0]
    assert await queue.counted() == {"completed": 1}
    assert await queue.attempts() == {1: 1}


async def test_r13_a_deleted_entity_costs_no_request(queue: DrainUnderTest) -> None:
    await queue.given(1)
    await queue.delete_entity("e0")

    report = await queue.drained()

    assert report.superseded == 1
    assert queue.provider.requests == []
    assert await queue.counted() == {"cancelled": 1}
    assert (await queue.job("e0")).error == "entity deleted"


@pytest.mark.parametrize(
    "answer",
    [
        lambda body: vectors({**body, "input": body["input"][1:]}),
        lambda body: vectors(body, numbers=lambda n: [math.nan] * n),
        lambda body: vectors(body, numbers=lambda n: [0.0] * n),
        lambda body: Response('{"data": [', media_type="application/json"),
    ],
    ids=["one too few", "not a number", "zero", "truncated"],
)
async def test_a_wrong_answer_stores_nothing(queue: DrainUnderTest, answer: Any) -> None:
    await queue.given(3)
    queue.provider.answer_with = but_not_to_the_probe(answer)

    report = await queue.drained()

    assert report.retried == 3
    assert await queue.counted() == {"pending": 3}
    assert await queue.vector("e0") is None


async def test_vectors_of_another_length_are_a_global_fault(queue: DrainUnderTest) -> None:
    await queue.given(3)
    queue.provider.answer_with = lambda body: vectors(body, dimensions=7)

    report = await queue.drained()

    assert report.ending is Ending.CRITICAL
    assert report.reason is not None
    assert "7 dimensions" in report.reason
    assert await queue.counted() == {"pending": 3}
    assert await queue.attempts() == {0: 3}


@pytest.mark.parametrize(
    ("budget", "completed"), [({"max_jobs": 7}, 7), ({"max_time": timedelta(0)}, 0)]
)
async def test_a_budget_is_kept(
    queue: DrainUnderTest, budget: dict[str, Any], completed: int
) -> None:
    await queue.given(20)

    report = await queue.drained(**budget)

    assert report.completed == completed
    assert report.ending is Ending.BUDGET
    assert (await queue.counted())["pending"] == 20 - completed


async def test_a_lingering_drain_embeds_what_comes_and_then_ends_with_nothing_held(
    queue: DrainUnderTest,
) -> None:
    hours = 0
    await queue.given(3)

    def clock() -> float:
        return time.monotonic() + 3_600 * hours

    async with queue.drain(clock=clock, linger=timedelta(hours=1)) as drain:
        running = asyncio.create_task(drain.run())
        await until(lambda: drain.report.completed == 3)
        in_between = await queue.counted()
        await queue.given(2, prefix="late")
        await until(lambda: drain.report.completed == 5)
        hours = 1
        report = await running

    assert in_between == {"completed": 3}
    assert await queue.counted() == {"completed": 5}
    assert (report.completed, report.ending) == (5, Ending.EMPTY)
    assert await queue.vector("late1") is not None


async def test_jobs_of_another_model_are_left_alone(queue: DrainUnderTest) -> None:
    await queue.given(1)
    await queue.admin.enqueue([NewJob("e0", "another-model")])

    report = await queue.drained()

    assert report.completed == 1
    assert await queue.counted() == {"completed": 1, "pending": 1}


async def test_a_paused_queue_gives_nothing(queue: DrainUnderTest) -> None:
    await queue.given(1)
    await queue.switch.pause(by="alice")

    report = await queue.drained()

    assert report.ending is Ending.CLOSED
    assert report.reason == "paused by alice"


async def test_the_text_of_another_graph_follows_its_template(queue: DrainUnderTest) -> None:
    papers = replace(queue, shape=EntityShape(template="{title} by {authors}"))
    await papers.run("CREATE (:Entity {name: 'p', title: 'On Numbers', authors: ['A', 'B']})")
    await papers.admin.enqueue([NewJob("p", MODEL)])

    report = await papers.drained()

    assert report.completed == 1
    assert papers.provider.requests[0]["input"] == ["On Numbers by A\nB"]
    assert (await papers.drained()).leased == 0
