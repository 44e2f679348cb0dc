"""Labels and properties of any name: quoted, so that a name is a name and nothing else."""

import os
from collections.abc import AsyncIterator, Iterator
from typing import Final, LiteralString

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from neo4j import Driver, GraphDatabase
from neo4j.exceptions import CypherSyntaxError

from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.entity import EntityShape, is_name
from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.domain.results import Completion, EntityFate
from embed_pipeline.domain.vector import numbers_of
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.naming import for_queue, for_shape, quoted
from embed_pipeline.store.sample import count_entities, load_graph
from embed_pipeline.store.search import search_entities
from tests.conftest import TestServer
from tests.hostile.bad_input.hostile import ODD_NAMES, REFUSED_NAMES
from tests.support.queue_harness import MODEL, VECTOR, Neo4jUnderTest

ACME: Final = "acme"
EXAMPLES: Final = int(os.environ.get("EMBED_PIPELINE_EXAMPLES", "10"))
ODD: Final = EntityShape(
    label="Mein `EmbedJob`",
    key="título",
    version="Fassung-Nr. %label%",
    valid_to="bis wann?",
    vector="вектор",
    type="型",
    observations="first name",
)
STATEMENT: Final[LiteralString] = """
CREATE (job:EmbedJob) CREATE (n:%label% {%key%: 1, %vector_hash%: 2})
RETURN labels(job) AS job, labels(n) AS labels, n {%text%, .%vector_hash%} AS properties
"""

PIECES: Final = st.sampled_from(
    [
        *("`", "``", "%key%", "%label%", "EmbedJob", "//", "/*", "*/", "$x", "{", "}", "'", '"'),
        *(" ", ";", ") DETACH DELETE n", "é", "名", "Я", "\u200c", "u0060", "x"),
    ]
)
NAMES: Final = st.one_of(
    st.lists(PIECES, min_size=1, max_size=8).map("".join),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
).filter(is_name)


@pytest.fixture(scope="module")
def driver(neo4j_server: TestServer) -> Iterator[Driver]:
    auth = (neo4j_server.username, neo4j_server.password)
    with GraphDatabase.driver(neo4j_server.uri, auth=auth) as opened:
        yield opened


def assert_nothing_but_the_names(driver: Driver, label: str, key: str) -> None:
    """Run a statement with the names in it, and take it back."""
    shape = EntityShape(label=label, key=key)
    with driver.session() as session, session.begin_transaction() as tx:
        result = tx.run(for_queue(for_shape(STATEMENT, shape), ACME))
        record, counters = result.single(strict=True), result.consume().counters
        tx.rollback()
    assert (record["job"], record["labels"]) == (["EmbedJob_acme"], [label])
    wanted = dict.fromkeys(shape.text) | {key: 1, shape.vector_hash: 2}
    assert record["properties"] == wanted
    assert (counters.nodes_created, counters.nodes_deleted) == (2, 0)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_t1_a_name_that_looks_like_a_statement_is_a_name(driver: Driver, name: str) -> None:
    assert_nothing_but_the_names(driver, name, f"{name[:64]} key")


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
@given(label=NAMES, key=NAMES)
def test_t1_no_name_gets_out_of_its_quotes(driver: Driver, label: str, key: str) -> None:
    assert_nothing_but_the_names(driver, label, f"{key[:100]}.")


@pytest.mark.parametrize("name", REFUSED_NAMES)
def test_t1_what_cannot_be_quoted_gets_into_no_shape(name: str) -> None:
    with pytest.raises(ConfigurationError):
        EntityShape(label=name)
    with pytest.raises(ConfigurationError):
        EntityShape(template=f"{{{name}}}")


def test_t1_a_backslash_is_refused_because_neo4j_decodes_escapes_inside_quotes(
    driver: Driver,
) -> None:
    with pytest.raises(CypherSyntaxError), driver.session() as session:
        session.run(r"RETURN {`a\u0060b`: 1}").consume()
    with pytest.raises(ConfigurationError, match="backslash"):
        quoted(r"a\u0060b")


@pytest.fixture
async def odd(queue: Neo4jUnderTest) -> AsyncIterator[Neo4jUnderTest]:
    """A second queue over a graph with names of its own."""
    config = QueueConfig(queue=ACME, shape=ODD, roll=lambda: 0.0)
    own = Neo4jUnderTest(queue.driver, queue.database, queue.clock, config)
    await drop_own_indexes(own)
    await own.install()
    yield own
    await own.run("MATCH (n) WHERE $label IN labels(n) DETACH DELETE n", label=ODD.label)
    await own.run("MATCH (s:EmbedSchema {name: 'embed_pipeline/acme'}) DELETE s")
    await drop_own_indexes(own)


async def drop_own_indexes(queue: Neo4jUnderTest) -> None:
    for name in ("entity_embeddings_acme", "embed_entity_key_acme", "embed_entity_hash_acme"):
        await queue.run("DROP INDEX $name IF EXISTS", name=name)


async def test_a_graph_with_odd_names_is_embedded_found_and_searched(odd: Neo4jUnderTest) -> None:
    await odd.run(
        "CREATE (n:$($label)) SET n = $properties",
        label=ODD.label,
        properties={"título": "Ada", "型": "person", "first name": ["x"], ODD.version: 4},
    )

    await odd.queue.reconciler(MODEL).page()
    [item] = (await odd.lease()).jobs
    [loaded] = await odd.jobs.load([item.lease])
    hash_ = odd.config.hash_of(loaded.properties)
    await odd.jobs.complete([Completion(item.lease, VECTOR, hash_)])
    await odd.run("CALL db.awaitIndexes(60)")
    hits = await search_entities(
        odd.queue.database, odd.config, vector=VECTOR, model=MODEL, limit=1
    )

    assert loaded.fate is EntityFate.CURRENT
    assert loaded.properties == {"título": "Ada", "型": "person", "first name": ["x"]}
    assert [(hit.uid, hit.type) for hit in hits or []] == [("Ada", "person")]
    assert await odd.jobs.find_vectors([hash_], model=MODEL, dimensions=4) == {hash_: VECTOR}
    assert (await odd.coverage())[Coverage.CURRENT] == 1
    [row] = await odd.run(
        "MATCH (n) WHERE $label IN labels(n) RETURN properties(n) AS node", label=ODD.label
    )
    node = row["node"]
    assert node["вектор"] == numbers_of(VECTOR)
    assert (node["вектор_version"], node["вектор_hash"]) == (4, hash_)


async def test_the_trigger_watches_odd_names(odd: Neo4jUnderTest) -> None:
    triggers = odd.queue.triggers(MODEL)
    assert (await triggers.install()).is_active

    await odd.run(
        "CREATE (n:$($label)) SET n = $properties", label=ODD.label, properties={"título": "Ada"}
    )

    assert await triggers.drop()
    [node] = await odd.nodes()
    assert (node["entity_uid"], node["version"]) == ("Ada", 1)


async def test_the_sample_goes_into_a_graph_with_odd_names(odd: Neo4jUnderTest) -> None:
    rows = [{"name": name, "entityType": "t", "observations": []} for name in ("a", "b")]
    relation = {"from": "a", "to": "b", "relationType": "knows"}

    created = await load_graph(
        odd.driver, database=odd.database, shape=ODD, entities=rows, relations=[relation]
    )

    assert created == 2
    assert await count_entities(odd.driver, database=odd.database, shape=ODD) == 2
