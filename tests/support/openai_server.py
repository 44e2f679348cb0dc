"""A server that speaks OpenAI's embedding protocol, on loopback."""

import asyncio
import base64
import inspect
import struct
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from embed_pipeline.devserver.ports import free_port
from embed_pipeline.domain.errors import PROBE_WORD
from tests.support.serving import serving

KEY = "sk-test-only-key"
Answer = Response | None


@dataclass
class OpenAIServer:
    """What it was asked, and what it answers instead of vectors if told to."""

    port: int
    requests: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    """When each request arrived, in seconds."""
    answer_with: Callable[[dict[str, Any]], Answer | Awaitable[Answer]] | None = None
    """Makes the answer, in its own time; None of it means the ordinary one."""
    key: str = KEY
    latency: float = 0.0
    gate: threading.Event = field(default_factory=threading.Event)
    """Requests wait for it: clear it to keep them in flight."""

    def __post_init__(self) -> None:
        self.gate.set()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Answer no request until the block ends; ``requests`` starts empty."""
        self.requests.clear()
        self.gate.clear()
        try:
            yield
        finally:
            self.gate.set()

    async def embeddings(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(body)
        self.times.append(time.monotonic())
        await asyncio.sleep(self.latency)
        while not self.gate.is_set():  # noqa: ASYNC110 - set from another thread
            await asyncio.sleep(0.01)
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if given != self.key:
            return failure(401, f"Incorrect API key provided: {given}", "invalid_api_key")
        special = self.answer_with(body) if self.answer_with else None
        if inspect.isawaitable(special):
            special = await special
        return special or vectors(body)


def failure(status: int, message: str, code: str | None, **headers: str) -> Response:
    error = {"message": message, "type": "error", "param": None, "code": code}
    return JSONResponse({"error": error}, status, headers=headers)


def but_not_to_the_probe(
    answer: Callable[[dict[str, Any]], Answer | Awaitable[Answer]],
) -> Callable[[dict[str, Any]], Answer | Awaitable[Answer]]:
    """Answer so, unless it is the word that finds out whether the server is down."""
    return lambda body: None if body["input"] == [PROBE_WORD] else answer(body)


def refusing_dimensions(own: int) -> Callable[[dict[str, Any]], Response]:
    """A server whose model has one length, and that refuses the parameter ``dimensions``."""

    def answer(body: dict[str, Any]) -> Response:
        if "dimensions" in body:
            return failure(400, "This model does not support specifying dimensions.", None)
        return vectors(body, dimensions=own)

    return answer


def strict(
    *,
    inputs: int = 2_048,
    tokens: int = 300_000,
    tokens_per_input: int = 8_191,
    has_base64: bool = True,
    own_dimensions: int | None = None,
    type_field: str = "",
) -> Callable[[dict[str, Any]], Response]:
    """A server that takes no more than this, and refuses what it does not know.

    With ``own_dimensions`` its model has one length, and it refuses ``dimensions``.
    """

    def answer(body: dict[str, Any]) -> Response:
        texts = body["input"]
        if len(texts) > inputs:
            return failure(400, f"batch size {len(texts)} > maximum allowed {inputs}", None)
        if sum(len(text.split()) for text in texts) > tokens:
            return failure(400, f"the request has more than {tokens} tokens", None)
        if any(len(text.split()) > tokens_per_input for text in texts):
            return failure(400, "the input is longer than the context of the model", None)
        if body.get("encoding_format") == "base64" and not has_base64:
            return failure(400, "encoding_format must be float", None)
        if "dimensions" in body and own_dimensions:
            return failure(400, "This model does not support specifying dimensions.", None)
        if type_field and body.get(type_field) not in ("document", "query"):
            return failure(400, f"{type_field} is missing", None)
        return vectors(body, dimensions=own_dimensions)

    return answer


def vectors(
    body: dict[str, Any],
    *,
    dimensions: int | None = None,
    numbers: Callable[[int], list[float]] | None = None,
    of_text: Callable[[str], list[float]] | None = None,
) -> Response:
    length = dimensions or body.get("dimensions", 1536)

    def vector(index: int, text: str) -> list[float]:
        if of_text:
            return of_text(text)
        return numbers(length) if numbers else [index + 1.0] * length

    asked = body["input"]
    encode = _encode if body.get("encoding_format") == "base64" else list
    data = [
        {"object": "embedding", "index": index, "embedding": encode(vector(index, text))}
        for index, text in enumerate([asked] if isinstance(asked, str) else asked)
    ]
    usage = {"prompt_tokens": len(data), "total_tokens": len(data)}
    # Backwards: the protocol promises no order, only the index.
    return JSONResponse({"object": "list", "data": data[::-1], "model": "m", "usage": usage})


def most_in_any_window(times: list[float], seconds: float) -> int:
    """The largest number of requests in any interval of that length."""
    return max((sum(t <= other < t + seconds for other in times) for t in times), default=0)


def _encode(numbers: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


@contextmanager
def openai_server() -> Iterator[OpenAIServer]:
    """Serve until the block ends."""
    state = OpenAIServer(port=free_port())
    app = Starlette(routes=[Route("/v1/embeddings", state.embeddings, methods=["POST"])])
    with serving(app, state.port):
        yield state


if __name__ == "__main__":
    # For trying things out: OPENAI_API_KEY and OPENAI_BASE_URL for another terminal.
    with openai_server() as demo:
        sys.stdout.write(f"OPENAI_API_KEY={KEY} OPENAI_BASE_URL={demo.base_url}\n")
        threading.Event().wait()
