"""The providers, the real HTTP client included."""

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from math import isclose

import pytest
from starlette.responses import PlainTextResponse

from embed_pipeline.domain.errors import (
    CriticalError,
    EmbeddingError,
    PermanentError,
    RateLimitedError,
    TooLargeError,
    TransientError,
)
from embed_pipeline.domain.ports import Embedder
from embed_pipeline.embedding.local import LocalEmbedder
from embed_pipeline.embedding.mock import MockEmbedder
from embed_pipeline.embedding.openai import OpenAIEmbedder
from tests.openai_server import KEY, OpenAIServer, failure, openai_server


async def embed(embedder: Embedder, *texts: str) -> list[Sequence[float]]:
    return (await embedder.embed([embedder.prepare(text) for text in texts])).vectors


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with openai_server() as running:
        yield running


@pytest.fixture
async def embedder(server: OpenAIServer) -> AsyncIterator[OpenAIEmbedder]:
    opened = OpenAIEmbedder(model="m", dimensions=8, api_key=KEY, base_url=server.base_url)
    yield opened
    await opened.close()


async def test_openai_embeds_all_texts_in_one_request_in_their_order(
    server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    vectors = await embed(embedder, "a", "b", "c")

    assert [vector[0] for vector in vectors] == [1.0, 2.0, 3.0]
    assert [len(vector) for vector in vectors] == [8, 8, 8]
    [request] = server.requests
    assert request["input"] == ["a", "b", "c"]
    assert request["encoding_format"] == "base64"


@pytest.mark.parametrize(
    ("status", "code", "meaning"),
    [
        (401, "invalid_api_key", CriticalError),
        (403, "unsupported_country_region_territory", CriticalError),
        (404, "model_not_found", CriticalError),
        (429, "insufficient_quota", CriticalError),
        (429, "rate_limit_exceeded", RateLimitedError),
        (400, None, PermanentError),
        (422, None, PermanentError),
        (400, "max_tokens_per_request", TooLargeError),
        (413, None, TooLargeError),
        (408, None, TransientError),
        (409, None, TransientError),
        (500, None, TransientError),
        (503, None, TransientError),
    ],
)
async def test_openai_errors_get_their_meaning_after_one_request(
    server: OpenAIServer,
    embedder: OpenAIEmbedder,
    status: int,
    code: str | None,
    meaning: type[EmbeddingError],
) -> None:
    server.answer_with = lambda _: failure(status, "no", code)

    with pytest.raises(EmbeddingError) as caught:
        await embed(embedder, "a")

    assert type(caught.value) is meaning
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "7"}, timedelta(seconds=7)),
        ({"retry-after-ms": "250"}, timedelta(milliseconds=250)),
        ({}, None),
    ],
)
async def test_openai_says_how_long_to_wait(
    server: OpenAIServer, embedder: OpenAIEmbedder, headers: dict[str, str], wait: timedelta | None
) -> None:
    server.answer_with = lambda _: failure(429, "slow down", "rate_limit_exceeded", **headers)

    with pytest.raises(RateLimitedError) as caught:
        await embed(embedder, "a")

    assert caught.value.retry_after == wait


@pytest.mark.parametrize("body", ["<html>502 Bad Gateway</html>", '{"data": [', '{"data": []}'])
async def test_an_unreadable_answer_is_transient(
    server: OpenAIServer, embedder: OpenAIEmbedder, body: str
) -> None:
    server.answer_with = lambda _: PlainTextResponse(
        body, media_type="application/json" if body.startswith("{") else "text/html"
    )

    with pytest.raises(TransientError):
        await embed(embedder, "a")


async def test_nobody_at_the_address_is_transient() -> None:
    embedder = OpenAIEmbedder(
        model="m", dimensions=8, api_key=KEY, base_url="http://127.0.0.1:9/v1"
    )

    with pytest.raises(TransientError):
        await embed(embedder, "a")

    await embedder.close()


async def test_a_key_that_the_server_repeats_is_not_in_the_error(server: OpenAIServer) -> None:
    embedder = OpenAIEmbedder(
        model="m", dimensions=8, api_key="sk-wrong-key", base_url=server.base_url
    )

    with pytest.raises(CriticalError) as caught:
        await embed(embedder, "a")

    assert "sk-wrong-key" not in str(caught.value)
    assert caught.value.__cause__ is None
    await embedder.close()


async def test_mock_vectors_depend_on_the_text_alone() -> None:
    embedder = MockEmbedder(model="mock-m", dimensions=16)

    [first, other] = await embed(embedder, "a", "b")
    [again] = await embed(MockEmbedder(model="mock-m", dimensions=16), "a")

    assert first == again != other
    assert isclose(sum(n * n for n in first), 1.0)


def test_a_mock_under_a_real_name_is_refused() -> None:
    with pytest.raises(ValueError, match="mock-"):
        MockEmbedder(model="text-embedding-3-small", dimensions=16)


@pytest.mark.parametrize("dimensions", [64, 128, 256])
async def test_the_local_model_knows_what_belongs_together(dimensions: int) -> None:
    embedder = LocalEmbedder(model="wordllama-256", dimensions=dimensions)

    cat, kitten, tax = await embed(embedder, "a cat", "a kitten", "income tax law")

    assert len(cat) == dimensions
    assert _cosine(cat, kitten) > _cosine(cat, tax)


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))
