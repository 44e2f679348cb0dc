"""Whatever a provider answers: nothing wrong is stored, and nobody else pays for it."""

import json
import math
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from starlette.responses import Response

from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.holds import LONGEST_HOLD
from embed_pipeline.domain.job import JobFilter, JobStatus, NewJob
from embed_pipeline.store.connection import open_driver
from embed_pipeline.worker import engine, processing
from embed_pipeline.worker.report import Ending
from tests.conftest import TestServer
from tests.support.drain_harness import DrainUnderTest
from tests.support.openai_server import (
    KEY,
    OpenAIServer,
    but_not_to_the_probe,
    failure,
    openai_server,
    vectors,
)
from tests.support.queue_harness import DIMENSIONS, MODEL, assert_consistent

Answer = Callable[[dict[str, Any]], Response]

NEIGHBOURS = [f"e{number}" for number in range(10)]
CANARY = "Zanzibar-clove-merchant"
"""The text of the entity whose answer is spoiled; it must not get into any error."""
GOOD = [0.5] * DIMENSIONS
UNREADABLE = "the provider's answer is unreadable"
NO_NUMBERS = "no numbers where a vector should be"


@pytest.fixture
async def eleven(queue: DrainUnderTest) -> DrainUnderTest:
    """Ten entities and one with the canary as its text, each with a pending job."""
    await queue.given(len(NEIGHBOURS))
    await queue.put_entity("bad", CANARY)
    await queue.admin.enqueue([NewJob("bad", MODEL)])
    return queue


def item(index: object, embedding: object = GOOD) -> dict[str, object]:
    return {"object": "embedding", "index": index, "embedding": embedding}


def answer(*items: object, **more: object) -> Response:
    """An answer as it is given; Python writes NaN and infinities, which JSON does not know."""
    whole = {"object": "list", "model": "m", "data": list(items), "usage": {"total_tokens": 1}}
    return Response(json.dumps({**whole, **more}), media_type="application/json")


def raw(body: str | bytes, media_type: str = "application/json") -> Response:
    return Response(body, media_type=media_type)


def redirect(status: int) -> Response:
    return Response(status_code=status, headers={"location": "http://127.0.0.1:9/v1/embeddings"})


ALONE: dict[str, tuple[Response, ErrorCategory, str]] = {
    "no vector": (answer(), ErrorCategory.TRANSIENT, UNREADABLE),
    "two vectors": (answer(item(0), item(1)), ErrorCategory.TRANSIENT, "2 vectors for 1 texts"),
    "an empty vector": (answer(item(0, [])), ErrorCategory.TRANSIENT, NO_NUMBERS),
    "not a number": (answer(item(0, [math.nan, *GOOD[1:]])), ErrorCategory.TRANSIENT, "not finite"),
    "infinite": (answer(item(0, [math.inf, *GOOD[1:]])), ErrorCategory.TRANSIENT, "not finite"),
    "all zero": (answer(item(0, [0.0] * DIMENSIONS)), ErrorCategory.TRANSIENT, "zero"),
    "null inside": (answer(item(0, [None, *GOOD[1:]])), ErrorCategory.TRANSIENT, NO_NUMBERS),
    "words inside": (answer(item(0, ["x", *GOOD[1:]])), ErrorCategory.TRANSIENT, NO_NUMBERS),
    "a huge number": (answer(item(0, [10**400, *GOOD[1:]])), ErrorCategory.TRANSIENT, UNREADABLE),
    "null": (answer(item(0, None)), ErrorCategory.TRANSIENT, UNREADABLE),
    "an object": (answer(item(0, {"a": 1})), ErrorCategory.TRANSIENT, UNREADABLE),
    "bad base64": (answer(item(0, "AAA")), ErrorCategory.TRANSIENT, UNREADABLE),
    "half a number": (answer(item(0, "AAAAAAA=")), ErrorCategory.TRANSIENT, UNREADABLE),
    "no index": (answer({"embedding": GOOD}), ErrorCategory.TRANSIENT, UNREADABLE),
    "index of another": (answer(item(7)), ErrorCategory.TRANSIENT, UNREADABLE),
    "index that is a word": (answer(item("0")), ErrorCategory.TRANSIENT, UNREADABLE),
    "data is no list": (answer(data={"a": 1}), ErrorCategory.TRANSIENT, UNREADABLE),
    "data of nulls": (answer(None), ErrorCategory.TRANSIENT, UNREADABLE),
    "a list": (raw("[1, 2]"), ErrorCategory.TRANSIENT, UNREADABLE),
    "HTML": (raw("<html>Welcome</html>", "text/html"), ErrorCategory.TRANSIENT, UNREADABLE),
    "HTML as JSON": (raw("<html>Welcome</html>"), ErrorCategory.TRANSIENT, UNREADABLE),
    "truncated": (raw('{"data": [{"index": 0, "embe'), ErrorCategory.TRANSIENT, UNREADABLE),
    "no body": (raw(""), ErrorCategory.TRANSIENT, UNREADABLE),
    "no UTF-8": (raw(b'{"data": "\xff\xfe"}'), ErrorCategory.TRANSIENT, UNREADABLE),
    "deep JSON": (raw("[" * 60_000), ErrorCategory.TRANSIENT, UNREADABLE),
    "without end": (raw("{" + " " * 300_000), ErrorCategory.TRANSIENT, "answered more than"),
    "400": (failure(400, f"no: {CANARY}", None), ErrorCategory.PERMANENT, "BadRequestError"),
    "422": (failure(422, CANARY, None), ErrorCategory.PERMANENT, "UnprocessableEntityError"),
    "500 with HTML": (
        Response(f"<h1>Oops</h1>{CANARY}", 500, media_type="text/html"),
        ErrorCategory.TRANSIENT,
        "InternalServerError",
    ),
}


