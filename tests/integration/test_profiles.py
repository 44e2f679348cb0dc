"""Servers that take less than OpenAI's, each as a loopback server that behaves so."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from neo4j import AsyncGraphDatabase

from embed_pipeline import AsyncQueue
from embed_pipeline.domain.embedding import inputs_of
from embed_pipeline.domain.errors import PermanentError
from embed_pipeline.domain.profiles import OPENAI, PROFILES, Profile, profile_by_address
from embed_pipeline.operations.findings import Finding
from embed_pipeline.operations.planning import request_limits
from embed_pipeline.operations.probing import provider_misfits
from embed_pipeline.operations.providers import open_provider
from embed_pipeline.settings import Settings, load_settings
from embed_pipeline.worker.batching import in_requests
from tests.conftest import TestServer
from tests.support.openai_server import KEY, OpenAIServer, openai_server, strict
from tests.support.project import ROOT

LENGTH = 8
NARROW = strict(inputs=10, has_base64=False, own_dimensions=LENGTH, tokens_per_input=100)
"""A server as of M123."""


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with openai_server() as provider:
        yield provider


@pytest.fixture
def environment(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The settings of a deployment that asks the server."""
    values = {
        "EMBED_JOB_RETENTION_DAYS": "14",
        "EMBEDDING_PROVIDER": "openai",
        "EMBEDDING_MODEL": "some-model",
        "EMBEDDING_DIMENSIONS": str(LENGTH),
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": server.base_url,
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def settings(environment: pytest.MonkeyPatch, **values: str) -> Settings:
    for name, value in values.items():
        environment.setenv(name, value)
    return load_settings(Path("no.env"))


async def embed_many(chosen: Settings) -> int:
    """Embed more than any server takes at once: texts, tokens of one, tokens of all."""
    embedder = open_provider(chosen)
    words = [f"text {number}" for number in range(2_100)]
    prepared = [embedder.prepare(text) for text in (*words, "long " * 9_000)]
    prepared += [embedder.prepare("many " * 500)] * 620
    try:
        requests = in_requests(inputs_of(prepared), embedder.limits)
        return sum([len((await embedder.embed(texts)).vectors) for texts in requests])
    finally:
        await embedder.close()


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
async def test_m123_a_server_as_its_profile_says_refuses_nothing(
    profile: Profile, server: OpenAIServer, environment: pytest.MonkeyPatch
) -> None:
    server.answer_with = strict(
        inputs=profile.inputs,
        tokens=profile.tokens,
        tokens_per_input=profile.tokens_per_input,
        has_base64=profile.encoding == "base64",
        own_dimensions=None if profile.sends_dimensions else LENGTH,
        type_field=profile.type_field,
    )
    chosen = settings(environment, EMBEDDING_PROFILE=profile.name)

    embedded = await embed_many(chosen)

    assert embedded >= 2_721
    assert len(server.requests) > 2_721 / profile.inputs


async def test_a_server_that_takes_less_refuses_what_is_sent_without_its_profile(
    server: OpenAIServer, environment: pytest.MonkeyPatch
) -> None:
    server.answer_with = NARROW

    with pytest.raises(PermanentError):
        await embed_many(settings(environment))


async def test_m123_a_narrow_server_is_used_without_a_failed_job(
    server: OpenAIServer, environment: pytest.MonkeyPatch, neo4j_server: TestServer
) -> None:
    server.answer_with = NARROW
    chosen = settings(
        environment,
        **neo4j_server.environment,
        EMBED_QUEUE="narrow",
        EMBED_ENTITY_LABEL="Narrow",
        EMBED_VECTOR_INDEX="narrow",
        EMBED_ENTITY_TEMPLATE="{name}",
        EMBEDDING_DOCUMENT_PREFIX="search_document: ",
        EMBEDDING_QUESTION_PREFIX="search_query: ",
        EMBEDDING_TYPE_FIELD="task",
        EMBEDDING_DOCUMENT_TYPE="retrieval.passage",
        EMBEDDING_QUESTION_TYPE="retrieval.query",
        EMBEDDING_MAX_INPUTS="10",
        EMBEDDING_MAX_TOKENS="100",
        EMBEDDING_ENCODING="float",
        EMBEDDING_SEND_DIMENSIONS="false",
    )
    auth = (neo4j_server.username, neo4j_server.password)
    async with (
        AsyncGraphDatabase.driver(neo4j_server.uri, auth=auth) as driver,
        AsyncQueue.from_settings(chosen) as queue,
    ):
        await driver.execute_query("MATCH (n) DETACH DELETE n")
        await driver.execute_query("UNWIND range(1, 25) AS n CREATE (:Narrow {name: 'n' + n})")
        await queue.init()
        await queue.scan()
        report = await queue.process_jobs()
        hits = await queue.search("where is n7?", limit=3)

    *documents, question = server.requests
    assert (report.completed, report.failed.total(), report.retried) == (25, 0, 0)
    assert {text.partition(": ")[0] for body in documents for text in body["input"]} == {
        "search_document"
    }
    assert question["input"] == ["search_query: where is n7?"]
    assert {body["task"] for body in documents} == {"retrieval.passage"}
    assert question["task"] == "retrieval.query"
    assert len(hits) == 3


async def probed(chosen: Settings) -> list[Finding]:
    return [finding async for finding in provider_misfits(chosen)]


async def test_m124_the_doctor_names_each_misfit(
    server: OpenAIServer, environment: pytest.MonkeyPatch
) -> None:
    server.answer_with = NARROW

    found = await probed(settings(environment))

    assert [finding.remedy.split(",")[0] for finding in found] == [
        "Set EMBEDDING_SEND_DIMENSIONS=false",
        "Set EMBEDDING_ENCODING=float",
        "Set EMBEDDING_MAX_INPUTS=10",
        "Set EMBEDDING_MAX_TOKENS=100",
    ]
    assert all(finding.exit_code for finding in found)


async def test_m124_the_doctor_has_nothing_to_say_where_what_it_said_is_set(
    server: OpenAIServer, environment: pytest.MonkeyPatch
) -> None:
    server.answer_with = NARROW
    said = [finding.remedy for finding in await probed(settings(environment))]

    advised = dict(remedy.removeprefix("Set ").split(",")[0].split("=") for remedy in said)

    assert await probed(settings(environment, **advised)) == []


@pytest.mark.parametrize(
    ("profile", "model", "price", "source"),
    [
        ("vllm", "nomic-embed-text", 0.0, "a server of your own, as the profile vllm says"),
        ("ollama", "text-embedding-3-small", 0.0, "a server of your own"),
        ("openai", "text-embedding-3-small", 0.02, "genai-prices"),
        ("mistral", "text-embedding-3-small", 0.02, "genai-prices"),
    ],
)
def test_m123_the_profile_says_whose_prices_hold(
    profile: str, model: str, price: float, source: str, environment: pytest.MonkeyPatch
) -> None:
    chosen = settings(environment, EMBEDDING_PROFILE=profile, EMBEDDING_MODEL=model)

    assert chosen.price.usd_per_million == pytest.approx(price)
    assert chosen.price.source.startswith(source)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        (None, "openai"),
        ("https://api.voyageai.com/v1", "voyage"),
        ("https://acme.openai.azure.com/openai/v1", "azure"),
        ("https://generativelanguage.googleapis.com/v1beta/openai", "gemini"),
        ("http://127.0.0.1:11434/v1", "ollama"),
        ("https://gateway.example.com/v1", "openai"),
        ("https://notopenrouter.ai.example.com/v1", "openai"),
    ],
)
def test_a_profile_is_known_by_the_address(address: str | None, name: str) -> None:
    assert (profile_by_address(address) or OPENAI).name == name


@pytest.mark.parametrize(("is_question", "said"), [(False, "document"), (True, "query")])
async def test_a_server_that_wants_to_know_hears_what_is_a_question(
    server: OpenAIServer, environment: pytest.MonkeyPatch, *, is_question: bool, said: str
) -> None:
    chosen = settings(environment, EMBEDDING_PROFILE="voyage")
    embedder = open_provider(chosen, for_questions=is_question)

    await embedder.embed([embedder.prepare("text")])
    await embedder.close()

    assert server.requests[0]["input_type"] == said


async def test_a_plan_counts_the_requests_that_the_profile_makes(
    environment: pytest.MonkeyPatch,
) -> None:
    limits = request_limits(settings(environment, EMBEDDING_PROFILE="tei"))

    assert (limits.inputs, limits.tokens_per_input) == (32, 512)


def test_every_profile_is_in_the_table_of_the_docs() -> None:
    page = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8")

    for profile in PROFILES.values():
        row = (
            f"| `{profile.name}` | {profile.inputs:,} | {profile.tokens:,} | "
            f"{profile.tokens_per_input:,} | {profile.encoding} | "
            f"{'yes' if profile.sends_dimensions else 'no'} |"
        )
        assert row in page
