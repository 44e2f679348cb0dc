"""Neighbours in the text: what is read of them, and what a change of them costs."""

import random
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, LiteralString

import pytest

from embed_pipeline.cli.explain import _rows, history_lines
from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.identity import Identity
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.pieces import Pieces
from embed_pipeline.domain.relations import Relations
from embed_pipeline.domain.text import render_for
from embed_pipeline.embedding.tokens import prepare
from embed_pipeline.operations.explaining import explain
from embed_pipeline.operations.scan import Scan
from embed_pipeline.settings import Settings
from embed_pipeline.store.cypher.entity import READ_ENTITIES
from embed_pipeline.store.identity import Neo4jIdentity
from embed_pipeline.store.load import ANY_LENGTH, read_entities
from embed_pipeline.store.naming import for_shape
from embed_pipeline.store.queue import open_queue
from embed_pipeline.store.schema.state import VectorIndex
from tests.acceptance.drain.test_pieces import of_text
from tests.support.drain_harness import DrainUnderTest
from tests.support.openai_server import vectors
from tests.support.queue_harness import DIMENSIONS, MODEL, assert_consistent, pages_of

TEMPLATE: Final = "{name}: {observations}\n{relations}"
SHAPE: Final = EntityShape(template=TEMPLATE)
MINUTES: Final = timedelta(minutes=5)
ADA: Final = """
CREATE (ada:Entity {name: 'Ada', observations: ['wrote notes'], version: 1}),
  (babbage:Entity {name: 'Babbage', observations: [], version: 1}),
  (engine:Entity {name: 'Engine', observations: [], version: 1}),
  (ada)-[:RELATES_TO {relationType: 'writes_about'}]->(engine),
  (ada)-[:KNOWS]->(babbage), (ada)-[:KNOWS]->(babbage),
  (babbage)-[:DESIGNS]->(engine)
"""


@pytest.fixture
def related(queue: DrainUnderTest) -> DrainUnderTest:
    return replace(queue, shape=SHAPE)


async def scanned(queue: DrainUnderTest) -> None:
    await pages_of(queue.queue.reconciler(MODEL), limit=1_000)


async def paid(queue: DrainUnderTest) -> list[str]:
    """Scan and drain; the texts that the provider was asked for."""
    queue.provider.requests.clear()
    await scanned(queue)
    await queue.drained()
    return sorted(text for request in queue.provider.requests for text in request["input"])


async def test_m115_the_text_has_words_and_names_of_neighbours(related: DrainUnderTest) -> None:
    await related.run(ADA)

    assert await paid(related) == [
        "Ada: wrote notes\nknows Babbage\nwrites about Engine",
        "Babbage: \nAda knows\ndesigns Engine",
        "Engine: \nBabbage designs\nAda writes about",
    ]
    assert await paid(related) == []


@pytest.mark.parametrize(
    ("relations", "text"),
    [
        (Relations(types=("KNOWS",)), "Ada: \nknows Babbage"),
        (Relations(direction="in"), "Ada: \n"),
        (Relations(most=1), "Ada: \nknows Babbage"),
        (Relations(word="since"), "Ada: \n1833 Babbage\nrelates to Engine"),
        (Relations(names=("alias", "name")), "Ada: \nknows Charles\nwrites about Engine"),
    ],
    ids=["types", "direction", "most", "word", "names"],
)
async def test_m115_settings_say_which_neighbours(
    queue: DrainUnderTest, relations: Relations, text: str
) -> None:
    related = replace(
        queue, shape=EntityShape(template="{name}: \n{relations}", relations=relations)
    )
    await related.run(ADA)
    await related.run(
        "MATCH (:Entity {name: 'Ada'})-[r:KNOWS]->(b) SET r.since = 1833, b.alias = 'Charles'"
    )

    assert text in await paid(related)


async def test_m115_closed_relations_and_outdated_versions_are_no_neighbours(
    related: DrainUnderTest,
) -> None:
    await related.run(ADA)
    await related.run("MATCH (:Entity {name: 'Ada'})-[r:RELATES_TO]->() SET r.validTo = 1")
    await related.run("MATCH (b:Entity {name: 'Babbage'}) SET b.validTo = 1")

    assert await paid(related) == ["Ada: wrote notes\n", "Engine: \n"]


