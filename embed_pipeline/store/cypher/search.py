"""The statements of the search; written for a shape by ``for_shape``."""

from typing import Final, LiteralString

BEFORE: Final[LiteralString] = """
OPTIONAL MATCH (alias:EmbedAlias {name: $alias})
WITH coalesce(alias.epoch, 0) AS epoch WHERE epoch = $epoch
"""
"""The epoch is looked at in the statement that asks the index: after a flip the question must be
embedded by the other model."""

BY_PROCEDURE: Final[LiteralString] = """
CALL db.index.vector.queryNodes($index, $candidates, $vector) YIELD node, score
"""
BY_CLAUSE: Final[LiteralString] = """
MATCH (node) SEARCH node IN (VECTOR INDEX %index% FOR $vector %inside% LIMIT $candidates)
SCORE AS score
"""
"""For servers on which the procedure is deprecated; the name of the index cannot be a parameter.

``%inside%``: an index that was made ``WITH`` properties filters by them itself. We make
none: on Neo4j 2026.08.1 a value of 100,000 characters in such a property stopped the whole
database, and anybody may write to ``validTo`` or the type.
"""

HITS: Final[LiteralString] = """
WITH node, score WHERE %current_node% AND node.%vector_model% = $model
WITH node, score, node.%key% AS key ORDER BY score DESC, key LIMIT $limit
WITH key, score, node AS entity
WITH key, toStringOrNull(entity.%type%) AS type, score, entity {%text%} AS text
WITH key, type, score, text, %size% AS size
RETURN key, type, score, %readable% AS text ORDER BY score DESC, key
"""
"""The nearest current entities, with what their texts are made of; of long ones the beginning.

The index knows neither outdated versions nor models, and two models of the same length share it:
their vectors must not be compared. So it is asked for more candidates than are wanted.
"""

PIECE_HITS: Final[LiteralString] = """
WITH node, score WHERE node.model = $model
MATCH (node)-[:FROM_DOCUMENT]->(entity:%label%)
WHERE %current_entity%
WITH entity, entity.%key% AS key, node, score ORDER BY score DESC, node.index
WITH entity, key, collect(node.text)[0] AS passage, max(score) AS score
ORDER BY score DESC, key LIMIT $limit
WITH key, toStringOrNull(entity.%type%) AS type, score, passage, entity {%text%} AS text
WITH key, type, score, passage, text, %size% AS size
RETURN key, type, score, passage, %readable% AS text ORDER BY score DESC, key
"""
"""The same by their pieces: each entity once, with the piece that is nearest."""

EMBEDDED_BY_MODEL: Final[LiteralString] = """
MATCH (entity:%label%)
WHERE entity.%vector_hash% IS NOT NULL AND %current_entity%
  AND entity.%vector% IS NOT NULL
RETURN entity.%vector_model% AS model, count(entity) AS entities ORDER BY model
"""
"""Which models have embedded how much; walks the index of the hashes."""
