"""Statements of the sample graph."""

from typing import Final, LiteralString

COUNT_ENTITIES: Final[LiteralString] = "MATCH (e:%label%) RETURN count(e) AS entities"

LOAD_ENTITIES: Final[LiteralString] = """
MATCH (schema:EmbedSchema)
WITH schema ORDER BY schema.name
SET schema._lock = $token
WITH count(schema) AS schemas WHERE schemas > 0
WITH datetime.realtime().epochMillis AS now
UNWIND $entities AS row
OPTIONAL MATCH (known:%label% {%key%: row.name})
WITH row, now, known WHERE known IS NULL
CREATE (e:%label%)
SET e.%key% = row.name, e.%type% = row.entityType, e.%observations% = row.observations,
    e.%version% = 1, e.id = randomUUID(), e.createdAt = now, e.updatedAt = now, e.validFrom = now
SET e:$(coalesce(row.labels, []))
RETURN count(e) AS created
"""
"""Add the entities whose names are free; an entity that is there stays as it is.

Invariant: no name twice, also when two load at once. Names of entities are not unique by
constraint (older versions keep theirs), so the schema nodes are the mutex of all loads. The time is
read after they are counted: beside the count it would group them, and each millisecond would add
the entities once more.
"""

LOAD_RELATIONS: Final[LiteralString] = """
UNWIND $relations AS row
MATCH (a:%label% {%key%: row.from}) WHERE a.%valid_to% IS NULL
MATCH (b:%label% {%key%: row.to}) WHERE b.%valid_to% IS NULL
MERGE (a)-[r:RELATES_TO {relationType: row.relationType}]->(b)
ON CREATE SET r.id = randomUUID(), r.version = 1,
    r.createdAt = datetime.realtime().epochMillis, r.validFrom = datetime.realtime().epochMillis
"""
