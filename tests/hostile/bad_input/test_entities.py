"""Whatever stands in a graph: an entity ends in a clear state, and its neighbours are embedded."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from neo4j.spatial import CartesianPoint

from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.errors import InvalidJobError
from embed_pipeline.domain.job import JobStatus, NewJob
from embed_pipeline.domain.text import DEEPEST, memento_text
from embed_pipeline.store.connection import open_driver
from tests.conftest import TestServer
from tests.support.drain_harness import DrainUnderTest, until
from tests.support.openai_server import OpenAIServer
from tests.support.queue_harness import MODEL, NUMBERS, assert_consistent, pages_of

NEIGHBOURS = [f"e{number}" for number in range(10)]
PAPERS = [f"p{number}" for number in range(10)]
SAYS = "Observations:\n- "

EMBEDDED: dict[str, tuple[dict[str, Any], str]] = {
    "no text": ({}, "no text"),
    "no version": ({"version": None, "observations": ["a"]}, f"{SAYS}a"),
    "blank observations": ({"observations": "  "}, "blank observations"),
    "an empty list": ({"observations": []}, "an empty list"),
    "not JSON": ({"observations": '["a'}, f'{SAYS}["a'),
    "prose": ({"observations": "Just prose."}, f"{SAYS}Just prose."),
    "a JSON object": ({"observations": '{"a": [1, null]}'}, SAYS + '{"a": [1, null]}'),
    "a JSON number": ({"observations": "7"}, f"{SAYS}7"),
    "JSON of mixed types": ({"observations": '["a", 1, null, ["b"]]'}, '- a\n- 1\n- null\n- ["b"]'),
    "a number of 5000 digits": ({"observations": "9" * 5_000}, SAYS + "9" * 5_000),
    "endless JSON": ({"observations": "[" * 100_000}, SAYS + "[[["),
    "deep JSON": ({"observations": "[" * 500 + "]" * 500}, SAYS + "[[["),
    "a surrogate in JSON": ({"observations": r'["a\ud800b"]'}, f"{SAYS}a?b"),
    "a number": ({"observations": 7}, f"{SAYS}7"),
    "numbers": ({"observations": [1.5, 2.5]}, "- 1.5\n- 2.5"),
    "no finite number": ({"observations": [float("nan"), float("inf")]}, "- NaN\n- Infinity"),
    "truth": ({"observations": True}, f"{SAYS}true"),
    "dates": ({"observations": [date(2020, 1, 2)]}, "2020-01-02"),
    "a duration": ({"observations": timedelta(days=1)}, "- 0\n- 1\n- 0"),
    "a point": ({"observations": CartesianPoint((1.0, 2.5))}, "- 1\n- 2.5"),
    "version '1'": ({"version": "1"}, "version '1'"),
    "a version in words": ({"version": "v" * 9_000}, "a version in words"),
    "a float as version": ({"version": 1.0}, "a float as version"),
    "bytes": ({"observations": b"\xff\x00"}, SAYS),
    "a list as type": ({"entityType": ["a", "b"], "observations": ["x"]}, "Type: ['a', 'b']"),
    "control characters": ({"observations": ["a\x00b\x1b[31m\x07"]}, "a\x00b\x1b[31m\x07"),
    "other scripts": ({"observations": ["\u202eab\u200b👩‍👩‍👧"]}, "\u202eab\u200b👩‍👩‍👧"),
    "ten megabytes": ({"observations": ["lorem ipsum " * 900_000]}, f"{SAYS}lorem ipsum lorem"),
}
"""Properties, and what is sent for them."""

CANCELLED: dict[str, tuple[list[dict[str, Any]], str]] = {
    "a list as version": ([{"version": [1]}], "the version is neither text nor a whole number"),
    "half a version": ([{"version": 1.5}], "the version is neither text nor a whole number"),
    "only history": ([{"validTo": 1}], "entity deleted"),
    "twins of other text": ([{"observations": ["a"]}, {"observations": ["b"]}], "several current"),
    "twins of other version": ([{"version": 1}, {"version": 2}], "make it unique"),
    "triplets": ([{"observations": [text]} for text in "aba"], "several current entities"),
}
"""Nodes with the same key, and why their job is cancelled."""

UNEMBEDDABLE = 2 + 2 + 2 + 3


@pytest.fixture(scope="module")
async def drained(
    neo4j_server: TestServer, running_provider: OpenAIServer
) -> AsyncIterator[DrainUnderTest]:
    """One drain over everything at once: all texts in one lease."""
    server = neo4j_server
    async with open_driver(server.connection) as driver:
        queue = DrainUnderTest(
            driver, server.database, connection=server.connection, server=running_provider
        )
        await queue.wipe()
        await queue.given(len(NEIGHBOURS))
        nodes = [{"name": name, "version": 1, **more} for name, (more, _) in EMBEDDED.items()]
        for name, (twins, _) in CANCELLED.items():
            nodes += [{"name": name, "version": 1, **more} for more in twins]
        await queue.run("UNWIND $nodes AS node CREATE (e:Entity) SET e = node", nodes=nodes)
        await queue.admin.enqueue([NewJob(name, MODEL) for name in (*EMBEDDED, *CANCELLED)])
        running_provider.requests.clear()
        await queue.drained()
        yield queue


IN_PIECES = ("endless JSON", "ten megabytes")
"""Too long for the model: the first piece is what stands above the observations."""


@pytest.mark.parametrize("name", EMBEDDED)
async def test_i5_any_property_becomes_a_text(drained: DrainUnderTest, name: str) -> None:
    # All in one request, but for the one that is too long to be read with the others.
    together, alone = [request["input"] for request in drained.provider.requests]
    sent = alone if name == "ten megabytes" else together

    [at] = [
        number
        for number, text in enumerate(sent)
        if text.startswith(f"Name: {name}\n") or text == f"Name: {name}"
    ]

    assert EMBEDDED[name][1] in "".join(sent[at : at + (2 if name in IN_PIECES else 1)])
    assert (await drained.job(name)).status is JobStatus.COMPLETED
    assert await drained.vector(name) is not None


@pytest.mark.parametrize("name", CANCELLED)
async def test_i5_an_entity_that_a_job_cannot_mean_gets_no_vector_and_a_reason(
    drained: DrainUnderTest, name: str
) -> None:
    job = await drained.job(name)

    vectors = await drained.run(
        "MATCH (e:Entity {name: $name}) RETURN e.embedding AS vector", name=name
    )
    assert job.status is JobStatus.CANCELLED
    assert CANCELLED[name][1] in (job.error or "")
    assert {row["vector"] for row in vectors} == {None}


async def test_i9_the_neighbours_of_bad_entities_complete(drained: DrainUnderTest) -> None:
    jobs = [await drained.job(uid) for uid in NEIGHBOURS]

    assert [(job.status, job.attempts) for job in jobs] == [(JobStatus.COMPLETED, 1)] * 10
    assert_consistent(await drained.nodes())


async def test_a_scan_counts_what_cannot_be_embedded_and_enqueues_nothing_for_ever(
    drained: DrainUnderTest,
) -> None:
    page = await drained.reconcile()

    found = {kind: count for kind, count in page.coverage.items() if count}
    assert found == {
        Coverage.CURRENT: len(EMBEDDED) + len(NEIGHBOURS),
        Coverage.UNEMBEDDABLE: UNEMBEDDABLE,
    }
    assert page.enqueued == {}


async def test_twins_of_one_text_share_its_vector(queue: DrainUnderTest) -> None:
    await queue.run("UNWIND [1, 2] AS _ CREATE (:Entity {name: 'ada', observations: ['a']})")
    await queue.admin.enqueue([NewJob("ada", MODEL)])

    await queue.drained()

    rows = await queue.run("MATCH (e:Entity) RETURN e.embedding IS NOT NULL AS has_vector")
    assert rows == [{"has_vector": True}] * 2
    assert await queue.coverage() == {**dict.fromkeys(Coverage, 0), Coverage.CURRENT: 2}


async def test_i5_a_twin_that_appears_in_flight_gets_no_vector_of_the_other(
    queue: DrainUnderTest,
) -> None:
    await queue.given(2)
    queue.provider.gate.clear()

    async with queue.drain() as drain:
        running = asyncio.create_task(drain.run())
        await until(lambda: queue.provider.requests)
        await queue.run("CREATE (:Entity {name: 'e0', version: 1, observations: ['other']})")
        queue.provider.gate.set()
        await running

    assert await queue.counted() == {"completed": 1, "cancelled": 1}
    rows = await queue.run("MATCH (e:Entity {name: 'e0'}) RETURN e.embedding AS vector")
    assert rows == [{"vector": None}] * 2


async def test_twins_on_both_sides_of_a_page_are_seen(queue: DrainUnderTest) -> None:
    await queue.run(
        """
        UNWIND [['a', 'x'], ['b', 'x'], ['b', 'y'], ['c', 'x']] AS row
        CREATE (:Entity {name: row[0], version: 1, observations: [row[1]]})
        """
    )

    pages = await pages_of(queue.queue.reconciler(MODEL), limit=2)

    assert [page.cursor for page in pages] == ["a", "b", None]
    assert [page.coverage[Coverage.UNEMBEDDABLE] for page in pages] == [0, 2, 0]
    jobs = [node["entity_uid"] for node in await queue.nodes()]
    assert sorted(jobs) == ["a", "c"]


async def test_a_blank_text_is_done_without_a_request_and_without_a_vector(
    queue: DrainUnderTest,
) -> None:
    papers = replace(queue, shape=EntityShape(template="{title} {abstract}"))
    await papers.run("UNWIND range(0, 9) AS n CREATE (:Entity {name: 'p' + n, title: 'T' + n})")
    await papers.run("CREATE (:Entity {name: 'blank', title: '  ', embedding: $v})", v=NUMBERS)
    await papers.admin.enqueue([NewJob(name, MODEL) for name in ("blank", *PAPERS)])

    await papers.drained()

    assert await papers.counted() == {"completed": 11}
    assert [len(request["input"]) for request in papers.provider.requests] == [10]
    assert await papers.vector("blank") is None
    found = {Coverage.CURRENT: 10, Coverage.EMPTY_TEXT: 1}
    assert await papers.coverage() == {**dict.fromkeys(Coverage, 0), **found}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no key": ({"entity_uid": None}, "entity_uid must be a text"),
    "an empty key": ({"entity_uid": ""}, "entity_uid must be a text that is not empty"),
    "half a number as key": ({"entity_uid": 7.5}, "entity_uid must be a text"),
    "a list as key": ({"entity_uid": ["a"]}, "entity_uid must be a text"),
    "bytes as key": ({"entity_uid": b"a"}, "entity_uid must be a text"),
    "a very long key": ({"entity_uid": "k" * 513}, "entity_uid has 513 characters; at most 512"),
    "half a character": ({"entity_uid": "a\ud800"}, "entity_uid holds half a character"),
    "no model": ({"model": ""}, "model must be a text that is not empty"),
    "half a model": ({"model": "\udcff"}, "model holds half a character"),
    "version '1'": ({"version": "1"}, "version must be a whole number"),
    "version 1.5": ({"version": 1.5}, "version must be a whole number"),
    "no number": ({"version": float("nan")}, "version must be a whole number"),
    "version true": ({"version": True}, "version must be a whole number"),
    "no version": ({"version": None}, "version must be a whole number"),
    "a negative version": ({"version": -1}, "not negative"),
    "a priority in words": ({"priority": "high"}, "priority must be a whole number"),
}


@pytest.mark.parametrize(("wish", "words"), REFUSED.values(), ids=list(REFUSED))
def test_i7_what_cannot_be_a_key_is_refused_before_it_reaches_the_database(
    wish: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidJobError, match=words):
        NewJob(**{"entity_uid": "ada", "model": MODEL, **wish})


def test_the_text_of_deep_json_does_not_depend_on_who_asks() -> None:
    for depth in (DEEPEST, DEEPEST + 1, 400, 900):
        entity = {"name": "x", "observations": "[" * depth + "]" * depth}

        assert called_from_afar(400, entity) == memento_text(entity)


def called_from_afar(frames: int, entity: dict[str, Any]) -> str:
    return called_from_afar(frames - 1, entity) if frames else memento_text(entity)
