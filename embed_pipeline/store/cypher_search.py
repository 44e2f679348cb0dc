"""The statements of the search; written for a shape by ``for_shape``."""

from typing import Final, LiteralString

SEARCH: Final[LiteralString] = """
CALL db.index.vector.queryNodes($index, $candidates, $vector) YIELD node, score
WHERE node.%valid_to% IS NULL AND node.%vector_model% = $model
RETURN toString(node.%key%) AS uid, toString(node.%type%) AS type, score
ORDER BY score DESC, uid LIMIT $limit
"""
"""The nearest current entities.

The index knows neither outdated versions nor models, and two models of the same length share it:
their vectors must not be compared. So it is asked for more candidates than are wanted.
"""

EMBEDDED_BY_MODEL: Final[LiteralString] = """
MATCH (entity:%label%)
WHERE entity.%vector_hash% IS NOT NULL AND entity.%valid_to% IS NULL
RETURN entity.%vector_model% AS model, count(entity) AS entities ORDER BY model
"""
"""Which models have embedded how much; walks the index of the hashes."""
