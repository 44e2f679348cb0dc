"""One suite over every queue, over the oldest and the newest Neo4j, and over a second queue."""

from collections.abc import AsyncIterator

import pytest

from embed_pipeline.store.connection import open_driver
from tests.support.queue_harness import ACME, FakeUnderTest, Neo4jUnderTest, QueueUnderTest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All of it runs over the fake and Neo4j, what a worker does over a second queue as well."""
    if "queue" in metafunc.fixturenames:
        is_sample = metafunc.definition.path.stem == "test_worker_side"
        second = pytest.param("second_queue", marks=() if is_sample else pytest.mark.proof)
        newest = pytest.param("neo4j_2026", marks=pytest.mark.proof)
        metafunc.parametrize("queue", ["fake", "neo4j", second, newest], indirect=True)


@pytest.fixture
async def queue(request: pytest.FixtureRequest) -> AsyncIterator[QueueUnderTest]:
    if request.param == "fake":
        yield FakeUnderTest()
        return
    is_second = request.param == "second_queue"
    server = request.getfixturevalue("neo4j_server" if is_second else f"{request.param}_server")
    async with open_driver(server.connection) as driver:
        real = Neo4jUnderTest(driver, server.database)
        if is_second:
            real = Neo4jUnderTest(driver, server.database, config=ACME)
        await real.wipe()
        yield real
