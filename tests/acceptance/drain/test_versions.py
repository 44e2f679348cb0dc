"""Versions without numbers: the shape says which node of a key is the newest.

memento-mcp-extended 0.3.9.14 writes a second current node when a name is created again (its own
look for the first, ``{name: $name, validTo: NULL}``, can never match), version 1.0 like the first;
other programs number their versions in words, or not at all, and close none of them.
"""

import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.job import Lease
from embed_pipeline.domain.keys import Unfit
from embed_pipeline.domain.results import CompletionOutcome
from embed_pipeline.operations.scan import Scan
from embed_pipeline.operations.selection import jobs_for
from tests.support.drain_harness import DrainUnderTest
from tests.support.queue_harness import MODEL, NUMBERS

FIRST, SECOND = 1_794_925_475_184.0, 1_794_925_481_007.0
SHAPE: Final = EntityShape(order="createdAt")
Times = tuple[Any, Any]


async def created(queue: DrainUnderTest, text: str, at: Any, version: Any = 1.0) -> None:
    """As memento-mcp-extended creates an entity."""
    await queue.run(
        "CREATE (:Entity {id: randomUUID(), name: 'Ada', entityType: 'person',"
        " observations: $text, version: $version, createdAt: $at, updatedAt: $at, validFrom: $at,"
        " validTo: null, changedBy: null})",
        text=f'["{text}"]',
        at=at,
        version=version,
    )


async def scanned(queue: DrainUnderTest) -> dict[Coverage, int]:
    scan = Scan.begin(queue.queue.reconciler(MODEL))
    await scan.go_on()
    return {kind: number for kind, number in scan.report.counts.items() if number}


async def with_vector(queue: DrainUnderTest) -> list[str]:
    rows = await queue.run(
        "MATCH (e:Entity) WHERE e.embedding IS NOT NULL RETURN e.observations AS text"
    )
    return sorted(row["text"] for row in rows)


def sent(queue: DrainUnderTest) -> list[str]:
    return [text for request in queue.provider.requests for text in request["input"]]


@pytest.fixture
def ordered(queue: DrainUnderTest) -> DrainUnderTest:
    return replace(queue, shape=SHAPE)


@pytest.mark.parametrize(
    ("times", "version"),
    [
        ((FIRST, SECOND), 1.0),
        ((None, FIRST), None),
        ((datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC)), "draft"),
        (("2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"), None),
    ],
    ids=["memento", "first without", "dates", "iso dates"],
)
async def test_m135_of_nodes_that_nobody_closed_the_newest_is_embedded(
    ordered: DrainUnderTest, times: Times, version: Any
) -> None:
    await created(ordered, "as she was", times[0], version)
    await scanned(ordered)
    await ordered.drained()
    await created(ordered, "as she is", times[1], version)

    found = await scanned(ordered)
    await ordered.drained()
    after = await scanned(ordered)

    assert (found, after) == ({Coverage.MISSING: 1}, {Coverage.CURRENT: 1})
    # M137: in the transaction that completed the successor.
    assert await with_vector(ordered) == ['["as she is"]']
    assert len(sent(ordered)) == 2
    assert await ordered.counted() == {"completed": 1}


async def test_m135_trigger_and_enqueue_see_the_newest(ordered: DrainUnderTest) -> None:
    triggers = ordered.queue.triggers(MODEL)
    assert (await triggers.install()).is_active
    await created(ordered, "as she is", SECOND, version=2.0)
    await created(ordered, "imported late", FIRST, version=1.0)
    by_trigger = [(job["entity_uid"], job["version"]) for job in await ordered.nodes()]
    await ordered.drained()
    await ordered.run("MATCH (e:Entity {version: 1.0}) SET e.createdAt = $at", at=SECOND + 1)
    reordered = sorted(job["version"] for job in await ordered.nodes())
    assert await triggers.drop()

    wishes = await jobs_for(ordered.queue, ["Ada"], model=MODEL)
    await ordered.drained()

    assert [(wish.entity_uid, wish.version) for wish in wishes] == [("Ada", 1)]
    assert (by_trigger, reordered) == ([("Ada", 2)], [1, 2])
    assert await with_vector(ordered) == ['["imported late"]']


