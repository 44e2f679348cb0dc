"""What the client for batches sends, without a server."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path

import httpx2
import openai
import pytest

from embed_pipeline.domain.errors import CriticalError, OutageError
from embed_pipeline.embedding.openai_batch import ANSWER_WITHIN, FILE_WITHIN, OpenAIBatches
from tests.support.openai_server import KEY
from tests.support.queue_harness import DIMENSIONS, MODEL

BATCH = {
    "id": "batch_0",
    "object": "batch",
    "endpoint": "/v1/embeddings",
    "input_file_id": "file_in",
    "completion_window": "24h",
    "created_at": 1,
    "status": "in_progress",
}


class Provider:
    """Answers every call, and notes how long each was to be waited for."""

    def __init__(self) -> None:
        self.waits: dict[str, float] = {}
        self.answer: httpx2.Response | Exception | None = None

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.waits[f"{request.method} {request.url.path}"] = request.extensions["timeout"]["read"]
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is not None:
            return self.answer
        if request.url.path.endswith("/content"):
            return httpx2.Response(200, content=b"")
        if "files" in request.url.path:
            file = {"id": "file_in", "object": "file", "bytes": 1, "created_at": 1}
            return httpx2.Response(200, json=file | {"filename": "x", "purpose": "batch"})
        if request.method == "GET" and request.url.path.endswith("/batches"):
            return httpx2.Response(200, json={"object": "list", "data": [], "has_more": False})
        return httpx2.Response(200, json=BATCH)


@pytest.fixture
def server() -> Provider:
    return Provider()


@pytest.fixture
async def batches(
    server: Provider, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[OpenAIBatches]:
    transport = httpx2.MockTransport(server)
    monkeypatch.setattr(
        openai, "DefaultAsyncHttpxClient", lambda **_: httpx2.AsyncClient(transport=transport)
    )
    client = OpenAIBatches(
        model=MODEL, dimensions=DIMENSIONS, api_key=KEY, base_url="http://127.0.0.1:1/v1"
    )
    yield client
    await client.close()


async def test_m126_only_files_are_waited_for_as_long_as_they_take(
    server: Provider, batches: OpenAIBatches, tmp_path: Path
) -> None:
    path = tmp_path / "batch.jsonl"
    path.write_bytes(b"{}\n")

    await batches.upload(path, name="x.jsonl")
    await batches.create("file_in", {"queue": "embeddings"})
    await batches.find({"queue": "embeddings"})
    await batches.read("batch_0")
    await batches.cancel("batch_0")
    async with aclosing(batches.answers("file_out")) as answers:
        assert [answer async for answer in answers] == []
    await batches.delete("file_in")

    long = {"POST /v1/files", "GET /v1/files/file_out/content"}
    assert timedelta(seconds=30) > ANSWER_WITHIN < FILE_WITHIN
    assert {name for name, wait in server.waits.items() if wait == FILE_WITHIN.seconds} == long
    short = {name for name, wait in server.waits.items() if wait == ANSWER_WITHIN.seconds}
    assert (len(short), len(server.waits)) == (5, 7)


async def test_m127_errors_get_their_meaning_and_hold_no_request(
    server: Provider, batches: OpenAIBatches
) -> None:
    server.answer = httpx2.Response(401, json={"error": {"message": f"bad key {KEY}"}})
    with pytest.raises(CriticalError) as refused:
        await batches.find({"queue": "embeddings"})
    server.answer = httpx2.ConnectError("no")
    with pytest.raises(OutageError) as away:
        await batches.read("batch_0")

    assert KEY not in str(refused.value)
    for error in (refused.value, away.value):
        assert error.__context__ is None
