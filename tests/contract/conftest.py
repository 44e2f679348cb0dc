"""One suite over every queue, over the oldest and the newest Neo4j, and over a second queue."""

from collections.abc import AsyncIterator

import pytest

from embed_pipeline.store.connection import open_driver
from tests.support.queue_harness import ACME, FakeUnderTest, Neo4jUnderTest, QueueUnderTest

FURTHER = {"neo4j_2026", "second_queue"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What a worker does runs over every queue each time, the rest over the further ones rarely."""
    if "queue" in metafunc.fixturenames:
        is_sample = metafunc.definition.path.stem == "test_worker_side"
        marks = [] if is_sample else [pytest.mark.proof]
        queues = ["fake", "neo4j", *(pytest.param(name, marks=marks) for name in sorted(FURTHER))]
        metafunc.parametrize("queue", queues, indirect=True)


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