async def test_m115_neighbours_that_nobody_here_wrote(related: DrainUnderTest) -> None:
    """Memento's JSON and floats, relations to itself and parallel ones, nodes without a name."""
    await related.run(
        """
        CREATE (ada:Entity {name: 'Ada', observations: '["wrote notes"]', version: 1.0}),
          (ada)-[:KNOWS]->(ada), (ada)-[:READS]->({name: 42}), (ada)-[:READS]->({name: 42}),
          (ada)-[:READS]->({title: 'nameless'}), (ada)-[:READS]->(:Book {name: ['a', 'b']}),
          (ada)-[:READS {relationType: 7}]->(:Book {name: true}),
          (ada)-[:READS {relationType: ['x']}]->(:Book {name: 'a\nb'}),
          (ada)-[:READS]->(:Book {name: $long})
        """,
        long="x" * 1_000,
    )

    [text] = await paid(related)

    assert text.splitlines()[0] == "Ada: wrote notes"
    assert sorted(text.splitlines()[1:]) == sorted(
        ["Ada knows", "knows Ada", "7 true", "reads 42", "reads a", "b", f"reads {'x' * 200}"]
    )
    assert await paid(related) == []


async def test_m115_of_several_open_versions_the_newest_is_the_neighbour(
    queue: DrainUnderTest,
) -> None:
    shape = EntityShape(
        template="{name}\n{relations}", order="version", relations=Relations(names=("alias",))
    )
    related = replace(queue, shape=shape)
    await related.run(
        """CREATE (ada:Entity {name: 'Ada', version: 1}),
          (ada)-[:KNOWS]->(:Entity {name: 'B', alias: 'old', version: 1}),
          (ada)-[:KNOWS]->(:Entity {name: 'B', alias: 'new', version: 2}),
          (ada)-[:READS]->(:Book {name: 'B', alias: 'a book'})"""
    )

    assert "Ada\nknows new\nreads a book" in await paid(related)


async def test_m116_exactly_the_texts_that_changed_are_paid_for(related: DrainUnderTest) -> None:
    await related.run(ADA)
    await paid(related)

    await related.run(
        """MATCH (b:Entity {name: 'Babbage'}), (e:Entity {name: 'Engine'})
        CREATE (e)-[:DREAMT_BY]->(b)"""
    )
    added = await paid(related)
    await related.run("MATCH ()-[r:DREAMT_BY]->() DELETE r")
    removed = await paid(related)
    await related.run("MATCH (b:Entity {name: 'Ada'}) SET b.observations = ['another']")
    own = await paid(related)

    assert [text.partition(":")[0] for text in added] == ["Babbage", "Engine"]
    assert [text.partition(":")[0] for text in removed] == ["Babbage", "Engine"]
    assert [text.partition(":")[0] for text in own] == ["Ada"]


async def test_m117_a_hub_is_read_up_to_a_thousand_and_the_same_every_time(
    related: DrainUnderTest,
) -> None:
    await related.run(
        """CREATE (hub:Entity {name: 'Hub', version: 1})
        WITH hub UNWIND range(1, 5000) AS n CREATE (hub)-[:HAS]->(:Part {name: 'part ' + n})"""
    )

    [text] = await paid(related)

    assert len(text.splitlines()) == 11
    assert await paid(related) == []
    assert await hits_of_reading(related, "Hub") < 9_000


async def test_m115_thousands_of_closed_relations_hide_no_open_one(
    related: DrainUnderTest,
) -> None:
    """Neo4j gives those of one type together, the newest first."""
    await related.run(ADA)
    await related.run(
        """MATCH (ada:Entity {name: 'Ada'})
        UNWIND range(1, 3000) AS n
        CREATE (ada)-[:KNOWS {validTo: 1}]->(:Part {name: 'part ' + n})"""
    )

    [text] = [text for text in await paid(related) if text.startswith("Ada:")]
    assert text == "Ada: wrote notes\nknows Babbage\nwrites about Engine"
    assert await hits_of_reading(related, "Ada") < 10_000


