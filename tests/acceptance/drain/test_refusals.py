"""A provider that refuses everything, and texts that it refuses for themselves."""

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from starlette.responses import Response

from embed_pipeline.domain.breaker import BreakerStatus
from embed_pipeline.domain.errors import PROBE_WORD, ErrorCategory
from embed_pipeline.domain.job import JobFilter, NewJob
from embed_pipeline.domain.profiles import OPENAI
from embed_pipeline.worker.report import Ending
from tests.support.drain_harness import DrainUnderTest
from tests.support.openai_server import failure, refusing_dimensions
from tests.support.queue_harness import DIMENSIONS, MODEL

JOBS = 60


async def assert_nothing_failed(queue: DrainUnderTest, jobs: int) -> None:
    assert await queue.counted() == {"pending": jobs}
    assert await queue.attempts() == {0: jobs}
    assert (await queue.switch.state()).breaker.status is BreakerStatus.OPEN


async def test_m138_a_server_that_refuses_dimensions_fails_no_job_and_says_what_to_set(
    queue: DrainUnderTest,
) -> None:
    await queue.given(JOBS)
    queue.provider.answer_with = refusing_dimensions(DIMENSIONS)

    report = await queue.drained()

    await assert_nothing_failed(queue, JOBS)
    assert report.ending is Ending.CRITICAL
    assert len(queue.provider.requests) == report.requests == 4
    reason = (await queue.switch.state()).breaker.reason or ""
    assert "does not support specifying dimensions" in reason
    assert "EMBEDDING_SEND_DIMENSIONS=false" in reason
    noted = await queue.admin.find_jobs(JobFilter())
    assert {job.error_category for job in noted} == {ErrorCategory.CRITICAL}


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (429, "insufficient_quota"),
        (429, "project_spend_limit_exceeded"),
        (429, "organization_spend_limit_exceeded"),
        (400, "billing_hard_limit_reached"),
    ],
)
async def test_m73_a_spent_account_opens_the_breaker_and_costs_no_attempt(
    queue: DrainUnderTest, status: int, code: str
) -> None:
    await queue.given(JOBS)
    queue.provider.answer_with = lambda _: failure(status, "nothing is left to spend", code)

    # Waiting for a limit would not end by itself.
    some_time = timedelta(seconds=10)
    report = await queue.drained(jobs_per_request=20, max_time=some_time)
    again = await queue.drained(max_time=some_time)

    await assert_nothing_failed(queue, JOBS)
    assert (report.ending, again.ending) == (Ending.CRITICAL, Ending.CLOSED)
    breaker = (await queue.switch.state()).breaker
    assert not breaker.is_outage
    assert "nothing is left to spend" in (breaker.reason or "")
    # As many as were under way when the first was refused.
    assert len(queue.provider.requests) <= 3


async def test_m138_without_dimensions_in_the_request_everything_completes(
    queue: DrainUnderTest,
) -> None:
    await queue.given(JOBS)
    queue.provider.answer_with = refusing_dimensions(DIMENSIONS)
    await queue.drained()
    await queue.run("MATCH (q:EmbedQueue) SET q.breaker_probe_at = 0")

    await queue.drained(profile=replace(OPENAI, sends_dimensions=False))

    assert await queue.counted() == {"completed": JOBS}
    assert await queue.attempts() == {1: JOBS}
    assert (await queue.switch.state()).breaker.status is BreakerStatus.CLOSED


async def test_m138_a_lone_job_does_not_pay_for_a_server_that_refuses_everything(
    queue: DrainUnderTest,
) -> None:
    await queue.given(1)
    queue.provider.answer_with = refusing_dimensions(DIMENSIONS)

    await queue.drained()

    await assert_nothing_failed(queue, 1)
    assert [body["input"] for body in queue.provider.requests[1:]] == [[PROBE_WORD]]


def quoting(body: dict[str, Any]) -> Response:
    return failure(422, f"extra field not allowed, got: {body['input']}", "invalid")


EVERYTHING: dict[str, Callable[[dict[str, Any]], Response]] = {
    "another parameter": lambda _: failure(400, "Unrecognized argument: encoding_format", None),
    "a message that quotes the texts": quoting,
    "a message with the number of texts": lambda body: failure(
        400, f"request 7f3a-{len(body['input'])}: {len(body['input'])} inputs refused", None
    ),
    "too large, whatever the size": lambda _: failure(413, "Request Entity Too Large", None),
}


