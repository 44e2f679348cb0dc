"""One suite over every queue, and over the oldest and the newest Neo4j."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from embed_pipeline.store.connection import open_driver
from tests.queue_harness import FakeUnderTest, Neo4jUnderTest


@pytest.fixture(params=["fake", "neo4j", "neo4j_2026"])
async def queue(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    if request.param == "fake":
        yield FakeUnderTest()
        return
    server = request.getfixturevalue(f"{request.param}_server")
    async with open_driver(server.connection) as driver:
        real = Neo4jUnderTest(driver, server.database)
        await real.wipe()
        yield real