@pytest.fixture(scope="module")
async def spoiled(
    neo4j_server: TestServer, running_provider: OpenAIServer
) -> AsyncIterator[DrainUnderTest]:
    """One drain over ten good entities and one entity per spoiled answer, a request for each."""

    def answer_for(body: dict[str, Any]) -> Response | None:
        [text] = body["input"]
        return next((ALONE[name][0] for name in ALONE if f"<{name}>" in text), None)

    server = neo4j_server
    async with open_driver(server.connection) as driver:
        queue = DrainUnderTest(
            driver, server.database, connection=server.connection, server=running_provider
        )
        # Time stands still: on a busy machine second attempts would be due before the drain ends.
        queue = queue.on_a_clock()
        await queue.wipe()
        await queue.given(len(NEIGHBOURS))
        for name in ALONE:
            await queue.put_entity(name, f"<{name}> {CANARY}")
        await queue.admin.enqueue([NewJob(name, MODEL) for name in ALONE])
        running_provider.answer_with = answer_for
        await queue.drained(jobs_per_request=1)
        yield queue


@pytest.mark.parametrize("name", ALONE)
async def test_i9_i17_a_spoiled_answer_ends_in_a_clear_state_without_a_vector(
    spoiled: DrainUnderTest, name: str
) -> None:
    _, category, words = ALONE[name]

    job = await spoiled.job(name)

    is_final = category is ErrorCategory.PERMANENT
    assert job.status is (JobStatus.FAILED if is_final else JobStatus.PENDING)
    assert job.error_category is category
    assert words in (job.error or "")
    assert await spoiled.vector(name) is None


async def test_i9_spoiled_answers_of_others_cost_a_job_nothing(spoiled: DrainUnderTest) -> None:
    jobs = [await spoiled.job(uid) for uid in NEIGHBOURS]

    assert [(job.status, job.attempts) for job in jobs] == [(JobStatus.COMPLETED, 1)] * 10
    await assert_queue_is_intact(spoiled)


TOGETHER: dict[str, tuple[Answer, int]] = {
    "one of another length": (lambda body: spoil(body, [1.0] * 9), 10),
    "one empty": (lambda body: spoil(body, []), 10),
    "one not finite": (lambda body: spoil(body, [math.nan] * DIMENSIONS), 10),
    "one of words": (lambda body: spoil(body, ["x"] * DIMENSIONS), 10),
    "one null": (lambda body: spoil(body, None), 0),
    "an index twice": (lambda body: answer(*items_of(body)[:-1], item(0)), 0),
    "an index missing": (lambda body: answer(*items_of(body)[:-1], {"embedding": GOOD}), 0),
    "an index too high": (lambda body: answer(*items_of(body)[:-1], item(11)), 0),
    "one too few": (lambda body: answer(*items_of(body)[:-1]), 0),
    "one too many": (lambda body: answer(*items_of(body), item(11)), 0),
}


def items_of(body: dict[str, Any]) -> list[dict[str, object]]:
    return [item(index) for index in range(len(body["input"]))]


def spoil(body: dict[str, Any], vector: object) -> Response:
    """Give every text its vector, but this one to the text with the canary."""
    texts = enumerate(body["input"])
    return answer(*(item(i, vector if CANARY in text else GOOD) for i, text in texts))


@pytest.mark.parametrize(("spoiled", "completed"), TOGETHER.values(), ids=list(TOGETHER))
async def test_i17_of_one_answer_only_what_is_surely_right_is_stored(
    eleven: DrainUnderTest, spoiled: Answer, completed: int
) -> None:
    def answer_together(body: dict[str, Any]) -> Response:
        # Whoever looks for the bad one among them finds nobody who is answered.
        return spoiled(body) if len(body["input"]) > 1 else failure(500, "oops", None)

    eleven.provider.answer_with = but_not_to_the_probe(answer_together)

    report = await eleven.drained()

    assert (report.completed, report.retried) == (completed, 11 - completed)
    stored = [await eleven.vector(uid) for uid in [*NEIGHBOURS, "bad"]]
    assert stored == [*([GOOD if completed else None] * 10), None]
    assert await eleven.attempts() == {1: 11}
    await assert_queue_is_intact(eleven)


