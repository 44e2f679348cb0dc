"""The statements that sample edges and vectors."""

from typing import Final, LiteralString

COUNT_RELATIONSHIPS: Final[LiteralString] = "MATCH ()-[edge]->() RETURN count(edge) AS edges"
"""From the count store: costs nothing."""

SAMPLE_EDGES: Final[LiteralString] = """
MATCH (start:%label%)-[edge]->(end:%label%)
WHERE rand() < $share AND start <> end
  AND NOT type(edge) IN $left_out AND NOT coalesce(edge.relationType, '') IN $left_out
  AND start.%valid_to% IS NULL AND end.%valid_to% IS NULL
  AND ($model IS NULL OR start.%vector_model% = $model AND end.%vector_model% = $model)
WITH start, end, edge ORDER BY rand() LIMIT $pairs
RETURN elementId(start) AS start, elementId(end) AS end,
  toString(coalesce(edge.relationType, type(edge))) AS type
"""
"""Some of the edges between entities that the model has embedded, or, without one, between any;
reads no vector."""

JOINED: Final[LiteralString] = """
UNWIND $pairs AS pair
MATCH (start) WHERE elementId(start) = pair[0]
MATCH (end) WHERE elementId(end) = pair[1]
WITH pair WHERE EXISTS { (start)--(end) }
RETURN pair
"""
"""Those pairs that an edge joins after all."""

READ_VECTORS: Final[LiteralString] = """
MATCH (entity) WHERE elementId(entity) IN $ids AND entity.%vector% IS NOT NULL
WITH entity, entity {%text%} AS text
WITH entity, text, %size% AS size
RETURN elementId(entity) AS id, entity.%vector% AS vector, entity.%vector_hash% AS hash,
  %readable% AS text, %named% AS name
"""

READ_TEXTS: Final[LiteralString] = """
MATCH (entity) WHERE elementId(entity) IN $ids AND entity.%key% IS NOT NULL
WITH entity, entity {%text%} AS text
WITH entity, text, %size% AS size
RETURN elementId(entity) AS id, entity.%key% AS key, %readable% AS text
"""

PROBES: Final[LiteralString] = """
MATCH (entity:%label%)
WHERE entity.%key% > '' AND entity.%valid_to% IS NULL AND entity.%vector_model% = $model
WITH entity ORDER BY entity.%key% LIMIT $most
RETURN elementId(entity) AS id
"""
"""The entities whose texts are embedded again: the same ones each time, as long as they live."""

SAVE_QUALITY: Final[LiteralString] = """
MERGE (coverage:EmbedCoverage {name: $queue, model: $model})
SET coverage._lock = $token
WITH coverage, coalesce($now, datetime.realtime().epochMillis) AS now
SET coverage.quality_before = CASE WHEN coverage.quality_by = $token
      THEN coverage.quality_before
      ELSE (coalesce(coverage.quality_before, [])
        + [value IN [coverage.quality_auc] WHERE value IS NOT NULL])[-$most..]
    END
SET coverage.quality = $quality, coverage.quality_auc = $auc, coverage.quality_at = now,
    coverage.quality_by = $token
"""
"""Keep a reading, and the values of those before it; a repetition adds nothing."""

READ_QUALITY: Final[LiteralString] = """
MATCH (coverage:EmbedCoverage {name: $queue, model: $model}) WHERE coverage.quality IS NOT NULL
RETURN coverage.quality AS quality, coverage.quality_at AS at,
  coalesce(coverage.quality_before, []) AS earlier
"""
