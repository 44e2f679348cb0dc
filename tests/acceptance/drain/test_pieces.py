"""Pieces of texts as nodes: found, kept while their words stay, and never of two texts at once."""

import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, LiteralString, TypeVar

import pytest

from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.job import Lease, NewJob
from embed_pipeline.domain.pieces import HASHED_AS, Passage, Pieces
from embed_pipeline.domain.results import Completion, CompletionOutcome
from embed_pipeline.domain.text import recipe_of, render_for, text_hash
from embed_pipeline.domain.vector import mean_of, print_of, vector_of
from embed_pipeline.embedding.tokens import prepare_in_pieces
from embed_pipeline.operations.scan import Scan
from embed_pipeline.store import complete as store_complete, pieces as store_pieces
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.database import Database
from embed_pipeline.store.job_store import Neo4jJobStore
from embed_pipeline.store.search import search_entities
from tests.support.drain_harness import DrainUnderTest
from tests.support.openai_server import vectors
from tests.support.queue_harness import DIMENSIONS, MODEL

PIECES = Pieces(tokens=32)
SHAPE = EntityShape(pieces=PIECES)
OTHER = "another-model"
BAD = [0.5, 0.5, -0.5, 0.5]
PARAGRAPHS = [
    f"Paragraph {number} tells of topic {number}, which no other paragraph mentions."
    for number in range(40)
]
PARTS: LiteralString = """
MATCH (:Entity {name: $uid})<-[:FROM_DOCUMENT]-(piece:EmbedChunk:Chunk)
RETURN piece {.*} AS piece, elementId(piece) AS node,
  [(piece)-[:NEXT_CHUNK]->(next) | next.index] AS next
ORDER BY piece.index
"""
Result = TypeVar("Result")


def of_text(text: str) -> list[float]:
    """Another vector for every text."""
    return [
        float(zlib.crc32(f"{place}{text}".encode()) % 1000 - 500.5) for place in range(DIMENSIONS)
    ]


@pytest.fixture
async def queue(queue: DrainUnderTest) -> DrainUnderTest:
    queue = replace(queue, shape=SHAPE)
    await queue.install()
    queue.provider.answer_with = lambda body: vectors(body, of_text=of_text)
    return queue


async def embedded(
    queue: DrainUnderTest, paragraphs: Sequence[str], uid: str = "ada", version: int = 1
) -> list[str]:
    """Write a text, scan and drain; says what the provider was sent."""
    queue.provider.requests.clear()
    await queue.put_entity(uid, "\n\n".join(paragraphs), version=version)
    await queue.reconcile()
    await queue.drained()
    return [text for request in queue.provider.requests for text in request["input"]]


def rendered(paragraphs: Sequence[str], uid: str = "ada") -> str:
    text = "\n\n".join(paragraphs)
    return render_for(SHAPE)({"name": uid, "entityType": "test", "observations": [text]})


def pieces_of(paragraphs: Sequence[str], uid: str = "ada") -> list[str]:
    prepared = prepare_in_pieces(rendered(paragraphs, uid), PIECES, max_tokens=8191)
    return [piece.text for piece in prepared.inputs]


async def texts(queue: DrainUnderTest, uid: str = "ada") -> list[str]:
    return [row["piece"]["text"] for row in await queue.run(PARTS, uid=uid)]


async def staged(queue: DrainUnderTest) -> list[str]:
    rows = await queue.run("MATCH (p:EmbedPieceStaged) RETURN p.text AS text ORDER BY text")
    return [row["text"] for row in rows]


async def test_m120_pieces_are_nodes_in_order_and_the_entity_has_their_mean(
    queue: DrainUnderTest,
) -> None:
    await embedded(queue, PARAGRAPHS)

    rows = await queue.run(PARTS, uid="ada")
    text = rendered(PARAGRAPHS)
    found = [row["piece"] for row in rows]
    assert "".join(piece["text"] for piece in found) == text
    assert [text[piece["start"] : piece["end"]] for piece in found] == pieces_of(PARAGRAPHS)
    assert [piece["index"] for piece in found] == list(range(len(found)))
    assert [row["next"] for row in rows] == [[n] for n in range(1, len(rows))] + [[]]
    assert [piece["embedding"] for piece in found] == [of_text(piece["text"]) for piece in found]
    weights = prepare_in_pieces(text, PIECES, max_tokens=8191).weights
    mean = mean_of([vector_of(piece["embedding"]) for piece in found], weights)
    assert await queue.vector("ada") == list(memoryview(mean).cast("f"))
    assert (await queue.job("ada")).pieces == len(found) > 10


