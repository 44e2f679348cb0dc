"""Answers of any size: read in pieces, and not beyond what an answer can have."""

import asyncio
import base64
import gzip
import itertools
import json
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, strategies as st
from starlette.responses import Response

from embed_pipeline.domain.errors import TransientError
from embed_pipeline.domain.vector import numbers_of, vector_of
from embed_pipeline.embedding.answers import AnswerReader, OversizedAnswerError
from embed_pipeline.embedding.openai import OpenAIEmbedder
from tests.support.openai_server import KEY, OpenAIServer, failure, openai_server

DIMENSIONS = 8
MEBIBYTE = 2**20
PIECE = b" " * MEBIBYTE
PIECES = 100
OF_ONE_TEXT = 32 * 4_096 + 1_024
OF_THE_REST = 64 * 1_024
BEGINNING = b'{"object": "list", "data": [{"index": 0, "embedding": ['


def packed(numbers: list[float]) -> str:
    return base64.b64encode(vector_of(numbers)).decode()


def entries(count: int, form: Callable[[list[float]], Any]) -> list[dict[str, Any]]:
    return [{"index": n, "embedding": form([n + 1.0] * DIMENSIONS)} for n in range(count)]


def read(body: bytes, *, inputs: int, piece: int = 1_000) -> tuple[list[list[float]], int | None]:
    reader = AnswerReader(inputs=inputs, dimensions=DIMENSIONS)
    for start in range(0, len(body), piece):
        reader.feed(body[start : start + piece])
    vectors, tokens = reader.finish()
    return [numbers_of(vector) for vector in vectors], tokens


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with openai_server() as running:
        yield running


@pytest.fixture
async def embedder(server: OpenAIServer) -> AsyncIterator[OpenAIEmbedder]:
    opened = OpenAIEmbedder(model="m", dimensions=DIMENSIONS, api_key=KEY, base_url=server.base_url)
    yield opened
    await opened.close()


@pytest.mark.parametrize("form", [packed, list], ids=["base64", "numbers"])
@given(piece=st.integers(1, 400), indent=st.sampled_from([None, 2]))
def test_an_answer_means_the_same_however_it_is_cut_into_pieces(
    form: Callable[[list[float]], Any], piece: int, indent: int | None
) -> None:
    answer = {
        "model": 'a "data": [{ in a name \\',
        "warnings": [{"index": 9}],
        "data": entries(3, form)[::-1],
        "usage": {"total_tokens": 7},
    }

    vectors, tokens = read(json.dumps(answer, indent=indent).encode(), inputs=3, piece=piece)

    assert vectors == [[1.0] * DIMENSIONS, [2.0] * DIMENSIONS, [3.0] * DIMENSIONS]
    assert tokens == 7


@given(st.binary(max_size=200), st.integers(1, 50))
def test_no_bytes_make_the_reader_do_anything_but_refuse(body: bytes, piece: int) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        read(body, inputs=1, piece=piece)


def test_a_server_that_knows_no_base64_is_read_with_one_text_in_memory() -> None:
    dimensions, inputs = 1_536, 200
    reader = AnswerReader(inputs=inputs, dimensions=dimensions)
    numbers = ", ".join(["-0.012345678901234567"] * dimensions)
    vectors_alone = 4 * dimensions * inputs

    tracemalloc.start()
    reader.feed(b'{"data": [')
    for index in range(inputs):
        comma = "," if index else ""
        reader.feed(f'{comma}{{"index": {index}, "embedding": [{numbers}]}}'.encode())
    reader.feed(b"]}")
    vectors, _ = reader.finish()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(vectors) == inputs
    assert peak < 2 * vectors_alone


def test_vectors_of_another_length_tell_it_and_take_no_memory() -> None:
    inputs = 100
    data = [{"index": n, "embedding": packed([1.0] * 3_000)} for n in range(inputs)]

    reader = AnswerReader(inputs=inputs, dimensions=DIMENSIONS)
    reader.feed(json.dumps({"data": data}).encode()[:-1])
    reader.feed(b"}")
    vectors, _ = reader.finish()

    assert {len(vector) for vector in vectors} == {12_000}
    assert len({id(vector) for vector in vectors}) == 1


@dataclass
class Endless:
    """A provider that answers with 100 MiB, and counts what was taken of it."""

    beginning: bytes = b""
    status: int = 200
    is_packed: bool = False
    sent: int = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[OpenAIEmbedder]:
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        embedder = OpenAIEmbedder(model="m", dimensions=DIMENSIONS, api_key=KEY, base_url=url)
        async with server:
            yield embedder
            await embedder.close()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        packing = b"Content-Encoding: gzip\r\n" if self.is_packed else b""
        writer.write(b"HTTP/1.1 %d Some\r\n%s\r\n" % (self.status, packing))
        with suppress(ConnectionError):
            for piece in self.pieces():
                writer.write(piece)
                await writer.drain()
                self.sent += len(piece)
        writer.close()

    def pieces(self) -> Iterator[bytes]:
        whole = itertools.chain([self.beginning], itertools.repeat(PIECE, PIECES))
        if not self.is_packed:
            return whole
        packer = zlib.compressobj(level=1, wbits=zlib.MAX_WBITS | 16)
        # All in one piece, so that nothing but the bound can stop it.
        return iter([b"".join(map(packer.compress, whole))])


@pytest.mark.parametrize("is_packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    ("beginning", "status"),
    [(BEGINNING, 200), (b'{"data": [', 200), (b"", 500), (b"", 401), (b"", 302)],
    ids=["in a vector", "between vectors", "500", "401", "302"],
)
async def test_an_answer_without_end_is_cut_off(
    beginning: bytes, status: int, is_packed: bool
) -> None:
    provider = Endless(beginning, status, is_packed)

    async with provider.serving() as embedder:
        texts = [embedder.prepare("Zanzibar")]
        tracemalloc.start()
        with pytest.raises(TransientError, match=r"answered more than [\d,]+ bytes .*") as caught:
            await embedder.embed(texts)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert "Zanzibar" not in str(caught.value)
    # What the kernel holds on the way, and the provider's own pieces.
    assert provider.sent < 20 * MEBIBYTE
    assert peak < 20 * MEBIBYTE


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b'{"data": [{"index": 0, "embedding": [%s1]}], "usage": {}}', "for one text"),
        (b'{"data": [{"index": 0, "embedding": [1]}], "usage": %s{}}', "around the vectors"),
    ],
)
def test_the_bound_leaves_no_entry_the_room_of_all(body: bytes, where: str) -> None:
    most = OF_ONE_TEXT if "one" in where else OF_THE_REST

    def padded(blanks: int) -> bytes:
        return body % (b" " * blanks)

    assert read(padded(most - 100), inputs=9) == ([[1.0]], None)
    with pytest.raises(OversizedAnswerError, match=f"{most:,} bytes {where}"):
        read(padded(most + 100), inputs=9)


async def test_a_packed_answer_and_a_packed_error_are_read(
    server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    packing = {"content-encoding": "gzip"}
    good = gzip.compress(json.dumps({"data": entries(1, packed)}).encode())
    server.answer_with = lambda _: Response(good, headers=packing, media_type="application/json")
    assert len((await embedder.embed([embedder.prepare("a")])).vectors) == 1

    bad = gzip.compress(bytes(failure(500, "the server is overloaded", None).body))
    server.answer_with = lambda _: Response(bad, 500, packing, media_type="application/json")
    with pytest.raises(TransientError, match="overloaded"):
        await embedder.embed([embedder.prepare("a")])
