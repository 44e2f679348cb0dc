"""A server that no profile knows is asked once what it takes, before it gets a job."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from starlette.responses import Response

from embed_pipeline.domain.breaker import BreakerStatus
from embed_pipeline.domain.errors import PROBE_WORD
from embed_pipeline.domain.job import NewJob
from embed_pipeline.domain.profiles import Learnt
from embed_pipeline.operations import doctor, wiring
from embed_pipeline.operations.findings import Mark
from embed_pipeline.operations.following import live_settings
from embed_pipeline.settings import Settings, load_settings
from embed_pipeline.store.servers import read_learnt
from embed_pipeline.worker.report import DrainReport, Ending
from tests.conftest import TestServer
from tests.support.openai_server import KEY, OpenAIServer, failure, openai_server, strict
from tests.support.queue_harness import DIMENSIONS, MODEL, Neo4jUnderTest

NARROW = strict(inputs=10, has_base64=False, own_dimensions=DIMENSIONS, tokens_per_input=300)
JOBS = 25


@dataclass
class Unknown:
    """A deployment with a server at an address that no profile knows."""

    queue: Neo4jUnderTest
    server: OpenAIServer
    environment: pytest.MonkeyPatch
    said: list[str] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        return load_settings()

    async def drain(self) -> DrainReport:
        stop = asyncio.Event()
        options = wiring.drain_options(self.settings)
        embedder = wiring.open_embedder(self.settings)
        async with wiring.opened_drain(
            self.settings, embedder, owner="w", options=options, stop=stop, say=self.said.append
        ) as (_, drain):
            return await drain.run()

    async def learnt(self) -> Learnt | None:
        return await read_learnt(self.queue.queue.database, self.settings.queue)

    @property
    def asked(self) -> int:
        """Requests with nothing but the harmless word."""
        words = ({word for text in body["input"] for word in text.split()} for body in self.sent)
        return sum(found == {PROBE_WORD} for found in words)

    @property
    def sent(self) -> list[dict[str, Any]]:
        return self.server.requests


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with openai_server() as provider:
        yield provider


@pytest.fixture
async def unknown(
    queue: Neo4jUnderTest,
    server: OpenAIServer,
    neo4j_server: TestServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Unknown:
    values = {
        **neo4j_server.environment,
        "EMBED_JOB_RETENTION_DAYS": "14",
        "EMBEDDING_PROVIDER": "openai",
        "EMBEDDING_MODEL": MODEL,
        "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
        "EMBEDDING_RATE_LIMIT_TOKENS": "1000",
        "EMBEDDING_PRICE_USD_PER_MILLION": "1",
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": server.base_url,
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    [row] = await queue.run("RETURN datetime.realtime().epochMillis AS now")
    queue.clock.now = datetime.fromtimestamp(row["now"] / 1000, UTC) - timedelta(minutes=1)
    names = [f"e{number}" for number in range(JOBS - 1)]
    for name in names:
        await queue.put_entity(name)
    await queue.put_entity("long", "word " * 2_000)
    await queue.admin.enqueue([NewJob(name, MODEL) for name in (*names, "long")])
    return Unknown(queue, server, monkeypatch)


async def test_m123_an_unknown_server_is_asked_once_and_fails_no_job(unknown: Unknown) -> None:
    unknown.server.answer_with = NARROW

    report = await unknown.drain()
    asked = unknown.asked
    await unknown.queue.given_jobs("later")
    again = await unknown.drain()

    learnt = await unknown.learnt()
    assert learnt is not None
    assert (learnt.inputs, learnt.tokens) == (10, 256)
    assert (learnt.encoding, learnt.sends_dimensions) == ("float", False)
    assert (report.completed, report.failed.total(), report.retried) == (JOBS, 0, 0)
    assert (again.completed, unknown.asked) == (1, asked)
    assert asked <= 14
    assert "takes 10 texts in a request, about 256 tokens of a text, float" in unknown.said[0]


async def test_m123_searches_keep_to_what_a_drain_has_found_out(unknown: Unknown) -> None:
    unknown.server.answer_with = NARROW
    await unknown.drain()

    live = await live_settings(unknown.queue.driver, unknown.settings)

    assert (live.profile.encoding, live.profile.inputs) == ("float", 10)


async def test_m123_what_is_set_wins_over_what_was_found_out(unknown: Unknown) -> None:
    unknown.server.answer_with = NARROW
    await unknown.drain()
    found = await live_settings(unknown.queue.driver, unknown.settings)

    unknown.environment.setenv("EMBEDDING_MAX_INPUTS", "3")

    live = await live_settings(unknown.queue.driver, unknown.settings)
    assert (found.profile.inputs, live.profile.inputs) == (10, 3)


async def test_m123_another_model_at_the_server_is_asked_anew(unknown: Unknown) -> None:
    await unknown.drain()

    unknown.environment.setenv("EMBEDDING_MODEL", "other-model")

    live = await live_settings(unknown.queue.driver, unknown.settings)
    assert live.max_inputs is None


async def test_m123_a_server_whose_profile_is_set_is_not_asked(unknown: Unknown) -> None:
    unknown.environment.setenv("EMBEDDING_PROFILE", "openai")

    report = await unknown.drain()

    assert (report.completed, unknown.asked, await unknown.learnt()) == (JOBS, 0, None)


async def test_m123_asking_is_counted_in_limit_and_budget(unknown: Unknown) -> None:
    unknown.environment.setenv("EMBED_BUDGET_USD_PER_DAY", "100")

    await unknown.drain()

    [row] = await unknown.queue.run(
        "MATCH (l:EmbedLimiter) RETURN l.day_tokens AS tokens, l.requests AS requests"
    )
    assert sum(row["requests"]) == len(unknown.sent)
    assert row["tokens"] == sum(len(body["input"]) for body in unknown.sent)


async def test_m123_nothing_is_leased_while_the_budget_allows_no_question(unknown: Unknown) -> None:
    unknown.environment.setenv("EMBED_BUDGET_TOKENS_PER_DAY", "100")
    await unknown.queue.queue.limiter(
        wiring.open_limiter(unknown.queue.queue, unknown.settings).limits
    ).acquire(tokens=100)

    report = await unknown.drain()

    assert (report.leased, unknown.sent, await unknown.learnt()) == (0, [], None)
    assert "EMBED_BUDGET_TOKENS_PER_DAY" in unknown.said[0]


async def test_m123_a_server_that_is_down_gets_no_job_and_is_asked_by_the_next_drain(
    unknown: Unknown,
) -> None:
    unknown.server.answer_with = lambda _: failure(503, "starting", None)

    down = await unknown.drain()
    breaker = (await unknown.queue.switch.state()).breaker
    held_off = len(unknown.sent)
    await unknown.drain()
    assert len(unknown.sent) == held_off
    await unknown.queue.run("MATCH (q:EmbedQueue) SET q.breaker_probe_at = 0")
    for _ in range(2):
        await unknown.drain()
    again = (await unknown.queue.switch.state()).breaker
    assert (len(unknown.sent), again.failures) == (held_off + 1, 2)
    unknown.server.answer_with = NARROW
    await unknown.queue.run("MATCH (q:EmbedQueue) SET q.breaker_probe_at = 0")
    report = await unknown.drain()

    assert (down.leased, breaker.is_outage, held_off) == (0, True, 1)
    assert (down.ending, down.reason) == (Ending.CLOSED, str(breaker))
    assert "cannot be found out yet" in unknown.said[0]
    assert (report.completed, report.failed.total()) == (JOBS, 0)


async def test_m123_a_refused_key_stops_the_queue_before_a_job_is_leased(unknown: Unknown) -> None:
    unknown.server.key = "sk-another"

    report = await unknown.drain()

    breaker = (await unknown.queue.switch.state()).breaker
    assert (report.leased, breaker.status, breaker.is_outage) == (0, BreakerStatus.OPEN, False)


async def test_m123_a_server_that_breaks_down_over_long_texts_is_sent_shorter_ones(
    unknown: Unknown,
) -> None:
    def breaks(body: dict[str, Any]) -> Response | None:
        is_long = any(len(text.split()) > 600 for text in body["input"])
        return failure(500, "out of memory", None) if is_long else None

    unknown.server.answer_with = breaks

    report = await unknown.drain()

    learnt = await unknown.learnt()
    assert learnt is not None
    assert (learnt.inputs, learnt.tokens) == (2048, 512)
    assert report.completed == JOBS


async def test_m123_a_server_that_refuses_everything_fails_no_job(unknown: Unknown) -> None:
    unknown.server.answer_with = lambda _: failure(400, "unknown parameter: model", None)

    report = await unknown.drain()

    assert (report.failed.total(), report.ending) == (0, Ending.CRITICAL)
    assert await unknown.learnt() is None


async def test_m124_the_doctor_renews_what_drains_keep_to(unknown: Unknown) -> None:
    await unknown.drain()
    unknown.server.answer_with = NARROW

    found = [finding async for finding in doctor.examine(unknown.settings, ask_provider=True)]

    said = [finding.detail for finding in found if finding.mark is Mark.WARNING]
    learnt = await unknown.learnt()
    assert learnt is not None
    assert (learnt.inputs, learnt.tokens, learnt.encoding) == (10, 300, "float")
    assert "the server takes at most 10 texts in a request, not 2048" in said
    assert [one.subject for one in found if one.exit_code] == []
