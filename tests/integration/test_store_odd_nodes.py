"""Nodes as they come: every current one is counted in one class, and whoever can be is embedded."""

import random
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest
from neo4j.spatial import CartesianPoint, WGS84Point
from neo4j.time import Date, DateTime, Duration, Time

from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.job import JobFilter, JobStatus
from embed_pipeline.domain.keys import Unfit, uid_of, version_of
from embed_pipeline.operations.scan import Scan
from tests.support.queue_harness import DIMENSIONS, MODEL, NUMBERS, Neo4jUnderTest

NAN, INFINITY = float("nan"), float("inf")
ODD: list[Any] = [
    *(0, 1, 42, -1, 2**62, 0.0, -0.0, 1.0, 42.0, 1.5, 2.0**53, NAN, INFINITY, -INFINITY),
    *(True, False, "", " ", "42", "ada", "1", "v2", "é", "x" * 600, None),
    *([], [1, 2], [1.5], ["a"], [True], date(2020, 1, 2), datetime(2020, 1, 2, tzinfo=UTC)),
    *(CartesianPoint((1.0, 2.0)), b"\x00\xff", NUMBERS, '["a", "b"]'),
]
"""Values of every type that a property can have."""
KINDS: list[Callable[[random.Random], Any]] = [
    lambda roll: roll.choice(ODD),
    lambda roll: roll.getrandbits(roll.randint(1, 64)) - 2**63 if roll.random() < 0.5 else 1,
    lambda roll: struct.unpack("<d", roll.randbytes(8))[0],
    lambda roll: "".join(chr(roll.randrange(0xD800)) for _ in range(roll.randint(0, 40))),
    lambda roll: [roll.gauss(0, 1) for _ in range(roll.choice([1, DIMENSIONS, 9]))],
    lambda roll: [roll.randint(-9, 9) for _ in range(roll.randint(0, 5))],
    lambda roll: [str(roll.random()) for _ in range(roll.randint(0, 5))],
    lambda roll: roll.random() < 0.5,
    lambda roll: Date(roll.randint(1, 9999), 1, 2),
    lambda roll: Time(roll.randrange(24), 1, 2),
    lambda roll: DateTime(roll.randint(1, 9999), 1, 2),
    lambda roll: Duration(months=roll.randint(-9, 9), seconds=roll.randint(-9, 9)),
    lambda roll: WGS84Point((roll.uniform(-180, 180), roll.uniform(-90, 90))),
    lambda roll: roll.randbytes(roll.randint(0, 9)),
]
"""How to make a value of each of these types."""


async def found(queue: Neo4jUnderTest, **options: bool) -> dict[Coverage, int]:
    coverage = await queue.coverage(**options)
    return {kind: number for kind, number in coverage.items() if number}


async def uids(queue: Neo4jUnderTest) -> list[tuple[str, int]]:
    jobs = await queue.admin.find_jobs(JobFilter(), limit=1000)
    return sorted((job.entity_uid, job.version) for job in jobs)


async def completed(queue: Neo4jUnderTest, *names: str) -> None:
    for name in names:
        await queue.in_state(name, JobStatus.COMPLETED)


@pytest.mark.parametrize("seed", range(12))
async def test_m140_the_classes_of_random_nodes_add_up(queue: Neo4jUnderTest, seed: int) -> None:
    roll = random.Random(seed)
    shape = queue.config.shape
    names = [shape.key, shape.version, shape.vector, shape.type, shape.observations]
    names += [shape.valid_to, *shape.provenance]
    nodes = [{name: roll.choice(KINDS)(roll) for name in names} for _ in range(80)]
    for node in nodes:
        # Most are current, and many have the same few keys.
        if roll.random() < 0.7:
            node[shape.valid_to] = None
        if roll.random() < 0.5:
            node[shape.key] = roll.choice(["a", "b", f"e{roll.random()}", roll.randint(0, 99)])
    await queue.run("UNWIND $nodes AS node CREATE (e:Entity) SET e = node", nodes=nodes)
    rows = await queue.run("MATCH (e:Entity) WHERE e.validTo IS NULL RETURN count(e) AS current")
    current = rows[0]["current"]

    reports = []
    for page_size in (500, 7):
        scan = Scan.begin(queue.queue.reconciler(MODEL))
        await scan.go_on(page_size=page_size)
        reports.append(scan.report)

    first, second = reports
    assert sum(first.counts.values()) == first.entities == current
    assert (second.entities, second.counts) == (first.entities, first.counts)
    assert sum(first.unfit.values()) == first.counts[Coverage.UNEMBEDDABLE] > 0
    assert sum(first.rows.values()) == current


async def test_m85_keys_42_and_minus_1_are_embedded_the_others_counted_with_reason(
    queue: Neo4jUnderTest,
) -> None:
    keys: list[Any] = [42, -1.0, True, "", None, ["a"], 1.5, NAN]
    await queue.run("UNWIND $keys AS key CREATE (:Entity {name: key, version: 1.0})", keys=keys)

    page = await queue.reconcile()
    leases = [item.lease for item in (await queue.lease()).jobs]
    loaded = await queue.jobs.load(leases)
    hashes = [queue.config.hash_of(entity.properties) for entity in loaded]
    await queue.complete(*leases, hashes=hashes)
    texts = {entity.lease.entity_uid: entity.properties["name"] for entity in loaded}

    assert texts == {"42": 42, "-1": -1.0}
    assert page.coverage[Coverage.UNEMBEDDABLE] == 6
    assert page.unfit == {
        Unfit.KEY_TYPE: 2,
        Unfit.KEY_EMPTY: 1,
        Unfit.KEY_MISSING: 1,
        Unfit.KEY_NUMBER: 2,
    }
    assert all(page.unfit_names[reason] for reason in page.unfit)
    assert page.scanned == len(keys)
    assert await found(queue) == {Coverage.CURRENT: 2, Coverage.UNEMBEDDABLE: 6}
    rows = await queue.run("MATCH (e:Entity) WHERE e.embedding IS NOT NULL RETURN e.name AS key")
    assert sorted(row["key"] for row in rows) == [-1, 42]


