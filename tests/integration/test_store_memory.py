"""What a store leaves in memory: nothing of what it has written or read."""

import gc
import tracemalloc
from collections.abc import Iterator

import pytest

from embed_pipeline.domain.vector import vector_of
from tests.support.queue_harness import Neo4jUnderTest

LENGTH = 4_096
ROWS = 40
AS_LISTS = 32 * LENGTH * ROWS
"""Bytes of so many vectors as lists of floats."""


@pytest.fixture
def _without_collector() -> Iterator[None]:
    """Garbage in circles stays, as it does for long in a drain."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    gc.enable()


@pytest.mark.usefixtures("_without_collector")
async def test_written_vectors_are_forgotten_at_once(queue: Neo4jUnderTest) -> None:
    items = await queue.leased(*(f"e{number:02}" for number in range(ROWS)))
    vector = vector_of([0.5] * LENGTH)
    await queue.complete(items[0].lease, vector=vector)
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()

    await queue.complete(*(item.lease for item in items[1:]), vector=vector)

    after, peak = tracemalloc.get_traced_memory()
    assert after - before < AS_LISTS / 4
    assert peak - before < 3 * AS_LISTS