async def hits_of_reading(queue: DrainUnderTest, key: str) -> int:
    statement: LiteralString = "PROFILE " + for_shape(READ_ENTITIES, queue.shape).replace(
        "CYPHER replan=skip", ""
    )
    async with queue.driver.session(database=queue.database) as session:
        result = await session.run(statement, keys=[key], longest=10**9, most=10**6)
        plan = (await result.consume()).profile
    return _hits(plan or {})


def _hits(plan: dict[str, Any]) -> int:
    return plan.get("dbHits", 0) + sum(map(_hits, plan.get("children", [])))


@pytest.fixture
async def watched(related: DrainUnderTest) -> AsyncIterator[DrainUnderTest]:
    """Entities with neighbours and vectors, in a database that has the trigger."""
    triggers = related.queue.triggers(MODEL)
    assert (await triggers.install()).is_active
    await related.run(ADA)
    await related.drained()
    yield related
    assert await triggers.drop()


async def marked(queue: DrainUnderTest) -> list[str]:
    rows = await queue.run("MATCH (j:EmbedPending) RETURN j.entity_uid AS uid ORDER BY uid")
    return [row["uid"] for row in rows]


@pytest.mark.parametrize(
    ("edit", "ends"),
    [
        (
            "MATCH (a:Entity {name: 'Ada'}), (e:Entity {name: 'Engine'}) CREATE (e)-[:X]->(a)",
            ["Ada", "Engine"],
        ),
        ("MATCH ()-[r:DESIGNS]->() DELETE r", ["Babbage", "Engine"]),
        ("MATCH ()-[r:RELATES_TO]->() SET r.relationType = 'likes'", ["Ada", "Engine"]),
        ("MATCH ()-[r:RELATES_TO]->() SET r.validTo = 1", ["Ada", "Engine"]),
        ("MATCH ()-[r:RELATES_TO]->() REMOVE r.relationType", ["Ada", "Engine"]),
        ("MATCH ()-[r:RELATES_TO]->() SET r.colour = 'red'", []),
        ("MATCH (a:Entity {name: 'Ada'}) DETACH DELETE a", ["Babbage", "Engine"]),
        ("MATCH (a:Entity) DETACH DELETE a", []),
        ("MATCH (a:Entity {name: 'Ada'}) CREATE (a)-[:READS]->(:Book {name: 'B'})", ["Ada"]),
        ("MATCH (a:Entity {name: 'Babbage'}) SET a.name = 'Charles'", ["Charles"]),
    ],
)
async def test_m116_the_trigger_marks_both_ends_at_once(
    watched: DrainUnderTest, edit: LiteralString, ends: list[str]
) -> None:
    await watched.run(edit)

    assert await marked(watched) == ends


async def test_m117_dependants_of_a_renamed_node_wait_and_ten_edits_cost_one_embedding(
    queue: DrainUnderTest,
) -> None:
    related = replace(queue, shape=SHAPE, relations_delay=MINUTES).on_a_clock()
    await related.run(ADA)
    await paid(related)
    for number in range(10):
        await related.run(
            "MATCH (e:Entity {version: 1}) WHERE NOT e.name IN ['Ada', 'Babbage'] SET e.name = $n",
            n=f"E{number}",
        )
        await scanned(related)
    found = await related.queue.reconciler(MODEL).page(dry_run=True)
    soon = await paid(related)

    assert related.store_clock is not None
    related.store_clock.advance(MINUTES)
    late = await paid(related)

    assert [text.partition(":")[0] for text in soon] == ["E9"]
    assert [text.partition(":")[0] for text in late] == ["Ada", "Babbage"]
    assert (found.coverage[Coverage.STALE], found.neighbours_changed) == (3, 2)
    after = await related.queue.reconciler(MODEL).page(dry_run=True)
    assert (after.coverage[Coverage.STALE], after.neighbours_changed) == (0, 0)


async def test_m117_a_change_of_the_entity_itself_does_not_wait(queue: DrainUnderTest) -> None:
    related = replace(queue, shape=SHAPE, relations_delay=MINUTES).on_a_clock()
    await related.run(ADA)
    await paid(related)
    await related.run("MATCH (e:Entity {name: 'Engine'}) SET e.name = 'Machine'")
    await paid(related)

    await related.run("MATCH (e:Entity {name: 'Ada'}) SET e.observations = ['hurry']")

    assert await paid(related) == ["Ada: hurry\nknows Babbage\nwrites about Machine"]
    assert (await related.job("Ada")).priority == 0