async def test_m120_a_search_finds_the_passage_and_its_entity(queue: DrainUnderTest) -> None:
    await embedded(queue, PARAGRAPHS)
    await embedded(queue, ["A short text."], "bob")
    passage = pieces_of(PARAGRAPHS)[7]
    await queue.run("CALL db.awaitIndexes(60)")

    found = await search_entities(
        queue.queue.database,
        queue.config,
        vector=vector_of(of_text(passage)),
        model=MODEL,
        limit=5,
    )

    assert found is not None
    [hit, *others] = found
    assert (hit.uid, hit.passage) == ("ada", passage)
    assert hit.text == rendered(PARAGRAPHS)
    # Each entity once, and one with a short text is its own only piece.
    assert [(other.uid, other.passage) for other in others] == [("bob", others[0].text)]


async def test_m120_a_text_of_many_near_pieces_crowds_nobody_out(
    queue: DrainUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.provider.answer_with = lambda body: vectors(
        body, of_text=lambda text: [1.0, "short" in text, 0.0, 0.0]
    )
    await embedded(queue, PARAGRAPHS)
    await embedded(queue, ["A short text."], "bob")
    await queue.run("CALL db.awaitIndexes(60)")
    monkeypatch.setattr("embed_pipeline.store.search.FEWEST_CANDIDATES", 5)
    monkeypatch.setattr("embed_pipeline.store.search.CANDIDATES_PER_HIT", 1)

    found = await search_entities(
        queue.queue.database,
        queue.config,
        vector=vector_of([1.0, 0.0, 0.0, 0.0]),
        model=MODEL,
        limit=2,
    )

    assert [hit.uid for hit in found or []] == ["ada", "bob"]


async def test_m121_editing_a_paragraph_pays_only_for_the_pieces_it_touches(
    queue: DrainUnderTest,
) -> None:
    before = await embedded(queue, PARAGRAPHS)
    nodes = {row["piece"]["text"]: row["node"] for row in await queue.run(PARTS, uid="ada")}
    edited = [*PARAGRAPHS[:20], "Paragraph 20 is another one now.", *PARAGRAPHS[21:]]

    paid = await embedded(queue, edited)

    assert before == pieces_of(PARAGRAPHS)
    assert paid == [text for text in pieces_of(edited) if text not in before]
    assert any("another one" in text for text in paid)
    assert len(paid) <= 4
    after = {row["piece"]["text"]: row["node"] for row in await queue.run(PARTS, uid="ada")}
    assert list(after) == pieces_of(edited)
    # The others are the nodes that they were.
    assert {text: node for text, node in after.items() if text not in paid} == {
        text: node for text, node in nodes.items() if text in after
    }


async def test_m121_what_another_text_or_version_has_is_not_paid_again(
    queue: DrainUnderTest,
) -> None:
    before = await embedded(queue, PARAGRAPHS)

    of_bob = await embedded(queue, PARAGRAPHS, "bob")
    of_next_version = await embedded(queue, PARAGRAPHS, version=2)

    assert of_bob == [text for text in pieces_of(PARAGRAPHS, "bob") if text not in before]
    assert "Name: bob" in of_bob[0]
    assert of_next_version == []
    assert await texts(queue) == pieces_of(PARAGRAPHS)


async def test_m120_pieces_follow_a_new_version_and_go_with_the_entity(
    queue: DrainUnderTest,
) -> None:
    await embedded(queue, PARAGRAPHS)
    await queue.run(
        """
        MATCH (old:Entity {name: 'ada'}) SET old.validTo = 1
        CREATE (:Entity {name: 'ada', entityType: 'test', observations: ['short'], version: 2})
        """
    )
    await queue.reconcile()
    await queue.drained()

    assert await texts(queue) == pieces_of(["short"])
    await embedded(queue, PARAGRAPHS, "bob")
    await queue.delete_entity("bob")
    await Scan.begin(queue.queue.reconciler(MODEL)).go_on()

    [row] = await queue.run("MATCH (p:EmbedChunk) RETURN count(p) AS pieces")
    assert row["pieces"] == len(await texts(queue)) == 1


@pytest.mark.parametrize(
    "damage",
    [
        "MATCH (piece)-->({name: 'ada'}) DETACH DELETE piece",
        "MATCH (piece {index: 7})-->({name: 'ada'}) DETACH DELETE piece",
        "MATCH (piece {index: 7})-->({name: 'ada'}) REMOVE piece.embedding",
    ],
    ids=["all", "one", "a vector"],
)
async def test_m120_pieces_that_somebody_deleted_are_found_and_made_anew(
    queue: DrainUnderTest, damage: LiteralString
) -> None:
    """Also where another text has the same words, and nothing is to be paid for."""
    await embedded(queue, PARAGRAPHS)
    await embedded(queue, PARAGRAPHS, "bob")
    assert (await queue.coverage())[Coverage.CURRENT] == 2
    await queue.run(damage)

    assert (await queue.coverage())[Coverage.STALE] == 1
    await queue.drained()

    assert await texts(queue) == pieces_of(PARAGRAPHS)
    found = [row["piece"] for row in await queue.run(PARTS, uid="ada")]
    assert [piece["embedding"] for piece in found] == [of_text(piece["text"]) for piece in found]
    assert (await queue.coverage())[Coverage.CURRENT] == 2


async def test_m136_the_vector_of_somebody_else_is_copied_from_no_piece(
    queue: DrainUnderTest,
) -> None:
    await embedded(queue, PARAGRAPHS)
    passage = pieces_of(PARAGRAPHS)[7]
    await queue.run("MATCH (p:EmbedChunk {index: 7}) SET p.embedding = $bad", bad=BAD)

    of_bob = await embedded(queue, PARAGRAPHS, "bob")

    assert passage in of_bob
    found = [row["piece"] for row in await queue.run(PARTS, uid="bob")]
    assert [piece["embedding"] for piece in found] == [of_text(piece["text"]) for piece in found]


async def test_m121_another_model_gets_every_piece_anew_and_its_search_finds_them(
    queue: DrainUnderTest,
) -> None:
    """The words are the same, and so are their hashes; ada has most of bob's when he is next."""
    queue.provider.answer_with = lambda body: vectors(
        body, of_text=lambda text: of_text(body["model"] + text)
    )
    await embedded(queue, PARAGRAPHS)
    await embedded(queue, PARAGRAPHS, "bob")
    passage = pieces_of(PARAGRAPHS)[7]

    for uid in ("ada", "bob"):
        await queue.admin.enqueue([NewJob(uid, OTHER)])
        await queue.drained(model=OTHER)
    await queue.run("CALL db.awaitIndexes(60)")

    for uid in ("ada", "bob"):
        found = [row["piece"] for row in await queue.run(PARTS, uid=uid)]
        assert [piece["text"] for piece in found] == pieces_of(PARAGRAPHS, uid)
        assert {piece["model"] for piece in found} == {OTHER}
        assert [x["embedding"] for x in found] == [of_text(OTHER + x["text"]) for x in found]
    hits = await search_entities(
        queue.queue.database,
        queue.config,
        vector=vector_of(of_text(OTHER + passage)),
        model=OTHER,
        limit=5,
    )
    assert [hit.passage for hit in hits or []] == [passage, passage]


async def test_m86_a_forced_text_gets_the_vectors_of_its_pieces_from_the_provider(
    queue: DrainUnderTest,
) -> None:
    await embedded(queue, PARAGRAPHS)
    # Bad, and nobody can see it: its print fits.
    await queue.run(
        "MATCH (p:EmbedChunk {index: 7}) SET p.embedding = $bad, p.print = $print",
        bad=BAD,
        print=print_of(vector_of(BAD)),
    )

    await queue.admin.enqueue([NewJob("ada", MODEL, force=True)])
    await queue.drained()

    found = [row["piece"] for row in await queue.run(PARTS, uid="ada")]
    assert [piece["text"] for piece in found] == pieces_of(PARAGRAPHS)
    assert [piece["embedding"] for piece in found] == [of_text(piece["text"]) for piece in found]


async def test_m86_what_was_staged_before_a_job_was_forced_is_not_taken(
    queue: DrainUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_pieces, "PIECES_PER_WRITE", 5)
    await queue.put_entity("ada", "\n\n".join(PARAGRAPHS))
    await queue.reconcile()
    [leased] = (await queue.lease("dead/x")).jobs
    old = completion(leased.lease, PARAGRAPHS)
    bad = [replace(passage, vector=vector_of(BAD)) for passage in old.passages]
    await store_pieces.stage_pieces(
        queue.queue.database, queue.config, replace(old, passages=tuple(bad))
    )
    await queue.admin.release_owner("dead")

    await queue.admin.enqueue([NewJob("ada", MODEL, force=True)])
    await queue.drained()

    found = [row["piece"] for row in await queue.run(PARTS, uid="ada")]
    assert [piece["embedding"] for piece in found] == [
        of_text(text) for text in pieces_of(PARAGRAPHS)
    ]
    assert await staged(queue) == []


async def test_m122_nodes_that_share_a_key_share_pieces_and_lose_none(
    queue: DrainUnderTest,
) -> None:
    """Two clients have written an entity at once, and no constraint kept them from it."""
    edited = [*PARAGRAPHS[:20], "Another one.", *PARAGRAPHS[21:]]
    await embedded(queue, PARAGRAPHS)
    await queue.run("MATCH (e:Entity {name: 'ada'}) CREATE (twin:Entity) SET twin = e {.*}")
    await embedded(queue, PARAGRAPHS)
    assert await texts(queue) == sorted(2 * pieces_of(PARAGRAPHS), key=pieces_of(PARAGRAPHS).index)

    sent = await embedded(queue, edited)

    assert sent
    assert await texts(queue) == sorted(2 * pieces_of(edited), key=pieces_of(edited).index)
    assert not (await queue.reconcile()).enqueued


async def test_m120_a_bound_makes_larger_pieces_and_cuts_nothing() -> None:
    text = rendered(PARAGRAPHS)

    prepared = prepare_in_pieces(text, Pieces(tokens=16, most=10), max_tokens=8191)

    assert 5 <= len(prepared.pieces) <= 10
    assert "".join(piece.text for piece in prepared.pieces) == text


@dataclass(frozen=True, slots=True)
class Dying(Database):
    """A database whose client dies at one of its transactions, before or after its commit."""

    lives: list[int] = None  # pyright: ignore[reportAssignmentType]
    is_committed: bool = False

    async def write(
        self, work: Callable[[Any], Awaitable[Result]], *, is_divisible: bool = False
    ) -> Result:
        self.lives[0] -= 1
        if self.lives[0] == 0 and not self.is_committed:
            raise KeyboardInterrupt
        # Not super(): a class with slots is made anew, and its methods know the former one.
        result = await Database.write(self, work, is_divisible=is_divisible)
        if self.lives[0] == 0:
            raise KeyboardInterrupt
        return result


def completion(lease: Lease, paragraphs: Sequence[str]) -> Completion:
    text = rendered(paragraphs)
    prepared = prepare_in_pieces(text, PIECES, max_tokens=8191)
    passages = tuple(
        Passage(
            piece.start,
            piece.text,
            text_hash(piece.text, recipe=HASHED_AS),
            vector_of(of_text(piece.text)),
        )
        for piece in prepared.inputs
    )
    mean = mean_of([passage.vector for passage in passages], prepared.weights)
    digest = text_hash(text, recipe=recipe_of(SHAPE))
    return Completion(lease, mean, digest, pieces=len(passages), passages=passages)


@pytest.mark.parametrize("is_committed", [False, True], ids=["before", "after"])
async def test_m122_killed_at_any_point_no_entity_has_pieces_of_two_texts(
    queue: DrainUnderTest, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    monkeypatch.setattr(store_pieces, "PIECES_PER_WRITE", 5)
    database = queue.queue.database
    former = PARAGRAPHS
    await embedded(queue, former)
    steps, has_died = 0, True
    while has_died:
        steps += 1
        text = [f"{steps} {paragraph}" for paragraph in PARAGRAPHS]
        await queue.put_entity("ada", "\n\n".join(text))
        await queue.reconcile()
        dying = Dying(
            database.driver,
            database.name,
            timeout=database.timeout,
            queue=database.queue,
            lives=[steps],
            is_committed=is_committed,
        )
        [leased] = (await queue.lease("dead/x")).jobs
        try:
            await Neo4jJobStore(dying, queue.config).complete([completion(leased.lease, text)])
            has_died = False
        except KeyboardInterrupt:
            pass

        assert await texts(queue) in (pieces_of(former), pieces_of(text))
        # Somebody else completes it, and of another text than was staged.
        text[::2] = [paragraph.upper() for paragraph in text[::2]]
        await queue.put_entity("ada", "\n\n".join(text))
        await queue.reconcile()
        await queue.admin.recover_owner("dead")
        await queue.run("MATCH (j:EmbedPending) REMOVE j.run_after SET j.suspect_at = 0")
        for again in (await queue.lease("heir/x")).jobs:
            [outcome] = await queue.jobs.complete([completion(again.lease, text)])
            assert outcome is CompletionOutcome.COMPLETED
        assert await texts(queue) == pieces_of(text)
        assert await staged(queue) == []
        former = text
    # A look, six parts, and the switch.
    assert steps > 6


async def test_m122_what_a_dead_worker_staged_is_found_by_nobody_and_removed(
    queue: DrainUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_pieces, "PIECES_PER_WRITE", 5)
    await queue.put_entity("ada", "\n\n".join(PARAGRAPHS))
    await queue.reconcile()
    [leased] = (await queue.lease("dead/x")).jobs
    await store_pieces.stage_pieces(
        queue.queue.database, queue.config, completion(leased.lease, PARAGRAPHS)
    )
    assert await staged(queue) == sorted(pieces_of(PARAGRAPHS))
    [row] = await queue.run("MATCH (p:EmbedChunk|Chunk) RETURN count(p) AS pieces")
    assert row["pieces"] == 0

    await queue.admin.cancel_job(leased.lease.job_id, by="operator")
    # Whoever has lost the job stages nothing more.
    await store_pieces.stage_pieces(
        queue.queue.database,
        queue.config,
        completion(leased.lease, [paragraph.upper() for paragraph in PARAGRAPHS]),
    )
    assert await staged(queue) == sorted(pieces_of(PARAGRAPHS))
    await Scan.begin(queue.queue.reconciler(MODEL)).go_on()

    assert await staged(queue) == []


async def test_m122_a_switch_of_many_pieces_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commit may take a minute: asked for again before, it waits for its own locks."""
    waited: list[timedelta] = []

    async def nothing(*_: object) -> None: ...

    async def completed(
        database: Database, _: object, rows: Sequence[Completion]
    ) -> list[CompletionOutcome]:
        waited.append(database.commit)
        return [CompletionOutcome.COMPLETED] * len(rows)

    monkeypatch.setattr(store_complete, "stage_pieces", nothing)
    monkeypatch.setattr(store_complete, "_complete_all", completed)
    monkeypatch.setattr(store_pieces, "PIECES_PER_WRITE", 5)
    lease = Lease("id", "ada", MODEL, 1, "w", 1)
    unused: Any = None

    for paragraphs in (PARAGRAPHS[:1], PARAGRAPHS):
        await store_complete.complete(
            Database(unused), QueueConfig(shape=SHAPE), [completion(lease, paragraphs)]
        )

    assert waited == [timedelta(0), store_pieces.LONG_COMMIT]
