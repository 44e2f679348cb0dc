"""The statements that touch entities; written for a shape by ``for_shape``.

Plans are kept and indexes named for the reason given in ``cypher_worker``.
"""

from typing import Final, LiteralString

LOCK_ENTITIES: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $uids AS uid
MATCH (entity:%label% {%key%: uid}) USING INDEX entity:%label%(%key%)
WHERE entity.%valid_to% IS NULL
SET entity._embed_lock = $token
"""
"""Hold the current entities, sorted by key, before their jobs.

Entities first, because that is the order of a client that changes an entity and has its job made
by the trigger; the other way round the two would deadlock and the client's write could be the
victim.
"""

UNLOCK_ENTITIES: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $uids AS uid
MATCH (entity:%label% {%key%: uid}) USING INDEX entity:%label%(%key%)
REMOVE entity._embed_lock
"""
"""Leave no trace of ``LOCK_ENTITIES``; the lock itself lasts until the commit."""

READ_ENTITIES: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $uids AS uid
OPTIONAL MATCH (entity:%label% {%key%: uid}) USING INDEX entity:%label%(%key%)
WHERE entity.%valid_to% IS NULL
WITH uid, entity IS NOT NULL AS exists, coalesce(entity.%version%, 1) AS version,
  entity {%text%} AS text
RETURN collect([uid, exists, version, text]) AS entities
"""
"""What decides whether a vector still fits: version and text of the current entity."""

WRITE_VECTORS: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $rows AS row
MATCH (entity:%label% {%key%: row.uid}) USING INDEX entity:%label%(%key%)
WHERE entity.%valid_to% IS NULL
CALL db.create.setNodeVectorProperty(entity, $vector_property, row.vector)
SET entity.%vector_model% = row.model, entity.%vector_hash% = row.text_hash,
    entity.%vector_version% = row.version, entity.%vector_job% = row.id
"""
"""Store vectors; locks the entities, so rows are sorted by key.

Invariant: at most once per job, together with its completion, only for the current text. The
procedure stores 32-bit floats (6.7 kB instead of 13.2 for 1,536 dimensions) and refuses NaN; it is
the one way that works on 5.26 and on 2026.
"""

CLEAR_VECTORS: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $rows AS row
MATCH (entity:%label% {%key%: row.uid}) USING INDEX entity:%label%(%key%)
WHERE entity.%valid_to% IS NULL
REMOVE entity.%vector%
SET entity.%vector_model% = row.model, entity.%vector_hash% = row.text_hash,
    entity.%vector_version% = row.version, entity.%vector_job% = row.id
"""
"""For an entity without text: no vector, but the hash says that this is on purpose."""

FIND_VECTORS: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $hashes AS hash
CALL (hash) {
  MATCH (entity:%label% {%vector_hash%: hash}) USING INDEX entity:%label%(%vector_hash%)
  WHERE entity.%vector_model% = $model AND size(entity.%vector%) = $dimensions
  RETURN entity.%vector% AS vector LIMIT 1
}
RETURN hash, vector
"""
"""Vectors of texts that were embedded before, by the hash of the text."""