async def test_r22_a_text_and_a_number_that_are_the_same_key_are_duplicates(
    queue: Neo4jUnderTest,
) -> None:
    await queue.run("CREATE (:Entity {name: '42'}), (:Entity {name: 42.0}), (:Entity {name: '7'})")

    page = await queue.reconcile()

    assert page.unfit == {Unfit.DUPLICATE: 2}
    assert await uids(queue) == [("7", 1)]


async def test_r22_more_entities_with_one_key_than_a_page_has_are_all_counted(
    queue: Neo4jUnderTest,
) -> None:
    await queue.run("UNWIND range(1, 30) AS n CREATE (:Entity {name: 'a', observations: [n]})")
    await queue.run("UNWIND range(1, 3) AS n CREATE (:Entity {name: 7, observations: [n]})")
    await queue.run("CREATE (:Entity {name: 'b'}), (:Entity {name: 8})")

    scan = Scan.begin(queue.queue.reconciler(MODEL))
    await scan.go_on(page_size=4)

    assert (scan.report.entities, scan.report.unfit) == (35, {Unfit.DUPLICATE: 33})
    assert await uids(queue) == [("8", 1), ("b", 1)]


async def test_r22_the_trigger_and_the_scan_make_the_same_jobs(queue: Neo4jUnderTest) -> None:
    triggers = queue.queue.triggers(MODEL)
    assert (await triggers.install()).is_active
    nodes = [{"name": key, "version": 1} for key in ODD]
    nodes += [{"name": f"version {n}", "version": value} for n, value in enumerate(ODD)]
    await queue.run("UNWIND $nodes AS node CREATE (e:Entity) SET e = node", nodes=nodes)
    by_trigger = await uids(queue)
    assert await triggers.drop()

    expected = {(uid_of(n["name"]), version_of(n["version"])) for n in nodes}

    assert by_trigger == sorted(
        (uid, version)
        for uid, version in expected
        if not isinstance(uid, Unfit) and version is not None
    )


async def test_m136_a_removed_vector_is_missing_and_made_again(queue: Neo4jUnderTest) -> None:
    await completed(queue, "ada")
    await queue.run("MATCH (e:Entity) REMOVE e.embedding")

    assert await found(queue) == {Coverage.MISSING: 1}
    assert (await queue.job("ada")).status is JobStatus.PENDING


async def test_m136_a_vector_replaced_by_another_of_its_length_is_found(
    queue: Neo4jUnderTest,
) -> None:
    await completed(queue, "ada", "bob")
    other = [0.5, 0.5, -0.5, 0.5]
    await queue.run("MATCH (e:Entity {name: 'ada'}) SET e.embedding = $other", other=other)
    same = await queue.run("MATCH (e:Entity {name: 'bob'}) SET e.embedding = $v", v=NUMBERS)

    assert same == []
    assert await found(queue) == {Coverage.FOREIGN: 1, Coverage.CURRENT: 1}
    assert (await queue.job("ada")).status is JobStatus.PENDING


async def test_m136_a_foreign_vector_is_no_cache_hit(queue: Neo4jUnderTest) -> None:
    await completed(queue, "ada")
    digest = (await queue.job("ada")).text_hash
    assert digest is not None
    known = await queue.jobs.find_vectors([digest], model=MODEL, dimensions=len(NUMBERS))
    await queue.run("MATCH (e:Entity) SET e.embedding = [0.5, 0.5, -0.5, 0.5]")

    after = await queue.jobs.find_vectors([digest], model=MODEL, dimensions=len(NUMBERS))

    assert (list(known), after) == ([digest], {})


async def test_m136_properties_that_were_wiped_or_restored_are_found(
    queue: Neo4jUnderTest,
) -> None:
    """As graphiti saves a node: ``SET n = map`` of what it loaded some time ago."""
    await completed(queue, "wiped", "restored", "text")
    rows = await queue.run("MATCH (e {name: 'restored'}) RETURN e {.*} AS old")
    await queue.run("MATCH (e {name: 'wiped'}) SET e = {name: 'wiped', version: 1}")
    await queue.run("MATCH (e {name: 'restored'}) SET e = $old", old=rows[0]["old"])
    await queue.run(
        "MATCH (e {name: 'text'}) SET e = e {.name, .version, .entityType, .observations,"
        " .embedding}"
    )

    assert await found(queue) == {Coverage.MISSING: 1, Coverage.CURRENT: 1, Coverage.FOREIGN: 1}


async def test_a_vector_that_is_none_is_foreign(queue: Neo4jUnderTest) -> None:
    vectors: list[Any] = ["text", 7, [], ["a"], [2**62, 1], True]
    await queue.run(
        "UNWIND $vectors AS v CREATE (e:Entity {name: 'e' + valueType(v) , embedding: v})",
        vectors=vectors,
    )

    assert (await queue.coverage())[Coverage.FOREIGN] >= 5
