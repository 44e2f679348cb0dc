"""A queue with drains on it and a provider of its own, empty at the start of every test."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest

from embed_pipeline.store.connection import open_driver
from embed_pipeline.worker import engine
from tests.conftest import TestServer
from tests.support.batch_harness import Batching
from tests.support.batch_server import BatchServer, batch_server
from tests.support.drain_harness import DrainUnderTest
from tests.support.openai_server import OpenAIServer, openai_server


@pytest.fixture(autouse=True)
def _drains_look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for the limit looks every ten seconds; no test has to."""
    monkeypatch.setattr(engine, "LOOK_AGAIN", timedelta(seconds=1) / 20)


@pytest.fixture(scope="module")
def running_provider() -> Iterator[OpenAIServer]:
    with openai_server() as server:
        yield server


@pytest.fixture
def provider(running_provider: OpenAIServer) -> OpenAIServer:
    running_provider.requests.clear()
    running_provider.times.clear()
    running_provider.answer_with = None
    running_provider.latency = 0.0
    running_provider.gate.set()
    return running_provider


@pytest.fixture
async def queue(neo4j_server: TestServer, provider: OpenAIServer) -> AsyncIterator[DrainUnderTest]:
    server = neo4j_server
    async with open_driver(server.connection) as driver:
        under_test = DrainUnderTest(
            driver, server.database, connection=server.connection, server=provider
        )
        await under_test.wipe()
        yield under_test


@pytest.fixture
def api() -> Iterator[BatchServer]:
    with batch_server() as server:
        yield server


@pytest.fixture
def batching(queue: DrainUnderTest, api: BatchServer) -> Batching:
    return Batching(queue.driver, queue.database, api.base_url)