async def test_m117_the_trigger_brings_forward_what_was_put_off(watched: DrainUnderTest) -> None:
    slow = replace(watched, relations_delay=MINUTES)
    await slow.run("MATCH (e:Entity {name: 'Engine'}) SET e.name = 'Machine'")
    assert [text.partition(":")[0] for text in await paid(slow)] == ["Machine"]

    await slow.run("MATCH (e:Entity {name: 'Ada'}) SET e.observations = ['hurry']")

    await slow.drained()
    assert await marked(slow) == ["Babbage"]
    assert_consistent(await slow.nodes())


async def test_m120_pieces_of_a_text_are_no_neighbours_and_mark_nobody(
    queue: DrainUnderTest,
) -> None:
    # The pieces have names, too, as far as these settings know.
    shape = replace(SHAPE, pieces=Pieces(), relations=Relations(names=("name", "uid")))
    queue = replace(queue, shape=shape)
    await queue.install()
    triggers = queue.queue.triggers(MODEL)
    assert (await triggers.install()).is_active
    await queue.run(ADA)
    first = await paid(queue)

    again = await marked(queue), await paid(queue)

    assert await triggers.drop()
    assert len(first) == 3
    assert again == ([], [])
    assert [(await queue.job(uid)).fence for uid in ("Ada", "Babbage", "Engine")] == [1, 1, 1]


def settings_of(queue: DrainUnderTest) -> Settings:
    given: dict[str, Any] = {
        "EMBED_JOB_RETENTION_DAYS": 14,
        "EMBEDDING_PROVIDER": "openai",
        "EMBEDDING_MODEL": MODEL,
        "EMBEDDING_DIMENSIONS": DIMENSIONS,
        "OPENAI_API_KEY": "k",
        "EMBED_ENTITY_TEMPLATE": queue.shape.template,
        "EMBEDDING_PRICE_USD_PER_MILLION": 1_000.0,
    }
    return Settings(_env_file=None, **given)  # pyright: ignore[reportCallIssue]


async def test_m118_explain_shows_the_text_its_dependants_and_the_price_of_a_change(
    related: DrainUnderTest,
) -> None:
    await related.run(ADA)
    texts = await paid(related)

    found = await explain(related.queue, settings_of(related), "Ada")

    assert (found.text, found.is_found) == (texts[0], True)
    assert found.why == "its vector is that of this text"
    assert (found.dependants, sorted(found.named_by)) == (2, ["Babbage", "Engine"])
    assert found.change is not None
    counts = [prepare(text, max_tokens=8_191).tokens for text in texts]
    assert (found.tokens, found.change.tokens) == (counts[0], sum(counts))
    assert found.change.usd == pytest.approx(sum(counts) / 1_000)
    assert found.alone is not None
    assert (found.pieces, found.alone.tokens) == (1, counts[0])
    [job] = found.jobs
    assert job.status is JobStatus.COMPLETED
    made, begun = history_lines(job)
    assert "asked for" in made
    assert f"{counts[0]} tokens" in begun


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        ("MATCH (e {name: 'Engine'}) SET e.name = 'Machine'", "its neighbours have changed since"),
        ("MATCH (e {name: 'Ada'}) SET e.observations = ['x']", "its text has changed since"),
        ("MATCH (e {name: 'Ada'}) SET e.version = 2", "its vector is of version 1; it has no job"),
        ("MATCH (e {name: 'Ada'}) REMOVE e.embedding", "it has no vector yet; its job was done"),
        ("MATCH (e {name: 'Ada'}) SET e.embedding_model = 'old'", "its vector is of old, which"),
        ("MATCH (e {name: 'Ada'}) SET e.validTo = 1", "there is no current Entity node whose name"),
        ("CREATE (:Entity {name: 'Ada'})", "several current entities"),
        ("DROP INDEX entity_embeddings", "is that of this text, but there is no vector index"),
    ],
)
async def test_m118_explain_says_why_an_entity_is_not_found(
    related: DrainUnderTest, edit: LiteralString, why: str
) -> None:
    await related.run(ADA)
    await paid(related)

    await related.run(edit)

    found = await explain(related.queue, settings_of(related), "Ada")
    assert why in found.why
    assert not found.is_found


