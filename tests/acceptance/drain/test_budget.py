"""A budget over all drains: it pauses, costs no attempt, and goes on at the server's midnight."""

import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from embed_pipeline.domain.budget import Budget
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import JobFilter, NewJob
from embed_pipeline.domain.pieces import Pieces
from embed_pipeline.domain.prices import Price
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.embedding.tokens import prepare
from embed_pipeline.worker.report import Ending
from tests.conftest import TestServer
from tests.support.drain_harness import PLENTY, DrainUnderTest
from tests.support.drain_launcher import Drains, environment_for
from tests.support.openai_server import but_not_to_the_probe, failure, vectors
from tests.support.queue_harness import MODEL

EVENING = datetime(2026, 11, 30, 23, tzinfo=UTC)
PRICE = Price(1_000.0)


def limited(**budget: Any) -> RateLimits:
    return replace(PLENTY, budget=Budget(PRICE, **budget))


def charging(tokens: Callable[[list[str]], int]) -> Callable[[dict[str, Any]], Response]:
    """Answers that say what the request is charged."""

    def answer(body: dict[str, Any]) -> Response:
        said = json.loads(bytes(vectors(body).body))
        charged = tokens(body["input"])
        usage = {"prompt_tokens": charged, "total_tokens": charged}
        return JSONResponse(said | {"usage": usage})

    return answer


def counted(texts: list[str]) -> int:
    return sum(prepare(text, max_tokens=8191).tokens for text in texts)


@pytest.fixture
def drains(neo4j_server: TestServer, queue: DrainUnderTest) -> Iterator[Drains]:
    started = Drains(environment_for(neo4j_server, queue.provider, lease_ms=60_000))
    yield started
    started.end()


async def test_m110_a_spent_budget_pauses_costs_no_attempt_and_goes_on_at_midnight(
    queue: DrainUnderTest,
) -> None:
    await queue.given(10)
    queue.limiter_clock = queue.clock
    queue.clock.now = EVENING
    queue.provider.answer_with = charging(counted)
    queue.limits = limited(tokens_per_day=40)

    first = await queue.drained(jobs_per_request=1, requests_at_once=1)
    second = await queue.drained(jobs_per_request=1, requests_at_once=1)
    attempts = await queue.attempts()
    queue.clock.advance(timedelta(hours=1))
    third = await queue.drained(jobs_per_request=1, requests_at_once=1)

    # A text has 14 tokens: the third one crosses the budget.
    assert (first.completed, second.completed, third.completed) == (3, 0, 3)
    assert [report.ending for report in (first, second, third)] == [Ending.SPENT] * 3
    assert first.fault is None
    assert "the budget of the day is used: 42 tokens of 40 tokens" in str(first.reason)
    assert "goes on at 2026-12-01 00:00 UTC" in str(first.reason)
    assert "EMBED_BUDGET_TOKENS_PER_DAY" in str(first.reason)
    assert attempts == {1: 3, 0: 7}
    assert await queue.counted() == {"completed": 6, "pending": 4}


async def test_m109_all_pieces_of_a_text_count_and_those_that_stay_do_not(
    queue: DrainUnderTest,
) -> None:
    pieces = Pieces(tokens=32)
    queue = replace(queue, shape=EntityShape(pieces=pieces), limiter_clock=queue.clock)
    await queue.install()
    queue.clock.now = EVENING
    queue.provider.answer_with = charging(counted)
    queue.limits = limited(tokens_per_day=300)
    words = "\n\n".join(f"Paragraph {number} tells of topic {number}." for number in range(40))
    for uid in ("ada", "bob"):
        await queue.put_entity(uid, words)
    await queue.admin.enqueue([NewJob("ada", MODEL, priority=1), NewJob("bob", MODEL)])

    first = await queue.drained(requests_at_once=1, jobs_per_lease=1)
    queue.clock.advance(timedelta(hours=1))
    second = await queue.drained(requests_at_once=1, jobs_per_lease=1)

    [ada, bob] = [request["input"] for request in queue.provider.requests]
    assert len(ada) > 10
    assert (await queue.job("ada")).pieces == len(ada)
    assert (first.completed, first.tokens, first.ending) == (1, counted(ada), Ending.SPENT)
    assert f"the budget of the day is used: {counted(ada)} tokens of 300" in str(first.reason)
    # Bob has the same words but for his name.
    assert 0 < len(bob) < 3
    assert (second.completed, second.tokens) == (1, counted(bob))


