"""The statements of the scan; written for a shape by ``for_shape``."""

from typing import Final, LiteralString

BEHIND_CURSOR: Final[LiteralString] = "entity.%key% > $after"
"""Where a page begins."""

SCAN_ENTITIES: Final[LiteralString] = (
    """
CALL () {
  MATCH (entity:%label%)
  WHERE """
    + BEHIND_CURSOR
    + """ AND %current_entity%
  RETURN entity ORDER BY entity.%key% LIMIT $limit
}
WITH entity, entity.%vector% AS vector
WITH entity, vector, %sample% AS sample
WITH collect([entity, {key: entity.%key%, version: entity.%version%,
  has_vector: vector IS NOT NULL,
  dimensions: CASE WHEN sample IS NOT NULL THEN size(vector) END, sample: sample,
  vector_model: entity.%vector_model%, vector_hash: entity.%vector_hash%,
  vector_version: entity.%vector_version%, vector_print: entity.%vector_print%,
  vector_at: entity.%vector_at%, vector_pieces: entity.%vector_pieces%,
  piece_count: %piece_count%}]) AS page
UNWIND page AS row
WITH row[0] AS entity, row[1] AS found
WITH entity, found, entity.%type% AS type, entity {%text%} AS text
WITH entity, found, type, text, %size% AS size
RETURN found, %readable% AS text, size,
  CASE WHEN size > $longest THEN elementId(entity) END AS unread,
  CASE WHEN type IS :: STRING THEN left(type, 100) WHEN type IS :: LIST<ANY> THEN '(list)'
    ELSE type END AS type
"""
)
"""A page of current entities in order of their keys; walks the index once.

``$after`` is a text or a number, and only keys of that kind are found: to Neo4j no text is greater
or less than a number. ``UNKEYED`` finds those that are neither.

A text of more than ``$longest`` characters is not sent: ``READ_TEXTS`` reads it.

All vectors are read before the first text. Within a statement, after a text of 10 MB, Neo4j 5.26
needs 50 ms for every array of numbers it reads: one such text made a page of 500 take 26 s instead
of 0.1.
"""

JOBS_OF_ENTITIES: Final[LiteralString] = """
UNWIND $keys AS key
MATCH (job:EmbedJob {entity_uid: key[0], model: $model, version: key[1]})
RETURN collect([key[0], key[1], job {.status, .fence, .forced_fence}]) AS jobs
"""
"""The jobs of the entities of a page, whose keys and versions were made those of jobs."""

READ_TIME: Final[LiteralString] = """
RETURN coalesce($now, datetime.realtime().epochMillis) AS now
"""

KEYS_IN_USE: Final[LiteralString] = """
UNWIND $keys AS key
MATCH (entity:%label% {%key%: key}) USING INDEX entity:%label%(%key%)
WHERE %current_entity%
RETURN key, count(entity) AS entities
"""
"""How many current entities have each key; reads neither vector nor text."""

UNKEYED: Final[LiteralString] = """
MATCH (entity:%label%)
WHERE entity.%valid_to% IS NULL
  AND NOT coalesce(entity.%key% > '', false) AND NOT coalesce(entity.%key% > $smallest, false)
WITH valueType(entity.%key%) AS kind, elementId(entity) AS id
RETURN kind, count(id) AS entities, collect(id)[0..$examples] AS ids
"""
"""The current entities that no page has: no index knows where they are, so it looks at all nodes.

Their conditions are those of the pages, negated; what is neither in one nor here does not exist.
"""

READ_TEXTS: Final[LiteralString] = """
MATCH (entity) WHERE elementId(entity) IN $ids
WITH entity, entity {%text%} AS text
WITH entity, text, %size% AS size
RETURN elementId(entity) AS id, %readable% AS text
"""
"""The texts that were too long for their page."""

NEXT_KEY: Final[LiteralString] = """
MATCH (entity:%label%)
WHERE entity.%key% > $after AND %current_entity%
RETURN entity.%key% AS key ORDER BY entity.%key% LIMIT 1
"""
"""The key of an entity whose text cannot be read; reads no text."""

END_OF_PAGE: Final[LiteralString] = "AND entity.%key% <= $until"
"""To be taken out for the last page, which has no end.

Written as ``$until IS NULL OR …`` it is no bound of the seek: each page would read all entities
behind it, and a scan of a million a thousand million.
"""

COUNT_ORPHANS: Final[LiteralString] = f"""
MATCH (entity:%label%)
WHERE entity.%key% > $after {END_OF_PAGE}
  AND %outdated_entity% AND entity.%vector% IS NOT NULL
RETURN count(entity) AS orphans
"""
"""Vectors of the same page on entities that are history."""

CLEAR_ORPHANS: Final[LiteralString] = f"""
MATCH (entity:%label%)
WHERE entity.%key% > $after {END_OF_PAGE}
  AND %outdated_entity% AND entity.%vector% IS NOT NULL
  AND ($foreign OR entity.%vector_hash% IS NOT NULL)
  AND NOT EXISTS {{
    MATCH (successor:%label% {{%key%: entity.%key%}})
    WHERE %current_successor%
      AND successor.%vector% IS NULL AND successor.%vector_hash% IS NULL
  }}
SET entity._embed_lock = $token
WITH entity WHERE %outdated_entity%
REMOVE entity.%vector%, entity._embed_lock, %mark%
RETURN count(entity) AS orphans
"""
"""Take those vectors out of the index, unless the successor still waits for its own."""

BEGIN_SCAN: Final[LiteralString] = """
MERGE (coverage:EmbedCoverage {name: $queue, model: $model})
SET coverage._lock = $token
WITH coverage, coalesce($now, datetime.realtime().epochMillis) AS now
SET coverage.begun_at = now, coverage.moved_at = coalesce(coverage.moved_at, now)
"""
"""Note that a scan begins; one that never gets anywhere is known by that."""

MOVE_SCAN: Final[LiteralString] = """
MATCH (coverage:EmbedCoverage {name: $queue, model: $model})
SET coverage._lock = $token
WITH coverage, coalesce($now, datetime.realtime().epochMillis) AS now
SET coverage.moved_at = now
"""
"""Note that a scan has got on."""

SAVE_COVERAGE: Final[LiteralString] = """
MERGE (coverage:EmbedCoverage {name: $queue, model: $model})
SET coverage._lock = $token
WITH coverage, coalesce($now, datetime.realtime().epochMillis) AS now
SET coverage.took_ms = now - coalesce(coverage.begun_at, now),
    coverage.at = now, coverage.moved_at = now, coverage.report = $report,
    coverage.entities = $entities, coverage.percent = $percent
RETURN now
"""
"""Keep the sum of the last complete scan; one node per queue and model."""

READ_COVERAGE: Final[LiteralString] = """
MATCH (coverage:EmbedCoverage {name: $queue, model: $model})
RETURN coverage.report AS report, coverage.at AS at, coverage.moved_at AS moved_at,
  coalesce(coverage.took_ms, 0) AS took_ms
"""
