"""Any bytes as the provider's answer: vectors, or an error that tells neither key nor text."""

import asyncio
import json
import traceback
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from embed_pipeline.domain.embedding import Embedded
from embed_pipeline.domain.errors import EmbeddingError, RateLimitedError
from embed_pipeline.domain.holds import LONGEST_HOLD
from embed_pipeline.embedding.openai import OpenAIEmbedder
from embed_pipeline.worker.batching import judge_answer

KEY = "sk-fuzz-only-0123456789abcdef"
TEXTS = ("Zanzibar clove merchants", "Quokkas befriend cyclists")
WORDS = [word for text in TEXTS for word in text.split()]
DIMENSIONS = 2
LARGEST_COUNTER = 2**63 - 1
"""What Neo4j can hold."""


@dataclass(frozen=True)
class Raw:
    """An answer, byte by byte."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    length: int | None = None
    """What it says about its length; the truth if nothing."""

    @property
    def encoded(self) -> bytes:
        length = len(self.body) if self.length is None else self.length
        headers = [*self.headers, ("content-length", str(length)), ("connection", "close")]
        lines = [f"HTTP/1.1 {self.status} X", *(f"{name}: {value}" for name, value in headers)]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + self.body


@dataclass
class Wire:
    """An embedder and the server it asks, in one event loop."""

    runner: asyncio.Runner
    answer: Raw = field(default_factory=Raw)
    embedder: OpenAIEmbedder = field(init=False)

    async def open(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        base_url = f"http://127.0.0.1:{port}/v1"
        self.embedder = OpenAIEmbedder(
            model="m", dimensions=DIMENSIONS, api_key=KEY, base_url=base_url
        )
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            [length] = [
                int(line.split(b":")[1])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length")
            ]
            await reader.readexactly(length)
            writer.write(self.answer.encoded)
            await writer.drain()

    def embed(self, answer: Raw) -> Embedded | EmbeddingError:
        self.answer = answer
        prepared = [self.embedder.prepare(text) for text in TEXTS]
        try:
            return self.runner.run(self.embedder.embed(prepared))
        except EmbeddingError as error:
            return error


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with asyncio.Runner() as runner:
        made = Wire(runner)
        server = runner.run(made.open())
        yield made
        runner.run(made.embedder.close())
        server.close()


waits = st.one_of(
    st.sampled_from(
        [
            *(
                "inf",
                "-inf",
                "nan",
                "infinity",
                "1e309",
                "1e-400",
                "0x10",
                "1_0",
                "5, 7",
                " 3 ",
                "",
            ),
            *("-1", "0", "-0.0", "1000000000", "86399999999999.9", "9" * 400),
            "Fri, 31 Dec 9999 23:59:59 GMT",
            "Thu, 01 Jan 1970 00:00:00 GMT",
            "Mon, 01 Jan 0001 00:00:00 +2359",
            "Mon, 01 Jan 2035 00:00:00 +9999999999",
            "99 Foo 99999999999 99:99:99",
        ]
    ),
    st.floats().map(str),
    st.integers(-(10**30), 10**30).map(str),
    st.text(st.characters(min_codepoint=33, max_codepoint=255, exclude_categories=["Cc"])),
)
headers = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["retry-after", "Retry-After", "retry-after-ms", "date"]), waits),
        st.tuples(
            st.sampled_from(
                ["x-ratelimit-reset-requests", "x-ratelimit-remaining-tokens", "x-should-retry"]
            ),
            waits,
        ),
        st.tuples(
            st.just("content-encoding"), st.sampled_from(["gzip", "deflate", "br", "zstd", "x"])
        ),
        st.tuples(
            st.just("content-type"),
            st.sampled_from(
                ["application/json", "text/html", "application/json; charset=utf-7", "", "a/b;;="]
            ),
        ),
        st.tuples(st.just("location"), st.sampled_from(["/", "http://127.0.0.1:9/", "::"])),
        st.tuples(st.just("x-request-id"), st.sampled_from([KEY, TEXTS[0]])),
    ),
    max_size=5,
).map(tuple)
numbers = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.just(10**400))
quotes = st.sampled_from([*TEXTS, KEY, f"Bearer {KEY}", f"no: {TEXTS[0]!r} with {KEY}", "clove"])
scalars = st.one_of(numbers, quotes, st.text(max_size=8), st.just("\ud800"))
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(quotes | st.text(max_size=4), inner, max_size=3),
    ),
    max_leaves=8,
)
indexes = st.one_of(st.integers(-1, 3), scalars)
embeddings = st.one_of(
    st.lists(numbers, max_size=3),
    st.sampled_from(["AACAPwAAAEA=", "AAAAAAAAAAA=", "AADAfwAAgD8=", "AAA", "AAAAAAA=", "!"]),
    anything,
)
items = st.one_of(
    st.fixed_dictionaries({"index": indexes, "embedding": embeddings}),
    anything,
)
usages = st.fixed_dictionaries({"total_tokens": scalars}) | anything
answers = st.fixed_dictionaries(
    {"data": st.lists(items, max_size=3) | anything}, optional={"usage": usages, "object": scalars}
)
refusals = st.fixed_dictionaries(
    {
        "error": st.fixed_dictionaries(
            {"message": quotes | anything},
            optional={
                "code": st.sampled_from(["insufficient_quota", "max_tokens_per_request"]) | scalars,
                "type": scalars,
                "param": scalars,
            },
        )
        | anything
    }
)
bodies = st.one_of(
    st.one_of(answers, refusals, anything).map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=40),
    quotes.map(lambda text: f"<html>{text}</html>".encode()),
    st.sampled_from([b"[" * 50_000, b'{"error":' * 20_000, b'{"data": [', b"\xff\xfe"]),
)
statuses = st.one_of(
    st.sampled_from([200, 200, 200, 429, 429, 429, 400, 401, 404, 408, 409, 413, 422, 500, 503]),
    st.integers(200, 599),
)
raws = st.builds(Raw, statuses, headers, bodies, st.none() | st.none() | st.integers(0, 10_000))


def limited(**headers: str) -> Raw:
    body = json.dumps({"error": {"message": f"too much: {TEXTS[0]}", "code": KEY}}).encode()
    return Raw(429, tuple((name.replace("_", "-"), said) for name, said in headers.items()), body)


@settings(max_examples=200, deadline=None)
@given(raws)
@example(Raw(413, (), json.dumps({"error": {"message": TEXTS[0], "code": TEXTS[0]}}).encode()))
@example(Raw(400, (), json.dumps({"error": {"message": "no", "param": TEXTS[0]}}).encode()))
@example(limited(retry_after="inf"))
@example(limited(retry_after="nan"))
@example(limited(retry_after="1e309"))
@example(limited(retry_after_ms="inf"))
@example(limited(retry_after="1000000000"))
@example(limited(retry_after="Fri, 31 Dec 9999 23:59:59 GMT"))
@example(Raw(200, (("content-encoding", "gzip"),), b"no gzip"))
@example(Raw(200, (), b"{}", 10_000))
def test_i19_any_answer_is_vectors_or_an_error_that_holds_neither_key_nor_text(
    wire: Wire, answer: Raw
) -> None:
    found = wire.embed(answer)

    if isinstance(found, EmbeddingError):
        assert_tells_nothing(found)
        if isinstance(found, RateLimitedError) and found.retry_after is not None:
            assert timedelta(0) <= found.retry_after <= LONGEST_HOLD
    else:
        assert 0 <= found.tokens <= LARGEST_COUNTER
        with suppress(EmbeddingError):
            judged = judge_answer(found.vectors, expected=len(TEXTS), dimensions=DIMENSIONS)
            assert len(judged) == len(TEXTS)


def assert_tells_nothing(error: EmbeddingError) -> None:
    """Neither in words, nor by what it leads to: an answer knows its request, and that the key."""
    assert (error.__cause__, error.__context__) == (None, None)
    told = [str(error), repr(vars(error)), *traceback.format_exception(error)]
    assert [word for word in [KEY, *WORDS] for text in told if word in text] == []


def body_of(total_tokens: Any) -> bytes:
    data = [{"index": index, "embedding": [1.0, 2.0]} for index in range(len(TEXTS))]
    return json.dumps({"data": data, "usage": {"total_tokens": total_tokens}}).encode()


@pytest.mark.parametrize("said", [7, 12])
def test_the_tokens_that_a_provider_says_are_counted(wire: Wire, said: int) -> None:
    found = wire.embed(Raw(200, (("content-type", "application/json"),), body_of(said)))

    assert isinstance(found, Embedded)
    assert found.tokens == said


@pytest.mark.parametrize("said", [10**30, -1, "many", None])
def test_tokens_that_no_request_can_have_are_counted_here(wire: Wire, said: object) -> None:
    found = wire.embed(Raw(200, (("content-type", "application/json"),), body_of(said)))

    assert isinstance(found, Embedded)
    assert found.tokens == sum(wire.embedder.prepare(text).tokens for text in TEXTS)
