"""A few entities with enormous texts among many: everybody else notices nothing."""

import tracemalloc
from typing import Any

import pytest

from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.text import LONGEST_TEXT
from embed_pipeline.operations.scan import Scan
from tests.support.drain_harness import DrainUnderTest
from tests.support.queue_harness import MODEL

MEBIBYTE = 2**20
SIZE = 10_000_000
LONG = [f"a-long{number}" for number in range(6)]
SHORT = [f"e{number:03}" for number in range(300)]


@pytest.fixture
async def mixed(queue: DrainUnderTest) -> DrainUnderTest:
    """Six texts of 10 MB before 300 short ones; nobody has enqueued anything."""
    for uid in LONG:
        await queue.put_entity(uid, f"{uid} " + "word " * (SIZE // 5))
    await queue.run(
        """
        UNWIND $uids AS uid
        CREATE (:Entity {name: uid, entityType: 'test', observations: [uid], version: 1})
        """,
        uids=SHORT,
    )
    return queue


async def scanned(queue: DrainUnderTest) -> Scan:
    scan = Scan.begin(queue.queue.reconciler(MODEL))
    await scan.go_on()
    return scan


async def test_m84_the_scan_finishes_names_them_and_holds_little_of_them(
    mixed: DrainUnderTest,
) -> None:
    tracemalloc.start()
    scan = await scanned(mixed)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert scan.report.entities == len(LONG) + len(SHORT)
    assert scan.report.counts[Coverage.MISSING] == len(LONG) + len(SHORT)
    assert scan.report.oversized_names == tuple(LONG)
    # All of them have 60 MB; what is read of one in a go, with its copies.
    assert peak < 40 * MEBIBYTE


async def test_m84_the_drain_embeds_all_and_the_short_ones_first(mixed: DrainUnderTest) -> None:
    await scanned(mixed)
    order: list[str] = []

    def watched(body: dict[str, Any]) -> None:
        for text in body["input"]:
            is_long = "word" in text or any(f"Name: {uid}\n" in text for uid in LONG)
            kind = "long" if is_long else "short"
            if kind == "short" or order[-1:] != ["long"]:
                order.append(kind)

    mixed.provider.answer_with = watched
    await mixed.drained()

    assert await mixed.counted() == {"completed": len(LONG) + len(SHORT)}
    assert order == ["short"] * len(SHORT) + ["long"]
    job = await mixed.job(LONG[0])
    assert (job.pieces or 0) > 1
    assert (job.tokens or 0) > LONGEST_TEXT / 10
    assert (await scanned(mixed)).report.counts[Coverage.CURRENT] == len(LONG) + len(SHORT)
