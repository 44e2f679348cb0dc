"""Graphs as other programs write them, in their own Cypher, where they cannot be installed."""

import hashlib
import json
from pathlib import Path
from typing import Final

from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.vector import vector_of
from embed_pipeline.operations import wiring
from embed_pipeline.operations.findings import Mark
from embed_pipeline.settings import load_settings
from embed_pipeline.store.search import search_entities
from tests.clients.conftest import Deployment, documented, meaning
from tests.support.queue_harness import Neo4jUnderTest

NOW: Final = 1_794_925_475_184.0
"""JavaScript has no other numbers."""

MOVIES: Final = {
    "EMBED_ENTITY_LABEL": "Movie",
    "EMBED_ENTITY_KEY": "title",
    "EMBED_ENTITY_TEMPLATE": "{title}: {tagline}",
}


async def found_by(deployment: Deployment, question: str) -> list[str]:
    """What our own search finds."""
    settings = load_settings()
    async with wiring.opened_queue(settings) as queue:
        hits = await search_entities(
            queue.database,
            queue.config,
            vector=vector_of(meaning(question)),
            model=settings.model,
            limit=1,
        )
    return [hit.uid for hit in hits or []]


async def write_movies(graph: Neo4jUnderTest) -> None:
    """The example graph that every Neo4j user has seen: 38 movies, 133 people, 253 relations."""
    nodes = json.loads((Path(__file__).parent / "movies.json").read_text("utf-8"))
    await graph.run("UNWIND $rows AS row CREATE (m:Movie) SET m = row", rows=nodes["movies"])
    await graph.run("UNWIND $rows AS row CREATE (p:Person) SET p = row", rows=nodes["people"])
    await graph.run(
        """
        UNWIND $rows AS row
        MATCH (from:Person {name: row[0]}), (to:Movie|Person) WHERE row[2] IN [to.title, to.name]
        CREATE (from)-[r:$(row[1])]->(to) SET r = row[3]
        """,
        rows=nodes["relations"],
    )


async def test_the_movies_graph_is_embedded_and_found(deployment: Deployment) -> None:
    deployment.set(**MOVIES)
    await deployment.init()
    await write_movies(deployment.graph)

    first, report = await deployment.embed()
    second, _ = await deployment.embed()

    assert (first.report.entities, report.completed) == (38, 38)
    assert second.report.counts[Coverage.CURRENT] == 38
    assert await found_by(deployment, "honor and truth in a courthouse") == ["A Few Good Men"]
    assert await found_by(deployment, "welcome to the real world") == ["The Matrix"]


async def test_a_template_that_fits_only_some_of_the_movies_says_so(deployment: Deployment) -> None:
    deployment.set(**MOVIES | {"EMBED_ENTITY_TEMPLATE": "{tagline} {plot}"})
    await deployment.init()
    await write_movies(deployment.graph)

    scan, report = await deployment.embed()
    warned = [f.detail for f in await deployment.doctor() if f.mark is Mark.WARNING]

    # One movie has no tagline, and none a plot.
    assert (report.completed, scan.report.counts[Coverage.EMPTY_TEXT]) == (37, 1)
    assert any("plot" in detail for detail in warned), warned


CREATE_ENTITY: Final = """
CREATE (:Entity {id: randomUUID(), name: $name, entityType: 'person', observations: $observations,
  version: 1.0, createdAt: $now, updatedAt: $now, validFrom: $now})
"""
ADD_OBSERVATION: Final = """
MATCH (old:Entity {name: $name}) WHERE old.validTo IS NULL
SET old.validTo = $now
CREATE (:Entity {id: randomUUID(), name: old.name, entityType: old.entityType,
  observations: $observations, version: old.version + 1.0, createdAt: old.createdAt,
  updatedAt: $now, validFrom: $now})
"""
DELETE_ENTITY: Final = """
MATCH (e:Entity {name: $name}) WHERE e.validTo IS NULL SET e.validTo = $now
"""


