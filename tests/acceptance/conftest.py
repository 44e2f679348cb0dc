"""A real queue, empty at the start of every test."""

from collections.abc import AsyncIterator

import pytest

from embed_pipeline.store.connection import Connection, open_driver
from tests.conftest import TestServer
from tests.queue_harness import Neo4jUnderTest


@pytest.fixture
async def queue(neo4j_server: TestServer) -> AsyncIterator[Neo4jUnderTest]:
    server = neo4j_server
    connection = Connection(server.uri, server.username, server.password, server.database)
    async with open_driver(connection) as driver:
        real = Neo4jUnderTest(driver, server.database)
        await real.wipe()
        yield real