@pytest.mark.parametrize("refuse", EVERYTHING.values(), ids=list(EVERYTHING))
async def test_i20_whatever_a_server_refuses_for_every_text_fails_no_job(
    queue: DrainUnderTest, refuse: Callable[[dict[str, Any]], Response]
) -> None:
    await queue.given(JOBS)
    queue.provider.answer_with = refuse

    report = await queue.drained()

    await assert_nothing_failed(queue, JOBS)
    assert "OPENAI_BASE_URL" in (report.reason or "")
    # "Too large" is looked for in halves, the others in four requests; all far from one per job.
    assert report.requests <= 2 * math.ceil(math.log2(JOBS)) + 4


async def test_texts_that_are_refused_one_and_all_fail_if_a_harmless_word_is_not(
    queue: DrainUnderTest,
) -> None:
    await queue.given(8)
    queue.provider.answer_with = lambda body: (
        None if body["input"] == [PROBE_WORD] else failure(400, "invalid input", None)
    )

    report = await queue.drained()

    assert await queue.counted() == {"failed": 8}
    assert report.failed == {ErrorCategory.PERMANENT: 8}
    assert [body["input"] for body in queue.provider.requests].count([PROBE_WORD]) == 1


async def test_a_harmless_word_that_is_refused_for_another_reason_decides_nothing(
    queue: DrainUnderTest,
) -> None:
    await queue.given(4)
    queue.provider.answer_with = lambda body: failure(
        400, "too short" if body["input"] == [PROBE_WORD] else "no such language", None
    )

    await queue.drained()

    assert await queue.counted() == {"failed": 4}


async def test_one_text_that_is_refused_as_the_probe_is_fails_alone(queue: DrainUnderTest) -> None:
    """The probe is not proof enough: others in the batch get their vectors."""
    await queue.given(19)
    await queue.put_entity("bad", "boom")
    await queue.admin.enqueue([NewJob("bad", MODEL)])
    queue.provider.answer_with = lambda body: (
        failure(400, "too short", None)
        if any(text == PROBE_WORD or "boom" in text for text in body["input"])
        else None
    )

    await queue.drained()

    assert await queue.counted() == {"completed": 19, "failed": 1}
    assert (await queue.job("bad")).error_category is ErrorCategory.PERMANENT


async def test_a_probe_that_is_answered_with_429_gives_the_jobs_back(queue: DrainUnderTest) -> None:
    await queue.given(3)
    answers: list[Response] = [
        failure(400, "invalid input", None),
        failure(429, "slow down", "rate_limit_exceeded", **{"retry-after-ms": "10"}),
    ]
    queue.provider.answer_with = lambda _: answers.pop(0) if answers else None

    await queue.drained()

    assert await queue.counted() == {"completed": 3}
    assert await queue.attempts() == {1: 3}


@pytest.mark.parametrize("jobs", [1, 3])
async def test_a_probe_that_stumbles_once_costs_a_refused_text_nothing_but_a_second_probe(
    queue: DrainUnderTest, jobs: int
) -> None:
    """Else the whole batch would lose an attempt, and its last one would end as TRANSIENT."""
    await queue.given(jobs - 1)
    await queue.put_entity("bad", "boom")
    await queue.admin.enqueue([NewJob("bad", MODEL)])
    stumbles = [failure(500, "oops", None)]

    def answer(body: dict[str, Any]) -> Response | None:
        if body["input"] == [PROBE_WORD]:
            return stumbles.pop() if stumbles else None
        is_bad = any("boom" in text for text in body["input"])
        return failure(400, "invalid input", None) if is_bad else None

    queue.provider.answer_with = answer

    await queue.drained()

    bad = await queue.job("bad")
    assert (bad.error_category, bad.attempts) == (ErrorCategory.PERMANENT, 1)
    assert (await queue.counted()).get("completed", 0) == jobs - 1


async def test_a_probe_that_stays_unanswered_after_a_refusal_is_an_outage(
    queue: DrainUnderTest,
) -> None:
    await queue.given(3)
    queue.provider.answer_with = lambda body: (
        failure(503, "down", None)
        if body["input"] == [PROBE_WORD]
        else failure(400, "invalid input", None)
    )

    await queue.drained()

    await assert_nothing_failed(queue, 3)
