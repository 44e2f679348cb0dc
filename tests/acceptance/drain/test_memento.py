"""Graphs as the real Memento servers write them, embedded with the default settings.

The statements are those of ``@gannonh/memento-mcp`` 0.3.9 and memento-mcp-extended 0.3.9.14, with
the types that their driver sends: every number is a FLOAT, observations are JSON in a string.
"""

from dataclasses import replace
from typing import Any, Final, LiteralString

import pytest

from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.job import JobFilter
from embed_pipeline.operations.scan import Scan
from tests.support.drain_harness import DrainUnderTest
from tests.support.queue_harness import MODEL, NUMBERS

NOW: Final = 1_794_925_475_184.0
PSEUDO_RANDOM: Final = [0.1, 0.2, 0.3, 0.4]
"""Without a key the npm server stores vectors that mean nothing, and says so to nobody."""

CREATE: LiteralString = """
CREATE (e:Entity {id: randomUUID(), name: $name, entityType: 'person',
  observations: '["wrote a program"]', version: 1.0, createdAt: $t, updatedAt: $t, validFrom: $t,
  validTo: null, changedBy: null, embedding: $vector})
"""
RELATE: LiteralString = """
MATCH (a:Entity {name: 'Ada'}), (b:Entity {name: 'Bob'})
CREATE (a)-[:RELATES_TO {id: randomUUID(), relationType: 'knows', strength: 0.9, version: 1.0,
  createdAt: $t, updatedAt: $t, validFrom: $t}]->(b)
"""
ADD_OBSERVATION: LiteralString = """
MATCH (o:Entity {name: 'Ada'}) WHERE o.validTo IS NULL SET o.validTo = $t
CREATE (n:Entity {id: randomUUID(), name: o.name, entityType: o.entityType,
  observations: '["wrote a program","met Babbage"]', version: o.version + 1.0,
  createdAt: o.createdAt, updatedAt: $t, validFrom: $t})
WITH o, n MATCH (o)-[r:RELATES_TO]->(x:Entity) WHERE r.validTo IS NULL SET r.validTo = $t
CREATE (n)-[:RELATES_TO {id: randomUUID(), relationType: r.relationType,
  strength: coalesce(r.strength, 0.9), confidence: coalesce(r.confidence, 0.95),
  version: r.version, createdAt: r.createdAt, updatedAt: $t, validFrom: $t}]->(x)
"""
SOFT_DELETE: LiteralString = """
MATCH (e:Entity {name: 'Ada'}) WHERE e.validTo IS NULL SET e.validTo = $t
WITH e MATCH (e)-[r:RELATES_TO]-() WHERE r.validTo IS NULL SET r.validTo = $t
"""
HARD_DELETE: LiteralString = "MATCH (e:Entity) WHERE e.name IN ['Ada'] DETACH DELETE e"


async def written(queue: DrainUnderTest, statement: LiteralString, **more: Any) -> None:
    await queue.run(statement, t=NOW, **more)


async def embedded(queue: DrainUnderTest) -> dict[Coverage, int]:
    """Scan, drain, and scan again."""
    await Scan.begin(queue.queue.reconciler(MODEL)).go_on()
    await queue.drained()
    page = await queue.reconcile()
    return {kind: number for kind, number in page.coverage.items() if number}


async def vectors(queue: DrainUnderTest) -> list[tuple[str, float, bool]]:
    """Name and version of every node, and whether it has a vector."""
    rows = await queue.run(
        "MATCH (e:Entity) RETURN e.name AS name, e.version AS version,"
        " e.embedding IS NOT NULL AS has ORDER BY name, version"
    )
    return [(row["name"], row["version"], row["has"]) for row in rows]


@pytest.mark.parametrize("vector", [None, PSEUDO_RANDOM], ids=["extended", "npm without a key"])
async def test_m135_what_a_memento_server_writes_is_embedded(
    queue: DrainUnderTest, vector: list[float] | None
) -> None:
    for name in ("Ada", "Bob"):
        await written(queue, CREATE, name=name, vector=vector)
    await written(queue, RELATE)

    created = await embedded(queue)
    await written(queue, ADD_OBSERVATION)
    updated = await embedded(queue)

    assert (created, updated) == ({Coverage.CURRENT: 2}, {Coverage.CURRENT: 2})
    # M137: the vector of Ada as she was is gone.
    assert await vectors(queue) == [("Ada", 1.0, False), ("Ada", 2.0, True), ("Bob", 1.0, True)]
    jobs = await queue.admin.find_jobs(JobFilter())
    assert sorted((job.entity_uid, job.version, job.status) for job in jobs) == [
        ("Ada", 1, "completed"),
        ("Ada", 2, "completed"),
        ("Bob", 1, "completed"),
    ]
    sent = [text for request in queue.provider.requests for text in request["input"]]
    assert "Name: Ada\nType: person\nObservations:\n- wrote a program\n- met Babbage" in sent
    assert await queue.vector("Bob") != vector


