"""How a server is asked for the nearest entities, by its version and by what its index can."""

import pytest

from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.store.schema.state import VectorIndex
from embed_pipeline.store.search import nearest
from embed_pipeline.store.server_info import release_of

SHAPE = EntityShape()


def index(name: str = "entity_embeddings", *filters: str) -> VectorIndex:
    return VectorIndex(name, 4, "cosine", "ONLINE", filters)


@pytest.mark.parametrize("agent", ["Neo4j/5.26.30", "Neo4j/2026.04.0", "", "Memgraph/3"])
def test_servers_that_the_clause_was_not_tried_on_are_asked_by_the_procedure(agent: str) -> None:
    statement = nearest(index(), SHAPE, server=release_of(agent))

    assert "CALL db.index.vector.queryNodes($index, $candidates, $vector)" in statement
    assert "SEARCH" not in statement
    assert "CYPHER 25" not in statement


@pytest.mark.parametrize(
    "agent", ["Neo4j/2026.08.1", "Neo4j/2026.11.0-SNAPSHOT", "Neo4j/2027.01.0"]
)
def test_newer_servers_are_asked_by_the_clause(agent: str) -> None:
    statement = nearest(index(), SHAPE, server=release_of(agent))

    assert statement.startswith("CYPHER 25")
    assert "VECTOR INDEX `entity_embeddings` FOR $vector  LIMIT $candidates" in statement
    assert "queryNodes" not in statement


def test_what_the_index_can_filter_by_it_does() -> None:
    found = index("i", "validTo", "embedding_model", "entityType")

    statement = nearest(found, SHAPE, server=(2026, 8))

    inside = "WHERE node.`embedding_model` = $model AND node.`validTo` IS NULL LIMIT"
    assert f"FOR $vector {inside} $candidates" in statement


def test_no_name_of_an_index_gets_out_of_its_quotes() -> None:
    statement = nearest(index("a` %label% FOR $x"), SHAPE, server=(2026, 8))

    assert "VECTOR INDEX `a`` %label% FOR $x` FOR $vector" in statement