async def test_m135_a_graph_of_memento_mcp_extended_is_embedded(deployment: Deployment) -> None:
    await deployment.init()
    graph = deployment.graph
    await graph.run(CREATE_ENTITY, name="Ada", observations='["wrote a program"]', now=NOW)
    await graph.run(CREATE_ENTITY, name="Grace", observations="[]", now=NOW)
    await deployment.embed()
    both = '["wrote a program","met Babbage"]'
    await graph.run(ADD_OBSERVATION, name="Ada", observations=both, now=NOW + 1)
    await graph.run(DELETE_ENTITY, name="Grace", now=NOW + 2)

    await deployment.embed()
    last, _ = await deployment.embed()

    assert (last.report.entities, last.report.counts[Coverage.CURRENT]) == (1, 1)
    old = await graph.run("MATCH (e:Entity) WHERE e.validTo IS NOT NULL RETURN e.embedding AS v")
    assert old == [{"v": None}, {"v": None}]
    assert await found_by(deployment, "Babbage") == ["Ada"]


BUILD_GRAPH: Final = """
CREATE (d:Document {fileName: 'a.pdf', status: 'Completed'})
WITH d UNWIND $chunks AS row
MERGE (c:Chunk {id: row.id})
SET c.text = row.text, c.position = row.position, c.length = size(row.text), c.fileName = 'a.pdf',
  c.content_offset = 0, c.embedding = $vector
MERGE (c)-[:PART_OF]->(d)
MERGE (e:__Entity__ {id: row.entity}) SET e:Person, e.description = row.description
MERGE (c)-[:HAS_ENTITY]->(e)
"""
OWN_INDEX: Final = """
CREATE VECTOR INDEX vector FOR (c:Chunk) ON (c.embedding)
OPTIONS {indexConfig: {`vector.dimensions`: 384, `vector.similarity_function`: 'cosine'}}
"""
DELETE_DOCUMENT: Final = """
MATCH (d:Document {fileName: 'a.pdf'})<-[:PART_OF]-(c:Chunk)
OPTIONAL MATCH (c)-[:HAS_ENTITY]->(e) DETACH DELETE c, d, e
"""
CHUNKS: Final = [
    {"text": "Ada wrote the first program", "entity": "Ada", "description": "a programmer"},
    {"text": "Paris has a tower of iron", "entity": "Eiffel", "description": "an engineer"},
]
OWN_VECTOR: Final = [0.5] * 384


async def build_graph(deployment: Deployment) -> None:
    """What the LLM Graph Builder leaves behind, with its index and its vectors."""
    rows = [
        {**chunk, "id": hashlib.sha1(chunk["text"].encode()).hexdigest(), "position": place}
        for place, chunk in enumerate(CHUNKS, 1)
    ]
    await deployment.graph.run(OWN_INDEX)
    await deployment.graph.run(BUILD_GRAPH, chunks=rows, vector=OWN_VECTOR)


async def test_chunks_of_the_llm_graph_builder_are_embedded_beside_its_own_vectors(
    deployment: Deployment,
) -> None:
    deployment.set(**documented("LLM Graph Builder, chunks"))
    await build_graph(deployment)

    index = await deployment.init()
    _, report = await deployment.embed()
    [found] = await found_by(deployment, "who wrote a program")

    assert (index, report.completed) == ("chunk_texts", 2)
    assert found == hashlib.sha1(CHUNKS[0]["text"].encode()).hexdigest()
    own = await deployment.graph.run("MATCH (c:Chunk) RETURN c.embedding AS vector")
    assert [row["vector"] for row in own] == [OWN_VECTOR, OWN_VECTOR]


async def test_entities_of_the_llm_graph_builder_are_embedded_and_their_deletion_followed(
    deployment: Deployment,
) -> None:
    deployment.set(**documented("LLM Graph Builder, entities"))
    await build_graph(deployment)
    await deployment.init()

    _, report = await deployment.embed()
    found = await found_by(deployment, "which engineer")
    await deployment.graph.run(DELETE_DOCUMENT)
    after, _ = await deployment.embed()

    assert (report.completed, found) == (2, ["Eiffel"])
    assert after.report.entities == 0
