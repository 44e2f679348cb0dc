"""Reads the answer of a provider piece by piece, and never more of it than an answer can have.

An answer is ``{"data": [{"index": 0, "embedding": …}, …], "usage": …}``. Read as a whole it costs a
multiple of its size: the body, its text, the strings or floats in it, and then the vectors. Here
each entry of ``data`` becomes a vector as soon as it has arrived, and is forgotten; the rest of the
answer is small. One without an end is cut off.
"""

import json
import re
from base64 import b64decode
from typing import Any, Final

import httpx2
import openai

from embed_pipeline.domain.vector import (
    BYTES_PER_NUMBER,
    MOST_DIMENSIONS,
    NOTHING,
    Vector,
    dimensions_of,
    vector_of,
)

WRITTEN_NUMBER: Final = 32
"""Bytes of a number in JSON, at most: 24 of a double, a comma, and blanks. Base64 needs 5.4."""
REST_OF_ENTRY: Final = 1_024
REST_OF_ANSWER: Final = 64 * 1_024
ERROR_BYTES: Final = 1_024 * 1_024
"""Of an answer that is an error; proxies send pages of HTML."""

_OUTSIDE: Final = re.compile(rb'["{}\[\]]')
_DATA: Final = re.compile(rb'(?<!\\)"data"\s*:\s*\Z')
_LONG_NAME: Final = 100
_ROOT, _LIST, _ENTRY = 1, 2, 3
"""Depths: inside the answer, inside its ``data``, inside an entry of it."""


class OversizedAnswerError(openai.OpenAIError):
    """The provider sends more than an answer can have."""

    def __init__(self, most: int, where: str) -> None:
        super().__init__(
            f"the provider answered more than {most:,} bytes {where}; the rest was not read"
        )


class BoundedClient(httpx2.AsyncClient):
    """Reads no more of an error than ``ERROR_BYTES``; any other answer is left to be read.

    The client library reads errors as a whole, whatever their size. ``httpx2`` unpacks compressed
    answers a MiB at a time, and what is counted is what comes out.
    """

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request; ``stream`` is what the caller of this project always asks for."""
        response = await super().send(request, **{**options, "stream": True})
        if response.is_success:
            return response
        body = bytearray()
        try:
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > ERROR_BYTES:
                    raise OversizedAnswerError(ERROR_BYTES, "with an error")
        finally:
            await response.aclose()
        response.headers.pop("content-encoding", None)
        return httpx2.Response(
            response.status_code, headers=response.headers, content=bytes(body), request=request
        )


class AnswerReader:
    """Takes the bytes of one answer as they come."""

    def __init__(self, *, inputs: int, dimensions: int) -> None:
        self._inputs = inputs
        self._dimensions = dimensions
        self._most_of_entry = WRITTEN_NUMBER * max(dimensions, MOST_DIMENSIONS) + REST_OF_ENTRY
        self._most = inputs * self._most_of_entry + REST_OF_ANSWER
        self._read = 0
        self._depth = 0
        self._is_string = False
        self._is_data = False
        self._is_escaped = False
        self._entry = bytearray()
        self._rest = bytearray()
        self._found: dict[int, Vector] = {}
        self._unfit: Vector | None = None

    def feed(self, piece: bytes) -> None:
        """Take the next chunk.

        Raises:
            OversizedAnswerError: that is more than an answer to these texts can have.
            ValueError: an entry is none.
        """
        self._read += len(piece)
        if self._read > self._most:
            raise OversizedAnswerError(self._most, f"for {self._inputs} texts")
        at = kept = 0
        while True:
            if self._is_string:
                at = self._end_of_string(piece, at)
            mark = None if self._is_string else _OUTSIDE.search(piece, at)
            if mark is None:
                break
            at = mark.end()
            match mark[0]:
                case b'"':
                    self._is_string = True
                case b"[" if self._depth == _ROOT:
                    kept = self._keep(piece, kept, mark.start())
                    self._is_data = bool(_DATA.search(self._rest[-_LONG_NAME:]))
                    self._depth += 1
                case b"{" if self._depth == _LIST and self._is_data:
                    kept = self._keep(piece, kept, mark.start())
                    self._depth += 1
                case b"{" | b"[":
                    self._depth += 1
                case _ if self._depth == _ENTRY and self._is_data:
                    kept = self._keep(piece, kept, at)
                    self._take()
                    self._depth -= 1
                case _:
                    self._depth -= 1
        self._keep(piece, kept, len(piece))

    def finish(self) -> tuple[list[Vector], int | None]:
        """The vectors in the order of the texts, and the tokens that the provider charges for.

        Raises:
            ValueError: it is unclear which vector belongs to which text.
        """
        whole = json.loads(self._rest)
        if not isinstance(whole, dict):
            raise ValueError("the answer is no object")
        order = range(len(self._found))
        # An entry has left a 0 behind.
        if not order or whole["data"] != [0] * len(order) or sorted(self._found) != list(order):
            raise ValueError("a vector or an index is missing, or an index is there twice")
        usage = whole.get("usage")
        said = usage.get("total_tokens") if isinstance(usage, dict) else None
        is_known = type(said) is int and said >= 0
        return [self._found[index] for index in order], said if is_known else None

    def _end_of_string(self, piece: bytes, at: int) -> int:
        """The position behind the end of the string, if it ends in this chunk."""
        while at < len(piece):
            # What follows a backslash means nothing, also in the next piece.
            at, self._is_escaped = at + self._is_escaped, False
            quote = piece.find(b'"', at)
            end = len(piece) if quote < 0 else quote
            escape = piece.find(b"\\", at, end)
            if escape < 0:
                self._is_string = quote < 0
                return end + 1
            at, self._is_escaped = escape + 1, True
        return at

    def _keep(self, piece: bytes, start: int, end: int) -> int:
        """Append to the current entry, or to the rest of the answer."""
        if self._is_data and self._depth >= _ENTRY:
            part, most, where = self._entry, self._most_of_entry, "for one text"
        else:
            part, most, where = self._rest, REST_OF_ANSWER, "around the vectors"
        part += piece[start:end]
        if len(part) > most:
            raise OversizedAnswerError(most, where)
        return end

    def _take(self) -> None:
        """Decode the vector of the entry that has ended."""
        entry = json.loads(self._entry)
        self._entry.clear()
        self._rest += b"0"
        index = entry["index"]
        if type(index) is not int or index in self._found:
            raise ValueError("an index is missing or there twice")
        if len(self._found) > self._inputs:
            raise ValueError("there are more vectors than texts")
        vector = _vector(entry["embedding"])
        if vector and dimensions_of(vector) != self._dimensions:
            # Not used; the first one is kept to tell its length.
            self._unfit = vector = self._unfit or vector
        self._found[index] = vector


def _vector(embedding: object) -> Vector:
    """Read base64, or numbers of a server that knows nothing else.

    Raises:
        ValueError: it is neither, or half a number.
    """
    match embedding:
        case str():
            packed = b64decode(embedding)
            if len(packed) % BYTES_PER_NUMBER:
                raise ValueError("an embedding ends inside a number")
            return Vector(packed)
        case list():
            try:
                return vector_of(embedding)
            except TypeError:
                return NOTHING
    raise ValueError("an embedding is neither base64 nor a list")
