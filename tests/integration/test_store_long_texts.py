"""Texts of any size and type: read in parts, and cut the same way by everybody."""

import json
from collections.abc import Callable
from typing import Any, LiteralString

import pytest
from neo4j import exceptions as neo4j_errors

from embed_pipeline.domain.coverage import Coverage, ReconcilePage
from embed_pipeline.domain.errors import TooMuchAtOnceError
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.keys import Unfit
from embed_pipeline.domain.results import CompletionOutcome, EntityFate
from embed_pipeline.domain.text import LONGEST_TEXT, memento_text, text_hash
from embed_pipeline.operations.scan import Scan
from embed_pipeline.store.cypher import entity as cypher_entity, reconcile as cypher_reconcile
from embed_pipeline.store.database import QueueTransaction
from tests.support.queue_harness import MODEL, VECTOR, Neo4jUnderTest

OUT_OF_MEMORY = "Neo.TransientError.General.MemoryPoolOutOfMemoryError"
OUT_OF_TIME = "Neo.ClientError.Transaction.TransactionTimedOutClientConfiguration"
MUCH = LONGEST_TEXT + 5

VALUES: dict[str, tuple[Any, Any]] = {
    "as long as can be": ("x" * LONGEST_TEXT, "x" * LONGEST_TEXT),
    "a text": ("x" * MUCH, "x" * LONGEST_TEXT),
    "wide characters": ("😀" * MUCH, "😀" * LONGEST_TEXT),
    "JSON": (json.dumps(["a", "x" * MUCH]), json.dumps(["a", "x" * MUCH])[:LONGEST_TEXT]),
    "a list of one": (["x" * MUCH], ["x" * LONGEST_TEXT]),
    "a long entry behind others": (["a", "b", "c" * MUCH, "d"], ["a", "b", "c" * LONGEST_TEXT]),
    "many entries": (["x" * 999] * 2_000, ["x" * 999] * 1_025),
    "empty entries": ([""] * MUCH, [""] * (LONGEST_TEXT + 1)),
    "numbers": ([1] * MUCH, [1] * (LONGEST_TEXT // 16)),
    "a number": (1.5, 1.5),
}


async def given(queue: Neo4jUnderTest, uid: str, observations: Any) -> None:
    await queue.run(
        "CREATE (:Entity {name: $uid, observations: $o, version: 1})", uid=uid, o=observations
    )


@pytest.mark.parametrize("name", VALUES)
async def test_m84_scan_load_and_completion_read_the_same_of_a_text(
    queue: Neo4jUnderTest, name: str
) -> None:
    whole, read = VALUES[name]
    await given(queue, "ada", whole)
    await given(queue, "bob", "short")
    digest = text_hash(memento_text({"name": "ada", "observations": read}))

    scanned = await queue.reconcile()
    batch = await queue.lease()
    [job] = [job for job in batch.jobs if job.lease.entity_uid == "ada"]
    [first] = await queue.jobs.load([job.lease], longest=10)
    [second] = await queue.jobs.load([job.lease], longest=first.size)
    outcomes = await queue.complete(job.lease, hashes=[digest])
    again = await queue.reconcile()

    assert scanned.coverage[Coverage.MISSING] == 2
    assert (await queue.job("ada")).text_hash == digest
    assert first.fate is EntityFate.LONG
    assert second.properties["observations"] == read
    assert outcomes == [CompletionOutcome.COMPLETED]
    assert again.coverage[Coverage.CURRENT] == 1


async def test_m84_the_scan_names_what_is_cut(queue: Neo4jUnderTest) -> None:
    await given(queue, "long", "x" * MUCH)
    await given(queue, "longest-whole", "x" * (LONGEST_TEXT - 100))

    page = await queue.reconcile()

    assert (page.oversized, page.oversized_names) == (1, ("long",))


async def test_two_long_texts_under_one_key_are_told_apart(queue: Neo4jUnderTest) -> None:
    await given(queue, "ada", "x" * MUCH)
    [item] = await queue.leased("bob")
    await queue.run("MATCH (e:Entity {name: 'bob'}) SET e.observations = $o", o="x" * MUCH)
    await given(queue, "ada", "y" * MUCH)
    await given(queue, "bob", "y" * MUCH)

    page = await queue.reconcile()
    [first] = await queue.jobs.load([item.lease])
    [second] = await queue.jobs.load([item.lease], longest=2 * MUCH)

    assert page.coverage[Coverage.UNEMBEDDABLE] == 4
    assert EntityFate.GONE in (first.fate, second.fate)


Culprit = Callable[[str, dict[str, Any]], str | None]


def exhausted_by(monkeypatch: pytest.MonkeyPatch, judge: Culprit) -> list[dict[str, Any]]:
    """Let the server give up what ``judge`` gives a code for; returns what it was asked."""
    run = QueueTransaction.run
    asked: list[dict[str, Any]] = []

    async def gives_up(
        self: QueueTransaction, query: LiteralString, parameters: dict[str, Any], /
    ) -> Any:
        asked.append({"query": query, **parameters})
        if code := judge(query, parameters):
            raise neo4j_errors.Neo4jError._hydrate_neo4j(code=code, message="no")
        return await run(self, query, parameters)

    monkeypatch.setattr(QueueTransaction, "run", gives_up)
    return asked


def reads_entities(query: str) -> bool:
    marks = ("collect([key, version", "AS outdated")
    assert all(mark in cypher_entity.READ_ENTITIES for mark in marks)
    return all(mark in query for mark in marks)


def scans(query: str) -> bool:
    return "AS unread" in query and "AS unread" in cypher_reconcile.SCAN_ENTITIES


@pytest.mark.parametrize("code", [OUT_OF_MEMORY, OUT_OF_TIME])
async def test_m84_a_page_that_is_too_much_is_halved_and_nothing_is_missed(
    queue: Neo4jUnderTest, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    for number in range(30):
        await given(queue, f"e{number:02}", "text")
    asked = exhausted_by(
        monkeypatch, lambda query, given: code if scans(query) and given["limit"] > 9 else None
    )

    scan = Scan.begin(queue.queue.reconciler(MODEL))
    await scan.go_on(page_size=30)

    assert (scan.report.entities, scan.report.counts[Coverage.MISSING]) == (30, 30)
    # Each fault is answered by less, not by the same again; and the next page begins there.
    limits = [each["limit"] - 1 for each in asked if scans(each["query"])]
    assert limits[:3] == [30, 15, 7]
    assert max(limits[3:]) <= 14


async def test_m84_the_one_entity_that_cannot_be_read_is_named_and_passed_over(
    queue: Neo4jUnderTest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keys = [f"e{number:02}" for number in range(20)]
    for key in keys:
        await given(queue, key, "text")

    def judge(query: str, given: dict[str, Any]) -> str | None:
        if not scans(query) or not isinstance(given["after"], str):
            return None
        page = [key for key in keys if key > given["after"]][: given["limit"] - 1]
        return OUT_OF_MEMORY if "e07" in page else None

    exhausted_by(monkeypatch, judge)
    scan = Scan.begin(queue.queue.reconciler(MODEL))

    await scan.go_on(page_size=8)

    assert scan.report.entities == 20
    assert scan.report.counts[Coverage.UNEMBEDDABLE] == 1
    assert scan.report.counts[Coverage.MISSING] == 19
    assert scan.report.oversized_names == ("e07",)
    assert "'e07' is passed over" in caplog.text


async def test_m84_the_last_entity_may_be_the_one_that_cannot_be_read(
    queue: Neo4jUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await given(queue, "a", "text")
    exhausted_by(monkeypatch, lambda query, _: OUT_OF_TIME if scans(query) else None)

    page: ReconcilePage = await queue.queue.reconciler(MODEL).page(dry_run=True)

    assert (page.cursor, page.coverage[Coverage.UNEMBEDDABLE]) == ("a", 1)
    assert page.unfit == {Unfit.UNREADABLE: 1}


@pytest.mark.parametrize("code", [OUT_OF_MEMORY, OUT_OF_TIME])
async def test_m84_a_load_that_is_too_much_says_so_at_once(
    queue: Neo4jUnderTest, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    [item] = await queue.leased("ada")
    asked = exhausted_by(monkeypatch, lambda query, _: code if reads_entities(query) else None)

    with pytest.raises(TooMuchAtOnceError, match=code.rpartition(".")[2]) as caught:
        await queue.jobs.load([item.lease])

    assert caught.value.is_time is (code == OUT_OF_TIME)
    assert len([each for each in asked if reads_entities(each["query"])]) == 1
    assert (await queue.job("ada")).status is JobStatus.PROCESSING


async def test_a_completion_reads_long_texts_in_pages(
    queue: Neo4jUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    uids = [f"e{number:02}" for number in range(12)]
    items = await queue.leased(*uids)
    text = "x" * (LONGEST_TEXT - 100)
    await queue.run("MATCH (e:Entity) SET e.observations = [$text]", text=text)
    asked = exhausted_by(monkeypatch, lambda _query, _given: None)

    outcomes = await queue.complete(*(item.lease for item in items), text=text, vector=VECTOR)

    assert outcomes == [CompletionOutcome.COMPLETED] * 12
    pages = [each["keys"] for each in asked if reads_entities(each["query"])]
    assert len(pages) == 3


async def test_m84_one_long_text_in_front_of_many_vectors_costs_the_page_nothing(
    queue: Neo4jUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read in one go with them it made Neo4j need 50 ms for each: more than a transaction has."""
    await given(queue, "a", "x" * 10_000_000)
    await queue.run(
        """
        UNWIND range(1, 400) AS number
        CREATE (e:Entity {name: 'e' + number, observations: 'text', version: 1})
        SET e.embedding = [n IN range(1, 1536) | 1.0 / n]
        """
    )
    asked = exhausted_by(monkeypatch, lambda _query, _given: None)

    page = await queue.reconcile()

    assert page.scanned == 401
    # One for keys that are texts, one for numbers.
    assert len([each for each in asked if scans(each["query"])]) == 2
