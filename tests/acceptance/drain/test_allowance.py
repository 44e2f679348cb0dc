"""Drains never ask for more than the provider says is left, and never for more tokens than set."""

from datetime import timedelta
from typing import Any

from starlette.responses import Response

from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.worker.report import Ending
from tests.support.drain_harness import DrainUnderTest
from tests.support.openai_server import failure, vectors

MINUTE = timedelta(minutes=1)


async def test_m87_a_drain_asks_no_more_often_than_the_provider_says(
    queue: DrainUnderTest,
) -> None:
    """Of the own limit nearly everything is free; the provider has counted others, too."""
    await queue.given(10)
    queue.limiter_clock = queue.clock
    left = iter(range(2, -1, -1))

    def answer(body: dict[str, Any]) -> Response:
        told = vectors(body)
        told.headers["x-ratelimit-remaining-requests"] = str(next(left, 0))
        told.headers["x-ratelimit-limit-requests"] = "500"
        told.headers["x-ratelimit-reset-requests"] = "60s"
        return told

    queue.provider.answer_with = answer

    report = await queue.drained(
        jobs_per_request=1, requests_at_once=1, max_time=timedelta(seconds=30)
    )

    assert report.ending is Ending.BUDGET
    assert len(queue.provider.requests) == report.completed == 3
    assert await queue.counted() == {"completed": 3, "pending": 7}
    assert await queue.attempts() == {1: 3, 0: 7}


async def test_m87_two_workers_ask_for_no_more_tokens_together_than_are_left(
    queue: DrainUnderTest,
) -> None:
    """A third of the limit is not scarce; for two requests at once it is too little."""
    await queue.given(12)
    queue.limiter_clock = queue.clock
    left = 150

    def answer(body: dict[str, Any]) -> Response:
        nonlocal left
        # A text has 14 or 15 tokens.
        left -= 15 * len(body["input"])
        if left < 0:
            return failure(429, "slow down", "rate_limit_exceeded")
        told = vectors(body)
        told.headers["x-ratelimit-remaining-tokens"] = str(left)
        told.headers["x-ratelimit-limit-tokens"] = "300"
        told.headers["x-ratelimit-reset-tokens"] = "60s"
        return told

    queue.provider.answer_with = answer
    sizes = {"jobs_per_request": 4, "requests_at_once": 2}

    first = await queue.drained(owner="run-1/test", max_jobs=4, **sizes)
    second = await queue.drained(owner="run-2/test", max_time=timedelta(seconds=30), **sizes)

    assert (first.completed, second.completed) == (4, 4)
    assert second.ending is Ending.BUDGET
    assert first.requests_limited == second.requests_limited == 0
    assert await queue.attempts() == {1: 8, 0: 4}


async def test_m87_requests_are_no_larger_than_the_tokens_of_a_minute(
    queue: DrainUnderTest,
) -> None:
    await queue.given(12)
    queue.limiter_clock = queue.clock
    queue.limits = RateLimits(requests=1_000, interval=MINUTE, tokens=60)

    report = await queue.drained(tokens_per_request=60, max_time=timedelta(seconds=30))

    assert report.ending is Ending.BUDGET
    # A text has 14 or 15 tokens.
    assert [len(body["input"]) for body in queue.provider.requests] == [4]
    assert await queue.attempts() == {1: 4, 0: 8}