async def test_one_text_that_is_refused_with_400_leaves_its_batch_alone(
    eleven: DrainUnderTest,
) -> None:
    eleven.provider.answer_with = lambda body: (
        failure(400, f"bad input: {CANARY}", None) if CANARY in str(body["input"]) else None
    )

    await eleven.drained()

    assert await eleven.counted() == {"completed": 10, "failed": 1}
    await assert_queue_is_intact(eleven)


GLOBAL: dict[str, tuple[Answer, str]] = {
    "another length for all": (
        lambda body: answer(*(item(i, [1.0] * 9) for i in range(len(body["input"])))),
        "9 dimensions, the index has 4",
    ),
    "much longer ones": (
        lambda body: vectors(body, dimensions=4_096),
        "4096 dimensions, the index has 4",
    ),
    "redirect 301": (lambda _: redirect(301), "redirect (301)"),
    "redirect 307": (lambda _: redirect(307), "redirect (307)"),
    "redirect 308": (lambda _: redirect(308), "OPENAI_BASE_URL"),
}


@pytest.mark.parametrize(("spoiled", "words"), GLOBAL.values(), ids=list(GLOBAL))
async def test_i20_an_answer_that_is_wrong_for_all_fails_no_job(
    eleven: DrainUnderTest, spoiled: Answer, words: str
) -> None:
    eleven.provider.answer_with = spoiled

    report = await eleven.drained()

    assert report.ending is Ending.CRITICAL
    assert words in (report.reason or "")
    assert await eleven.counted() == {"pending": 11}
    assert await eleven.attempts() == {0: 11}
    await assert_queue_is_intact(eleven)


WAITS = {
    "inf": True,
    "1e309": True,
    "1000000000": True,
    "Fri, 31 Dec 9999 23:59:59 GMT": True,
    "901": True,
    "900": False,
    "nan": False,
    "-1": False,
    "soon": False,
}
"""What a provider may ask for, and whether that is longer than is granted."""


@pytest.mark.parametrize(("asked", "is_clamped"), WAITS.items(), ids=list(WAITS))
async def test_whatever_pause_a_provider_asks_for_no_drain_breaks_and_nobody_waits_for_ever(
    eleven: DrainUnderTest,
    asked: str,
    is_clamped: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Longer than the drain may take, or it would ask again.
    monkeypatch.setattr(processing, "UNNAMED_PAUSE", timedelta(minutes=5))
    monkeypatch.setattr(engine, "LOOK_AGAIN", timedelta(seconds=1) / 20)
    headers = {"retry-after": asked}
    eleven.provider.answer_with = lambda _: failure(429, f"no: {CANARY}", None, **headers)

    report = await eleven.drained(max_time=timedelta(minutes=1))

    assert report.ending is Ending.BUDGET
    assert report.holds_clamped == is_clamped
    assert ("cut to 15 min" in (report.reason or "")) == is_clamped
    assert ("the provider wants a pause of" in caplog.text) == is_clamped
    assert await eleven.counted() == {"pending": 11}
    assert await eleven.attempts() == {0: 11}
    [row] = await eleven.run("MATCH (limiter:EmbedLimiter) RETURN limiter {.*}")
    limiter, longest = row["limiter"], LONGEST_HOLD // timedelta(milliseconds=1)
    assert 0 < limiter["not_before"] - limiter["held_at"] <= longest
    assert (limiter["hold_asked"] > longest) == is_clamped
    for word in [KEY, *CANARY.split("-")]:
        assert word not in str(limiter) + str(report.as_dict()) + caplog.text
    await assert_queue_is_intact(eleven)


@pytest.fixture
def elsewhere() -> Iterator[OpenAIServer]:
    with openai_server() as server:
        yield server


async def test_a_redirect_takes_no_text_and_no_key_to_another_server(
    eleven: DrainUnderTest, elsewhere: OpenAIServer
) -> None:
    headers = {"location": f"{elsewhere.base_url}/embeddings"}
    eleven.provider.answer_with = lambda _: Response(status_code=307, headers=headers)

    await eleven.drained()

    assert elsewhere.requests == []


@pytest.mark.parametrize(
    "usage",
    [None, {}, {"total_tokens": "many"}, {"total_tokens": -1}, {"total_tokens": None}, 7],
    ids=str,
)
async def test_a_bill_that_cannot_be_read_costs_no_vector(
    eleven: DrainUnderTest, usage: object
) -> None:
    eleven.provider.answer_with = lambda body: answer(*items_of(body), usage=usage)

    report = await eleven.drained()

    assert report.completed == 11
    assert report.tokens == sum(
        job.tokens or 0 for job in await eleven.admin.find_jobs(JobFilter())
    )


async def assert_queue_is_intact(queue: DrainUnderTest) -> None:
    """Nobody holds anything, every node can be relied on, and no error quotes a text."""
    nodes = await queue.nodes()
    assert_consistent(nodes)
    assert [node for node in nodes if node["status"] == "processing"] == []
    assert CANARY not in str(nodes)
    assert CANARY.split("-")[0] not in str(nodes)
