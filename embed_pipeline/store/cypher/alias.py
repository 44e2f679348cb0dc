"""The statements about the alias, which names the live side, and about what a finished side leaves.

Flips lock the alias first and read it after that, as everything about the queue does.
"""

from typing import Final, LiteralString

ALIAS_CONSTRAINT: Final[LiteralString] = """
CREATE CONSTRAINT embed_alias_name IF NOT EXISTS FOR (n:EmbedAlias) REQUIRE n.name IS UNIQUE
"""

READ_ALIAS: Final[LiteralString] = """
MATCH (alias:EmbedAlias)
WHERE $queue IN [alias.name, alias.queue, alias.other_queue]
RETURN alias {.*} AS alias ORDER BY alias.name = $queue DESC, alias.name LIMIT 1
"""
"""By its name, or by the queue of one of its sides. There are as many as deployments."""

LOCK_ALIAS: Final[LiteralString] = """
MERGE (alias:EmbedAlias {name: $name}) SET alias._lock = $token
"""

READ_LOCKED_ALIAS: Final[LiteralString] = """
MATCH (alias:EmbedAlias {name: $name})
RETURN alias {.*} AS alias, coalesce($now, datetime.realtime().epochMillis) AS now
"""

WRITE_ALIAS: Final[LiteralString] = """
MATCH (alias:EmbedAlias {name: $name})
SET alias = $properties
"""

INDEX_USE: Final[LiteralString] = """
SHOW INDEXES YIELD name, type, labelsOrTypes, lastRead
WHERE lastRead IS NOT NULL
  AND (name = $index OR type = 'VECTOR' AND $pieces IN labelsOrTypes)
RETURN name, lastRead.epochMillis AS at ORDER BY at DESC LIMIT 1
"""
"""When an index, or that of the pieces, was last searched; the server counts some seconds
behind."""

READ_NOW: Final[LiteralString] = """
RETURN coalesce($now, datetime.realtime().epochMillis) AS now
"""

DELETE_JOBS: Final[LiteralString] = """
MATCH (job:EmbedJob)
CALL (job) { DETACH DELETE job } IN TRANSACTIONS OF 1000 ROWS
"""
"""All jobs of a queue whose side is removed. A worker that still holds one is refused then."""

DELETE_BATCHES: Final[LiteralString] = "MATCH (batch:EmbedBatch) DELETE batch"
"""What is known of its batches, which are no longer polled."""

REMOVE_VECTORS: Final[LiteralString] = """
MATCH (entity:%label%)
WHERE entity.%vector_hash% IS NOT NULL
  OR ($foreign AND (entity.%vector% IS NOT NULL OR entity.%vector_model% IS NOT NULL))
CALL (entity) {
  REMOVE entity.%vector%, %mark%
} IN TRANSACTIONS OF 1000 ROWS
RETURN count(entity) AS entities
"""
"""The vectors of a side and their marks; 20,000 took 7 to 9 s. After the index, which would have to
follow each of them. ``$foreign``: those that others wrote to the same property, too."""

RETIRE_QUEUE: Final[LiteralString] = """
MATCH (queue:EmbedQueue {name: $queue})
SET queue.identity_provider = 'none', queue.identity_model = 'none', queue.identity_dimensions = 0,
  queue.identity_recipe = $reason
"""
"""Set an identity that no settings have: refuses leases, scans and enqueueing from here on."""

FORGET_QUEUE: Final[LiteralString] = """
MATCH (node:EmbedQueue|EmbedCounters {name: $queue}) DETACH DELETE node
WITH count(*) AS nodes
MATCH (schema:EmbedSchema {name: $schema}) DELETE schema
"""
"""The rest of a queue that a cut-over has made; workers that still use it are refused."""

FREE_PROPERTY: Final[LiteralString] = """
OPTIONAL MATCH (schema:EmbedSchema {name: $schema}) REMOVE schema.vector
WITH count(*) AS schemas
MATCH (coverage:EmbedCoverage {name: $queue}) DELETE coverage
"""
"""Another queue may write to the property from here on."""
