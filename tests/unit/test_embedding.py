"""The providers, the real HTTP client included."""

import logging
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from math import isclose
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response

from embed_pipeline.devserver.ports import free_port
from embed_pipeline.domain.errors import (
    CriticalError,
    EmbeddingError,
    PermanentError,
    RateLimitedError,
    Refusal,
    TooLargeError,
    TransientError,
)
from embed_pipeline.domain.holds import LONGEST_HOLD
from embed_pipeline.domain.models import DEFAULT_MODELS, MODELS, Provider
from embed_pipeline.domain.ports import Embedder
from embed_pipeline.domain.profiles import OPENAI
from embed_pipeline.domain.vector import numbers_of
from embed_pipeline.embedding.local import LocalProvider, open_local
from embed_pipeline.embedding.mock import MockEmbedder
from embed_pipeline.embedding.openai import OpenAIEmbedder
from embed_pipeline.embedding.retry_after import retry_after
from embed_pipeline.worker.batching import judge_answer
from tests.support.openai_server import KEY, OpenAIServer, failure, openai_server


async def embed(embedder: Embedder, *texts: str) -> list[list[float]]:
    embedded = await embedder.embed([embedder.prepare(text) for text in texts])
    return [numbers_of(vector) for vector in embedded.vectors]


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
    ("address", "said"),
    [
        ("http://user:secret-0815@127.0.0.1:{port}", "Connection refused: 127.0.0.1:{port}"),
        ("https://127.0.0.1:{server}", "no TLS, WRONG_VERSION_NUMBER: 127.0.0.1:{server}"),
    ],
)
async def test_an_address_without_a_provider_is_named_with_what_the_system_says(
    server: OpenAIServer, address: str, said: str
) -> None:
    ports = {"port": free_port(), "server": server.port}
    embedder = OpenAIEmbedder(
        model="m", dimensions=4, api_key=KEY, base_url=address.format(**ports)
    )

    with pytest.raises(TransientError) as refused:
        await embedder.embed([embedder.prepare("a")])

    assert str(refused.value) == f"APIConnectionError: Connection error. {said.format(**ports)}"


SPENT = (
    "insufficient_quota",
    "project_spend_limit_exceeded",
    "organization_spend_limit_exceeded",
    "billing_hard_limit_reached",
)


@pytest.mark.parametrize(
    ("status", "code", "meaning"),
    [
        (401, "invalid_api_key", CriticalError),
        (403, "unsupported_country_region_territory", CriticalError),
        (404, "model_not_found", CriticalError),
        *((status, code, CriticalError) for status in (429, 403, 400) for code in SPENT),
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
async def test_m73_openai_errors_get_their_meaning_after_one_request(
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
    ("model", "send_dimensions", "sent"),
    [("m", True, {8}), ("m", False, set[int]()), ("text-embedding-ada-002", True, set[int]())],
)
async def test_the_length_is_asked_for_unless_it_is_left_out(
    server: OpenAIServer, model: str, send_dimensions: bool, sent: set[int]
) -> None:
    embedder = OpenAIEmbedder(
        model=model,
        dimensions=8,
        api_key=KEY,
        base_url=server.base_url,
        profile=replace(OPENAI, sends_dimensions=send_dimensions),
    )

    await embed(embedder, "a")

    [request] = server.requests
    assert {request[name] for name in request if name == "dimensions"} == sent
    await embedder.close()


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "This model does not support specifying dimensions."}},
        {"error": {"message": "not supported", "param": "dimensions"}},
        {"error": "`dimensions` is not supported", "error_type": "Validation"},
        {"object": "error", "message": "changing output dimensions is not supported"},
        {"detail": [{"loc": ["body", "dimensions"], "msg": "Extra inputs are not permitted"}]},
    ],
)
async def test_whoever_refuses_dimensions_is_understood(
    server: OpenAIServer, embedder: OpenAIEmbedder, body: dict[str, Any]
) -> None:
    server.answer_with = lambda _: JSONResponse(body, 400)

    with pytest.raises(PermanentError, match=r"not supported|not permitted|does not") as caught:
        await embed(embedder, "a")

    assert "EMBEDDING_SEND_DIMENSIONS=false" in caught.value.advice


