"""OpenAI's protocol on loopback, with the latency of a request and hardly any work."""

import base64
import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from starlette.responses import Response

from benchmarks.site import BATCH, DIMENSIONS, pool
from tests.openai_server import OpenAIServer, openai_server


@contextmanager
def running_provider(*, latency: float) -> Iterator[OpenAIServer]:
    """Serve until the block ends."""
    with openai_server() as server:
        server.latency = latency
        server.answer_with = _answer
        yield server


def _answer(body: dict[str, Any]) -> Response:
    return Response(_body(len(body["input"])), media_type="application/json")


@cache
def _body(inputs: int) -> bytes:
    data = [
        {"object": "embedding", "index": n, "embedding": _encoded()[n % BATCH]}
        for n in range(inputs)
    ]
    usage = {"prompt_tokens": inputs, "total_tokens": inputs}
    answer = {"object": "list", "data": data, "model": "m", "usage": usage}
    return json.dumps(answer).encode()


@cache
def _encoded() -> list[str]:
    return [
        base64.b64encode(struct.pack(f"<{DIMENSIONS}f", *vector)).decode() for vector in pool(BATCH)
    ]