@pytest.mark.parametrize(
    ("state", "words"),
    [("POPULATING", "is being filled"), ("FAILED", "has failed"), ("ONLINE", "100 dimensions")],
)
def test_m118_explain_says_why_an_index_finds_nothing(state: str, words: str) -> None:
    index = VectorIndex("i", 100, "cosine", state)

    assert words in str(index.why_nothing(dimensions=4 if state == "ONLINE" else 100))
    assert VectorIndex("i", 100, "cosine", "ONLINE").why_nothing(dimensions=100) is None


async def test_m118_explain_promises_no_vector_in_place_of_one_that_is_to_stay(
    related: DrainUnderTest,
) -> None:
    kept = replace(related, keeps_foreign=True)
    await kept.run(ADA)
    await kept.run("MATCH (e {name: 'Ada'}) SET e.embedding = [1.0, 0.0, 0.0, 0.0]")

    found = await explain(kept.queue, settings_of(kept), "Ada")

    assert found.why == (
        "its vector was written by another program and stays, "
        "because EMBED_FOREIGN_VECTORS is 'keep'"
    )


async def test_m118_explain_names_only_the_texts_that_name_an_entity(
    queue: DrainUnderTest,
) -> None:
    related = replace(queue, shape=replace(SHAPE, relations=Relations(most=1)))
    await related.run(ADA)
    texts = await paid(related)

    found = await explain(related.queue, settings_of(related), "Ada")

    # In the text of Engine there is room for one neighbour, and Babbage comes first there.
    assert [text.split(":")[0] for text in texts if "Ada" in text] == ["Ada", "Babbage"]
    assert (found.dependants, found.named_by) == (1, ("Babbage",))


async def test_m118_explain_shows_what_is_sent_before_a_text_and_what_is_left_out(
    queue: DrainUnderTest,
) -> None:
    prefixed = replace(queue, shape=replace(SHAPE, prefix="search_document: "))
    await prefixed.run(ADA)
    whole = await explain(prefixed.queue, settings_of(prefixed), "Ada")
    await prefixed.run("MATCH (e {name: 'Ada'}) SET e.observations = $text", text="a " * 2**20)

    cut = await explain(prefixed.queue, settings_of(prefixed), "Ada")

    assert (whole.prefix, whole.is_cut) == ("search_document: ", False)
    assert cut.is_cut
    rows = dict(_rows(cut))
    assert rows["Sent before it"] == "search_document: "
    assert "1,048,576 characters" in rows["Left out"]


async def test_m118_explain_says_that_pieces_may_cost_less(queue: DrainUnderTest) -> None:
    in_nodes = replace(queue, shape=replace(SHAPE, pieces=Pieces()))
    await in_nodes.install()
    await in_nodes.run(ADA)
    settings = settings_of(in_nodes).model_copy(update={"pieces": "nodes"})

    rows = dict(_rows(await explain(in_nodes.queue, settings, "Ada")))

    assert rows["A new text"].startswith("up to ")
    assert "up to " in rows["A new name"]


async def test_m118_explain_says_what_keeps_a_job(related: DrainUnderTest) -> None:
    await related.run(ADA)
    await scanned(related)

    async def why() -> str:
        return (await explain(related.queue, settings_of(related), "Ada")).why

    await related.switch.pause(by="somebody")
    paused = await why()
    await related.switch.resume()
    await related.switch.open_breaker("the key is refused")
    broken = await why()
    await related.switch.resume(close_breaker=True)
    waiting = await why()
    await related.jobs.lease(owner="batch/7", model=MODEL, limit=3, duration=MINUTES)
    sent = await why()

    assert re.search(r"; its job waits, as all do: the queue is paused since .* by some", paused)
    assert broken.endswith("; its job waits, as all do: breaker open: the key is refused")
    assert waiting.endswith("; its job waits for a drain")
    assert sent.endswith("; its job is in batch/7, which the provider may take a day for")


