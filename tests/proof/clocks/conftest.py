"""Drains in processes, on servers and machines whose clocks are set while they work."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from unittest.mock import patch

import pytest

from embed_pipeline.devserver.temporary import temporary_server
from embed_pipeline.store.connection import open_driver
from tests.conftest import QUICK, SMALL, TestServer
from tests.proof.clocks.stepped_clock import SteppedClock, step
from tests.support.drain_harness import DrainUnderTest
from tests.support.drain_launcher import Drains, environment_for
from tests.support.openai_server import OpenAIServer, openai_server

LEASE_MS = 10_000


@pytest.fixture(scope="session")
def server_clock(tmp_path_factory: pytest.TempPathFactory) -> SteppedClock:
    return SteppedClock(tmp_path_factory.mktemp("clock") / "server")


@pytest.fixture(scope="session")
def stepped_server(server_clock: SteppedClock) -> Iterator[TestServer]:
    """A Neo4j of its own: nobody else wants to live in its time."""
    with ExitStack() as stack:
        # Only while it starts: everything else of this session lives in the right time.
        with patch.dict(os.environ, server_clock.environment):
            server = stack.enter_context(temporary_server(memory=SMALL, tuning=QUICK))
        yield TestServer(uri=server.uri, username=server.username, password=server.password)


@pytest.fixture(scope="session")
def running_provider() -> Iterator[OpenAIServer]:
    with openai_server() as server:
        yield server


@pytest.fixture
def provider(running_provider: OpenAIServer) -> OpenAIServer:
    running_provider.requests.clear()
    running_provider.times.clear()
    running_provider.answer_with = None
    running_provider.gate.set()
    return running_provider


@asynccontextmanager
async def opened(server: TestServer, provider: OpenAIServer) -> AsyncIterator[DrainUnderTest]:
    async with open_driver(server.connection) as driver:
        under_test = DrainUnderTest(
            driver, server.database, connection=server.connection, server=provider
        )
        await under_test.wipe()
        yield under_test


@pytest.fixture
async def queue(neo4j_server: TestServer, provider: OpenAIServer) -> AsyncIterator[DrainUnderTest]:
    """A queue on a server whose clock is right."""
    async with opened(neo4j_server, provider) as under_test:
        yield under_test


@pytest.fixture
async def stepped_queue(
    stepped_server: TestServer, server_clock: SteppedClock, provider: OpenAIServer
) -> AsyncIterator[DrainUnderTest]:
    """A queue on a server whose clock the test sets; right at the start of every test."""
    async with opened(stepped_server, provider) as under_test:
        await step(under_test, server_clock, timedelta(0))
        yield under_test


@pytest.fixture
def drains(neo4j_server: TestServer, provider: OpenAIServer) -> Iterator[Drains]:
    started = Drains(environment_for(neo4j_server, provider, lease_ms=LEASE_MS))
    yield started
    started.end()


@pytest.fixture
def stepped_drains(stepped_server: TestServer, provider: OpenAIServer) -> Iterator[Drains]:
    started = Drains(environment_for(stepped_server, provider, lease_ms=LEASE_MS))
    yield started
    started.end()
