"""OpenAI's protocol on loopback, with the latency of a request and hardly any work."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from starlette.responses import Response

from benchmarks.site import BATCH, DIMENSIONS, pool
from embed_pipeline.domain.vector import vector_of
from tests.support.openai_server import OpenAIServer, openai_server


@contextmanager
def running_provider(*, latency: float) -> Iterator[OpenAIServer]:
    """Serve until the block ends."""
    with openai_server() as server:
        server.latency = latency
        server.answer_with = _answer
        yield server


def _answer(body: dict[str, Any]) -> Response:
    length = body.get("dimensions", DIMENSIONS)
    return Response(_body(len(body["input"]), length), media_type="application/json")


@cache
def _body(inputs: int, length: int) -> bytes:
    data = [
        {"object": "embedding", "index": n, "embedding": _encoded(length)[n % BATCH]}
        for n in range(inputs)
    ]
    usage = {"prompt_tokens": inputs, "total_tokens": inputs}
    answer = {"object": "list", "data": data, "model": "m", "usage": usage}
    return json.dumps(answer).encode()


@cache
def _encoded(length: int) -> list[str]:
    """Vectors of any length; those that are longer than the pool's repeat themselves."""
    repeats = -(-length // DIMENSIONS)
    return [
        base64.b64encode(vector_of((numbers * repeats)[:length])).decode()
        for numbers in pool(BATCH)
    ]
