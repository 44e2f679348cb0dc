"""The statements of the scan; written for a shape by ``for_shape``."""

from typing import Final, LiteralString

SCAN_ENTITIES: Final[LiteralString] = """
CALL () {
  MATCH (entity:%label%)
  WHERE entity.%key% > $after AND entity.%valid_to% IS NULL
  RETURN entity ORDER BY entity.%key% LIMIT $limit
}
WITH entity, entity.%key% AS uid, coalesce(entity.%version%, 1) AS version
OPTIONAL MATCH (job:EmbedJob {entity_uid: uid, model: $model, version: version})
WITH entity, uid, version, entity.%vector% AS vector, job
RETURN uid, version, vector IS NOT NULL AS has_vector, size(vector) AS dimensions,
  entity.%vector_model% AS vector_model, entity.%vector_hash% AS vector_hash,
  entity.%vector_version% AS vector_version,
  entity {%text%} AS text, entity.%type% AS type,
  job {.status, .truncated} AS job
"""
"""A page of current entities in order of their keys, each with its job; walks the index once."""

END_OF_PAGE: Final[LiteralString] = "AND entity.%key% <= $until"
"""To be taken out for the last page, which has no end.

Written as ``$until IS NULL OR …`` it is no bound of the seek: each page would read all entities
behind it, and a scan of a million a thousand million.
"""

COUNT_ORPHANS: Final[LiteralString] = f"""
MATCH (entity:%label%)
WHERE entity.%key% > $after {END_OF_PAGE}
  AND entity.%valid_to% IS NOT NULL AND entity.%vector% IS NOT NULL
RETURN count(entity) AS orphans
"""
"""Vectors of the same page on entities that are history."""

CLEAR_ORPHANS: Final[LiteralString] = f"""
MATCH (entity:%label%)
WHERE entity.%key% > $after {END_OF_PAGE}
  AND entity.%valid_to% IS NOT NULL AND entity.%vector% IS NOT NULL
SET entity._embed_lock = $token
WITH entity WHERE entity.%valid_to% IS NOT NULL
REMOVE entity.%vector%, entity._embed_lock, entity.%vector_model%, entity.%vector_hash%,
  entity.%vector_version%, entity.%vector_job%
RETURN count(entity) AS orphans
"""
"""Take those vectors out of the index."""

SAVE_COVERAGE: Final[LiteralString] = """
MERGE (coverage:EmbedCoverage {name: $queue, model: $model})
SET coverage._lock = $token
WITH coverage, coalesce($now, datetime.realtime().epochMillis) AS now
SET coverage.at = now, coverage.report = $report,
    coverage.entities = $entities, coverage.percent = $percent
RETURN now
"""
"""Keep the sum of the last complete scan; one node per queue and model."""

READ_COVERAGE: Final[LiteralString] = """
MATCH (coverage:EmbedCoverage {name: $queue, model: $model})
RETURN coverage.report AS report, coverage.at AS at
"""