async def test_m109_eight_processes_never_exceed_the_budget_by_more_than_one_request(
    queue: DrainUnderTest, drains: Drains
) -> None:
    # More than eight drains can hold at once: each finds work, and so meets the budget.
    await queue.given(200)
    spent: list[int] = []
    queue.provider.answer_with = charging(lambda texts: spent.append(counted(texts)) or spent[-1])
    drains.environment |= {
        "EMBEDDING_PRICE_USD_PER_MILLION": "1000",
        # At a tenth of a cent a token: 300 tokens.
        "EMBED_BUDGET_USD_PER_DAY": "0.3",
    }

    running = [drains.start(jobs_per_request=2, jobs_per_lease=8) for _ in range(8)]
    reports = [await drains.report(process) for process in running]

    assert 300 <= sum(spent) < 300 + max(spent)
    assert sum(report["tokens"] for report in reports) == sum(spent)
    assert {report["ending"] for report in reports} == {Ending.SPENT.value}
    assert sum(report["cost_usd"] for report in reports) == pytest.approx(sum(spent) / 1_000)
    done = sum(report["completed"] for report in reports)
    assert await queue.counted() == {"completed": done, "pending": 200 - done}
    assert await queue.attempts() == {1: done, 0: 200 - done}


async def test_an_answer_that_was_lost_is_not_refunded_and_a_refusal_is(
    queue: DrainUnderTest,
) -> None:
    await queue.given(1)
    queue.limits = limited(tokens_per_day=10_000)
    limiter = queue.queue.limiter(queue.limits)

    async def used() -> float:
        return (await limiter.read()).budget[0].used

    queue.provider.answer_with = but_not_to_the_probe(lambda _: failure(400, "no such text", "x"))
    await queue.drained()
    refused = await used()
    await queue.admin.retry_failed(JobFilter(categories=frozenset(ErrorCategory)))
    queue.provider.answer_with = but_not_to_the_probe(lambda _: failure(500, "oops", None))
    await queue.drained(max_jobs=1)

    # The probe is answered, with one token; of the text nobody knows whether it was charged.
    assert refused == 1
    assert await used() == refused + 1 + 14


async def test_m109_a_grant_that_has_passed_before_its_request_was_sent_is_not_charged(
    queue: DrainUnderTest,
) -> None:
    """A busy machine is late; only what was sent counts against the budget."""
    calls = itertools.count()

    def late() -> float:
        return time.monotonic() + next(calls) / 2

    await queue.given(1)
    queue.limits = limited(tokens_per_day=10_000)
    queue.provider.answer_with = charging(counted)

    report = await queue.drained(clock=late)

    [used] = (await queue.queue.limiter(queue.limits).read()).budget
    assert (report.completed, report.requests) == (1, 1)
    assert used.used == report.tokens


async def test_tokens_are_priced_when_they_are_charged(queue: DrainUnderTest) -> None:
    await queue.given(2)
    queue.provider.answer_with = charging(counted)
    queue.price = PRICE

    report = await queue.drained()
    first = (await queue.queue.metrics.read()).counters
    queue.price = Price(1.0)
    await queue.given(1, prefix="later")
    await queue.drained()
    counters = (await queue.queue.metrics.read()).counters

    assert report.cost_usd == first["tokens"] / 1_000
    assert first["cost_nano_usd"] == 1_000_000 * first["tokens"]
    later = counters["tokens"] - first["tokens"]
    assert counters["cost_nano_usd"] == first["cost_nano_usd"] + 1_000 * later