async def test_m118_settings_that_are_not_those_of_the_queue_promise_no_next_scan(
    related: DrainUnderTest,
) -> None:
    own, other = (Identity("openai", MODEL, DIMENSIONS, recipe) for recipe in ("a", "b"))
    await Neo4jIdentity(related.queue.database, replace(related.config, identity=own)).change()
    await related.run(ADA)
    config = replace(related.config, identity=other)

    queue = open_queue(related.driver, database=related.database, config=config)
    found = await explain(queue, settings_of(related), "Ada")

    assert found.coverage is Coverage.MISSING
    assert found.why.startswith("queue 'default' holds vectors of openai")


async def test_m118_what_is_bounded_is_said_to_be(
    related: DrainUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await related.run(ADA)
    whole = await explain(related.queue, settings_of(related), "Engine")

    monkeypatch.setattr("embed_pipeline.store.explain.DEPENDANTS", 1)
    first = await explain(related.queue, settings_of(related), "Engine")

    assert (whole.dependants, whole.has_more) == (2, False)
    assert (first.dependants, first.has_more) == (1, True)


EDITS: Final[tuple[LiteralString, ...]] = (
    "MATCH (e:Entity {name: $one}) SET e.observations = [$text]",
    "MATCH (e:Entity {name: $one}) SET e.name = $text",
    "MATCH (e:Entity {name: $one}) DETACH DELETE e",
    "MATCH (a:Entity {name: $one}), (b:Entity {name: $two}) MERGE (a)-[:KNOWS {at: $text}]->(b)",
    "MATCH (:Entity {name: $one})-[r]-() WITH r LIMIT 1 DELETE r",
    "MATCH (:Entity {name: $one})-[r]-() WITH r LIMIT 1 SET r.validTo = 1",
    "MATCH (:Entity {name: $one})-[r]-() WITH r LIMIT 1 SET r.relationType = $text",
)


@pytest.mark.parametrize(
    ("entities", "edits"), [(60, 40), pytest.param(20_000, 10_000, marks=pytest.mark.proof)]
)
async def test_m116_after_random_edits_no_vector_is_stale_and_only_changed_texts_were_paid_for(
    related: DrainUnderTest, entities: int, edits: int
) -> None:
    related.provider.answer_with = lambda body: vectors(body, of_text=of_text)
    dice = random.Random(7)
    names = [f"e{number}" for number in range(entities)]
    await related.run(
        """UNWIND $names AS name CREATE (:Entity {name: name, observations: [name], version: 1})""",
        names=names,
    )
    hubs = names[:3]
    pairs = [
        [dice.choice(names), dice.choice(hubs if n % 3 else names)] for n in range(5 * entities)
    ]
    await related.run(
        """UNWIND $pairs AS pair
        MATCH (a:Entity {name: pair[0]}), (b:Entity {name: pair[1]}) CREATE (a)-[:KNOWS]->(b)""",
        pairs=pairs,
    )
    await paid(related)
    before = await texts_of(related)

    for number in range(edits):
        one, two = dice.choice(names), dice.choice(names)
        await related.run(dice.choice(EDITS), one=one, two=two, text=f"text {number}")
    asked = await paid(related)

    after = await texts_of(related)
    assert asked == sorted(set(after.values()) - set(before.values()))
    assert await paid(related) == []
    rows = await related.run("MATCH (e:Entity) RETURN e.name AS name, e.embedding AS vector")
    assert {row["name"]: row["vector"] for row in rows} == {
        name: of_text(text) for name, text in after.items()
    }
    report = Scan.begin(related.queue.reconciler(MODEL))
    await report.go_on(dry_run=True)
    assert report.report.counts[Coverage.CURRENT] == len(after)


async def texts_of(queue: DrainUnderTest) -> dict[str, str]:
    """Every text as it is rendered now."""
    rows = await queue.run("MATCH (e:Entity) RETURN e.name AS name")
    names, render = [row["name"] for row in rows], render_for(queue.shape)
    async with queue.driver.session(database=queue.database) as session:
        found = await session.execute_read(
            lambda tx: read_entities(tx, queue.config, names, longest=ANY_LENGTH)
        )
    return {uid: render(entity.text or {}) for uid, entity in found.items()}