async def test_m135_a_version_that_comes_while_its_predecessor_is_embedded_wins(
    ordered: DrainUnderTest,
) -> None:
    await created(ordered, "as she was", FIRST)
    await scanned(ordered)
    [item] = (await ordered.lease()).jobs
    [loaded] = await ordered.jobs.load([item.lease])
    await created(ordered, "as she is", SECOND)

    [outcome] = await finished(ordered, item.lease, loaded.properties)
    await ordered.drained()

    assert outcome is CompletionOutcome.MOVED
    assert await with_vector(ordered) == ['["as she is"]']


async def finished(queue: DrainUnderTest, lease: Lease, properties: Any) -> Any:
    return await queue.complete(lease, hashes=[queue.config.hash_of(properties)])


@pytest.mark.parametrize(
    "times", [(FIRST, FIRST), (FIRST, "2026"), (None, None)], ids=["same", "types", "none"]
)
async def test_r22_what_has_no_order_stays_a_duplicate(
    ordered: DrainUnderTest, times: Times
) -> None:
    await created(ordered, "one", times[0])
    await created(ordered, "other", times[1])

    page = await ordered.reconcile()

    assert (page.scanned, page.unfit) == (2, {Unfit.DUPLICATE: 2})
    assert await ordered.nodes() == []


async def test_m137_the_scan_removes_what_older_nodes_keep(ordered: DrainUnderTest) -> None:
    await created(ordered, "as she is", SECOND)
    await scanned(ordered)
    await ordered.drained()
    for text, at in (("first", FIRST), ("second", FIRST + 1)):
        await created(ordered, text, at)
    await ordered.run(
        "MATCH (e:Entity) WHERE e.createdAt = $at SET e.embedding = $v", at=FIRST, v=NUMBERS
    )

    page = await ordered.reconcile()

    assert (page.scanned, page.orphaned, page.cleared) == (1, 1, 1)
    assert await with_vector(ordered) == ['["as she is"]']


async def test_versions_may_be_ordered_by_their_numbers(queue: DrainUnderTest) -> None:
    numbered = replace(queue, shape=EntityShape(order="version"))
    await created(numbered, "as she is", FIRST, version=10.0)
    await created(numbered, "as she was", FIRST, version=9.0)

    await scanned(numbered)
    await numbered.drained()

    assert await scanned(numbered) == {Coverage.CURRENT: 1}
    assert [(job["version"], job["status"]) for job in await numbered.nodes()] == [
        (10, "completed")
    ]
    assert await with_vector(numbered) == ['["as she is"]']


def is_newer(one: Any, other: Any) -> bool:
    if other is None or one is None:
        return other is None and one is not None
    return isinstance(one, str) is isinstance(other, str) and one > other


async def test_m140_the_classes_add_up_to_the_nodes_that_have_no_newer_one(
    ordered: DrainUnderTest,
) -> None:
    roll = random.Random(1)
    orders = [None, 1, 2.5, 3, "2026-01-02", "2026-01-03"]
    nodes = [
        {
            "name": roll.choice("abcdefgh"),
            "createdAt": roll.choice(orders),
            "observations": [str(n)],
        }
        for n in range(24)
    ]
    await ordered.run("UNWIND $nodes AS node CREATE (e:Entity) SET e = node", nodes=nodes)
    current = [
        node["name"]
        for node in nodes
        if not any(
            other["name"] == node["name"] and is_newer(other["createdAt"], node["createdAt"])
            for other in nodes
        )
    ]
    single = [name for name in set(current) if current.count(name) == 1]

    scan = Scan.begin(ordered.queue.reconciler(MODEL))
    await scan.go_on(page_size=5)

    assert scan.report.entities == sum(scan.report.counts.values()) == len(current) < len(nodes)
    assert scan.report.unfit == {Unfit.DUPLICATE: len(current) - len(single)}
    assert sorted(job["entity_uid"] for job in await ordered.nodes()) == sorted(single)
