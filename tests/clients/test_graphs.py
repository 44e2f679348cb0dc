"""Graphs as other programs write them, in their own Cypher, where they cannot be installed."""

from typing import Final

from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.vector import vector_of
from embed_pipeline.operations import wiring
from embed_pipeline.settings import load_settings
from embed_pipeline.store.search import search_entities
from tests.clients.conftest import Deployment, meaning

NOW: Final = 1_794_925_475_184.0
"""JavaScript has no other numbers."""

CREATE_MOVIES: Final = """
CREATE (matrix:Movie {title: 'The Matrix', released: 1999, tagline: 'Welcome to the Real World'}),
  (reloaded:Movie {title: 'The Matrix Reloaded', released: 2003, tagline: 'Free your mind'}),
  (few:Movie {title: 'A Few Good Men', released: 1992, tagline: "In the heart of the nation's \
capital, in a courthouse of the U.S. government, one man will stop at nothing to keep his honor, \
and one will stop at nothing to find the truth."}),
  (jerry:Movie {title: 'Jerry Maguire', tagline: 'The rest of his life begins now.'}),
  (gotta:Movie {title: "Something's Gotta Give", released: 2003}),
  (keanu:Person {name: 'Keanu Reeves', born: 1964}), (jack:Person {name: 'Jack Nicholson'}),
  (keanu)-[:ACTED_IN {roles: ['Neo']}]->(matrix), (keanu)-[:ACTED_IN {roles: ['Neo']}]->(reloaded),
  (jack)-[:ACTED_IN {roles: ['Col. Nathan Jessup']}]->(few), (jack)-[:ACTED_IN]->(gotta)
"""
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


async def test_the_movies_graph_is_embedded_and_found(deployment: Deployment) -> None:
    deployment.set(**MOVIES)
    await deployment.init()
    await deployment.graph.run(CREATE_MOVIES)

    first, report = await deployment.embed()
    second, _ = await deployment.embed()

    assert (first.report.entities, report.completed) == (5, 5)
    assert second.report.counts[Coverage.CURRENT] == 5
    assert await found_by(deployment, "honor and truth") == ["A Few Good Men"]


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