async def test_m135_the_trigger_sees_what_a_memento_server_writes(queue: DrainUnderTest) -> None:
    triggers = queue.queue.triggers(MODEL)
    assert (await triggers.install()).is_active
    await written(queue, CREATE, name="Ada", vector=None)
    await queue.drained()
    await written(queue, ADD_OBSERVATION)
    await queue.drained()
    assert await triggers.drop()

    assert await vectors(queue) == [("Ada", 1.0, False), ("Ada", 2.0, True)]


@pytest.mark.parametrize("deletion", [SOFT_DELETE, HARD_DELETE], ids=["soft", "hard"])
async def test_m135_what_was_deleted_is_no_longer_found(
    queue: DrainUnderTest, deletion: LiteralString
) -> None:
    await written(queue, CREATE, name="Ada", vector=None)
    await written(queue, CREATE, name="Bob", vector=None)
    await written(queue, RELATE)
    await embedded(queue)
    await written(queue, ADD_OBSERVATION)

    await written(queue, deletion)

    assert await embedded(queue) == {Coverage.CURRENT: 1}
    assert [name for name, _, has in await vectors(queue) if has] == ["Bob"]
    assert await queue.counted() in ({"completed": 2}, {"completed": 2, "cancelled": 1})


async def test_m135_a_name_that_is_created_again_after_its_deletion_is_embedded(
    queue: DrainUnderTest,
) -> None:
    await written(queue, CREATE, name="Ada", vector=None)
    await embedded(queue)
    await written(queue, SOFT_DELETE)
    await written(queue, CREATE, name="Ada", vector=None)

    assert await embedded(queue) == {Coverage.CURRENT: 1}
    assert sorted(await vectors(queue)) == [("Ada", 1.0, False), ("Ada", 1.0, True)]


async def test_m137_until_its_successor_has_one_an_outdated_version_keeps_its_vector(
    queue: DrainUnderTest,
) -> None:
    await written(queue, CREATE, name="Ada", vector=None)
    await embedded(queue)
    await written(queue, ADD_OBSERVATION)

    page = await queue.reconcile()

    assert (page.orphaned, page.cleared) == (1, 0)
    assert await vectors(queue) == [("Ada", 1.0, True), ("Ada", 2.0, False)]


async def test_m137_who_wants_to_keep_old_vectors_keeps_them(queue: DrainUnderTest) -> None:
    keeping = replace(queue, keeps_old=True)
    await written(keeping, CREATE, name="Ada", vector=None)
    await embedded(keeping)
    await written(keeping, ADD_OBSERVATION)

    await embedded(keeping)

    assert await vectors(keeping) == [("Ada", 1.0, True), ("Ada", 2.0, True)]


async def test_m136_vectors_of_others_can_be_left_alone(queue: DrainUnderTest) -> None:
    keeping = replace(queue, keeps_foreign=True)
    await written(keeping, CREATE, name="Ada", vector=PSEUDO_RANDOM)
    await written(keeping, CREATE, name="Bob", vector=None)
    await keeping.given(1)

    found = await embedded(keeping)
    await keeping.run("MATCH (e:Entity {name: 'Bob'}) SET e.embedding = $v", v=NUMBERS)
    later = await embedded(keeping)

    assert found == {Coverage.FOREIGN: 1, Coverage.CURRENT: 2}
    assert later == {Coverage.FOREIGN: 2, Coverage.CURRENT: 1}
    assert await keeping.vector("Ada") == PSEUDO_RANDOM
    assert await keeping.vector("Bob") == NUMBERS


async def test_m136_a_job_for_a_vector_that_is_to_stay_ends_with_the_reason(
    queue: DrainUnderTest,
) -> None:
    keeping = replace(queue, keeps_foreign=True)
    await keeping.given(2)
    await keeping.run("MATCH (e:Entity {name: 'e0'}) SET e.embedding = $v", v=PSEUDO_RANDOM)

    await keeping.drained()

    assert await keeping.counted() == {"completed": 1, "cancelled": 1}
    assert "EMBED_FOREIGN_VECTORS" in ((await keeping.job("e0")).error or "")
    assert await keeping.vector("e0") == PSEUDO_RANDOM