@pytest.mark.parametrize(
    ("message", "texts", "is_same"),
    [
        ("You cannot be that long", ["a", "b"], True),
        ("got: {input}", ["the text of Ada", 'it\'s 7 "words"'], True),
        ("got: {input:.16}", ["unbelievable things"], True),
        ("got: {input}", ["日本語のテキスト"], True),
        ("request 7f3a of {count} failed", ["a", "b", "c"], True),
        ("{own}", ["a"], False),
    ],
)
async def test_a_refusal_is_compared_by_what_the_provider_says_of_every_text(
    server: OpenAIServer, embedder: OpenAIEmbedder, message: str, texts: list[str], is_same: bool
) -> None:
    def refuse(body: dict[str, Any]) -> Response:
        inputs = body["input"]
        own = "too short" if inputs == ["probe"] else "too long"
        said = message.format(input=str(inputs), count=len(inputs), own=own)
        return failure(400, said, None)

    async def refusal(*asked: str) -> Refusal:
        with pytest.raises(PermanentError) as caught:
            await embed(embedder, *asked)
        assert caught.value.refusal is not None
        return caught.value.refusal

    server.answer_with = refuse

    assert (await refusal(*texts)).is_also(await refusal("probe")) is is_same


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "7"}, timedelta(seconds=7)),
        ({"retry-after-ms": "250"}, timedelta(milliseconds=250)),
        ({"retry-after-ms": "soon", "retry-after": "7"}, timedelta(seconds=7)),
        ({"retry-after": "900"}, LONGEST_HOLD),
        ({"retry-after": "901"}, LONGEST_HOLD),
        ({"retry-after": "1000000000"}, LONGEST_HOLD),
        ({"retry-after": "inf"}, LONGEST_HOLD),
        ({"retry-after": "1e309"}, LONGEST_HOLD),
        ({"retry-after": "9" * 5_000}, LONGEST_HOLD),
        ({"retry-after-ms": "inf"}, LONGEST_HOLD),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, LONGEST_HOLD),
        ({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-inf"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "later"}, None),
        ({"retry-after": "99 Foo 99999 99:99:99"}, None),
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


def test_a_date_to_wait_for_is_read_by_the_providers_clock() -> None:
    headers = {
        "date": "Mon, 01 Jan 2035 00:00:00 GMT",
        "retry-after": "Mon, 01 Jan 2035 00:01:00 GMT",
    }

    assert retry_after(headers) == timedelta(minutes=1)


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
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    await embedder.close()


async def test_mock_vectors_depend_on_the_text_alone() -> None:
    embedder = MockEmbedder(model="mock-m", dimensions=16)

    [first, other] = await embed(embedder, "a", "b")
    [again] = await embed(MockEmbedder(model="mock-m", dimensions=16), "a")

    assert first == again != other
    assert isclose(sum(n * n for n in first), 1.0, rel_tol=1e-6)


def test_a_mock_under_a_real_name_is_refused() -> None:
    with pytest.raises(ValueError, match="mock-"):
        MockEmbedder(model="text-embedding-3-small", dimensions=16)


@pytest.mark.parametrize(
    ("provider", "dimensions"),
    [
        (Provider.LOCAL, 512),
        (Provider.LOCAL_FAST, 64),
        (Provider.LOCAL_FAST, 128),
        (Provider.LOCAL_FAST, 256),
    ],
)
async def test_a_local_model_knows_what_belongs_together(
    provider: LocalProvider, dimensions: int
) -> None:
    embedder = open_local(provider, model=DEFAULT_MODELS[provider], dimensions=dimensions)

    cat, kitten, tax = await embed(embedder, "a cat", "a kitten", "income tax law")

    assert len(cat) == dimensions
    assert _cosine(cat, kitten) > _cosine(cat, tax)


async def test_the_local_model_understands_other_languages() -> None:
    embedder = open_local(Provider.LOCAL, model=DEFAULT_MODELS[Provider.LOCAL], dimensions=512)

    cat, katze, tax = await embed(embedder, "a cat", "eine Katze", "income tax law")

    assert _cosine(cat, katze) > 0.7 > _cosine(cat, tax)


@pytest.mark.parametrize("provider", [Provider.LOCAL, Provider.LOCAL_FAST])
async def test_a_local_model_takes_what_people_write(provider: LocalProvider) -> None:
    known = MODELS[DEFAULT_MODELS[provider]]
    embedder = open_local(provider, model=known.name, dimensions=known.dimensions)
    odd = ["a lone \ud800", "\0 and \x1b[31m", "🙂" * 50, "   ", "汉" * 3_000, "a" * 200_000]

    answer = await embedder.embed([embedder.prepare(text) for text in odd])

    assert judge_answer(answer.vectors, expected=len(odd), dimensions=known.dimensions) == (
        answer.vectors
    )


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


WORDLLAMA = """
import logging
logging.basicConfig(level=logging.INFO, force=True)

class WordLlama:
    load = staticmethod(lambda **_: None)
"""


def test_a_local_model_leaves_the_logging_of_the_program_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wordllama.py").write_text(WORDLLAMA, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "wordllama", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    root = logging.getLogger()
    before = root.handlers[:], root.level

    open_local(Provider.LOCAL_FAST, model="wordllama-256", dimensions=256)

    assert (root.handlers, root.level) == before
    monkeypatch.delitem(sys.modules, "wordllama")
