"""The statements that touch entities; written for a shape by ``for_shape``.

Plans are kept and indexes named for the reason given in ``cypher.worker``.
"""

from typing import Final, LiteralString

SIZE_OF_VALUE: Final[LiteralString] = """
CASE
  WHEN %value% IS NULL THEN 0
  WHEN %value% IS :: STRING THEN size(left(%value%, $most + 1))
  WHEN %value% IS :: LIST<STRING NOT NULL>
    THEN reduce(sum = 0, entry IN %value% | sum + 1 + size(left(entry, $most + 1)))
  WHEN %value% IS :: LIST<ANY> THEN 16 * size(%value%)
  ELSE 16
END"""
"""Characters of a property of any type, or more than ``$most``.

``size()`` alone counts the characters of the whole text: 40 ms for 10 MB, where ``left()`` before
it takes a quarter of that.
"""

BEGINNING_OF_VALUE: Final[LiteralString] = """
CASE
  WHEN %value% IS :: STRING THEN left(%value%, $most)
  WHEN %value% IS :: LIST<STRING NOT NULL> THEN
    head([sizes IN [[entry IN %value% | 1 + size(left(entry, $most + 1))]] |
      head([count IN [2147483647, 1048576, 524288, 262144, 131072, 65536, 32768, 16384, 8192, 4096,
          2048, 1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1, 0]
        WHERE reduce(sum = 0, size IN sizes[0..count] | sum + size) <= $most
        | %value%[0..count]
          + CASE WHEN count < size(sizes) THEN [left(%value%[count], $most)] ELSE [] END])])
  WHEN %value% IS :: LIST<ANY> THEN %value%[0..$most / 16]
  ELSE %value%
END"""
"""What is read of a property of any type: ``$most`` characters, of a list at most twice as many.

The same for the same value on every call, since the hash of the text is made of it. A list keeps
as many entries as fit, by powers of two so that they need not be added up one by one, and the
beginning of the next one, which may be the long one. The sizes are read once, by a list of one
list: an expression can give nothing else a name.
"""

READABLE_TEXT: Final[LiteralString] = """
CASE WHEN size <= $longest THEN CASE WHEN size <= $most THEN text ELSE {%cut%} END END"""
"""The properties of a text as they are read, and nothing of one that is longer than ``$longest``.
"""

NEIGHBOURS: Final[LiteralString] = """
COLLECT {
  MATCH (entity)%start%[relation%types%]%end%(other)
  WHERE NOT other:EmbedChunk
  WITH relation, other LIMIT %looked%
  WHERE relation.%valid_to% IS NULL AND other.%valid_to% IS NULL
    AND (NOT other:%label% OR %current_other%)
  WITH relation, other LIMIT %furthest%
  WITH DISTINCT '%sign%'
    + left(coalesce(toStringOrNull(relation.%word%), type(relation)), %longest%) + '\\u001f'
    + left(coalesce(%names%), %longest%) AS neighbour
  WHERE neighbour IS NOT NULL
  RETURN neighbour ORDER BY neighbour LIMIT %most%
}"""
"""The neighbours of ``entity`` in one direction, as ``domain.relations.line_of`` writes them.

The first of them in order of words and names, and never more reading than the limits allow: sorted
without them, a page of 1,000 with some hubs took 279,813 hits instead of 4,001. The first limit is
for those that are closed: with one for all, 1,000 of them hid every open one. The choice of a hub
is what Neo4j gives; in order of its ids it took 46,010 hits of 20,000 instead of 8,011. Pieces of
its own text are no neighbours, nor are outdated versions, nor what is behind a closed relation.
Read as a list of texts, they are measured, cut and paged like any other property.
"""

SAMPLE_OF_VECTOR: Final[LiteralString] = """
CASE WHEN vector IS :: LIST<FLOAT> NOT NULL OR vector IS :: LIST<INTEGER> NOT NULL
  THEN [i IN range(0, $last) | vector[i * (size(vector) - 1) / $last]] END"""
"""What the print of a vector is made of, as ``domain.vector.print_of`` takes it."""

NOT_CLOSED: Final[LiteralString] = "%node%.%valid_to% IS NULL"
"""Which version of its entity a node is, where ``validTo`` alone says so: the current one."""
CLOSED: Final[LiteralString] = "%node%.%valid_to% IS NOT NULL"

_HAS_NEWER: Final[LiteralString] = """EXISTS {
  MATCH (newer:%label% {%key%: %node%.%key%}) USING INDEX newer:%label%(%key%)
  WHERE newer.%valid_to% IS NULL AND (newer.%order% > %node%.%order%
    OR %node%.%order% IS NULL AND newer.%order% IS NOT NULL)
}"""
NEWEST: Final[LiteralString] = f"{NOT_CLOSED} AND NOT {_HAS_NEWER}"
"""The same where the shape names an order: of the nodes that are not closed the newest is current.

Values that cannot be compared, a text and a number, order nothing: these nodes are duplicates. No
value is older than any.
"""
NOT_NEWEST: Final[LiteralString] = f"({CLOSED} OR {_HAS_NEWER})"

LOCK_ENTITIES: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $keys AS key
MATCH (entity:%label% {%key%: key}) USING INDEX entity:%label%(%key%)
WHERE entity.%valid_to% IS NULL OR entity.%vector% IS NOT NULL
SET entity._embed_lock = $token
"""
"""Hold the current entities, and outdated versions with vectors, sorted by key, before their jobs.

Entities first, because that is the order of a client that changes an entity and has its job made
by the trigger; the other way round the two would deadlock and the client's write could be the
victim.
"""

UNLOCK_ENTITIES: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $keys AS key
MATCH (entity:%label% {%key%: key}) USING INDEX entity:%label%(%key%)
REMOVE entity._embed_lock
"""
"""Leave no trace of ``LOCK_ENTITIES``; the lock itself lasts until the commit."""

READ_ENTITIES: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $keys AS key
MATCH (entity:%label% {%key%: key}) USING INDEX entity:%label%(%key%)
WITH key, entity, %current_entity% AS is_current
WHERE is_current OR entity.%vector% IS NOT NULL
WITH collect([key, entity, is_current]) AS found
WITH [row IN found WHERE NOT row[2] | row[0]] AS outdated, [row IN found WHERE row[2]] AS current
CALL (current) {
  UNWIND current AS row
  WITH row[0] AS key, row[1] AS entity
  WITH key, entity.%version% AS version, entity {%text%} AS text
  WITH key, version, text, %size% AS size
  RETURN collect([key, version, %readable%, size]) AS entities
}
RETURN entities, outdated
"""
"""What decides whether a vector still fits: version and text of the current entity.

A text of more than ``$longest`` characters is not sent, only its size. ``outdated`` are the keys of
versions that are history and have a vector: the seek passes them anyway, and a statement of its own
that looks for them costs a completion three hits per job more. They are read before the first text
for the reason given at ``SCAN_ENTITIES``.
"""

WRITE_VECTORS: Final[LiteralString] = """
CYPHER replan=skip
WITH coalesce($now, datetime.realtime().epochMillis) AS now
UNWIND $rows AS row
UNWIND row.keys AS key
MATCH (entity:%label% {%key%: key}) USING INDEX entity:%label%(%key%)
WHERE %current_entity%
CALL db.create.setNodeVectorProperty(entity, $vector_property, row.vector)
SET entity.%vector_model% = row.model, entity.%vector_hash% = row.text_hash,
    entity.%vector_version% = row.version, entity.%vector_job% = row.id,
    entity.%vector_print% = row.print, entity.%vector_at% = now,
    entity.%vector_pieces% = row.pieces
"""
"""Store vectors; locks the entities, so rows are sorted by key.

Invariant: at most once per job, together with its completion, only for the current text. The
procedure stores 32-bit floats (6.7 kB instead of 13.2 for 1,536 dimensions) and refuses NaN; it is
the one way that works on 5.26 and on 2026.
"""

CLEAR_OUTDATED: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $keys AS key
MATCH (entity:%label% {%key%: key}) USING INDEX entity:%label%(%key%)
WHERE %outdated_entity% AND entity.%vector% IS NOT NULL
  AND ($foreign OR entity.%vector_hash% IS NOT NULL)
SET entity._embed_lock = $token
WITH entity WHERE %outdated_entity%
REMOVE entity.%vector%, entity._embed_lock, %mark%
"""
"""Take the vectors of outdated versions out of the index: their successor has its own now.

Locks them after all current entities, by key, and before the jobs.
"""

READ_VECTORS: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $keys AS key
MATCH (entity:%label% {%key%: key}) USING INDEX entity:%label%(%key%)
WHERE %current_entity% AND entity.%vector% IS NOT NULL
WITH key, entity.%vector_hash% AS hash, entity.%vector_print% AS print, entity.%vector% AS vector
RETURN key, hash, print, %sample% AS sample
"""
"""Whose the vectors of current entities are; asked only where those of others are to stay."""

CLEAR_VECTORS: Final[LiteralString] = """
CYPHER replan=skip
WITH coalesce($now, datetime.realtime().epochMillis) AS now
UNWIND $rows AS row
UNWIND row.keys AS key
MATCH (entity:%label% {%key%: key}) USING INDEX entity:%label%(%key%)
WHERE %current_entity%
REMOVE entity.%vector%
SET entity.%vector_model% = row.model, entity.%vector_hash% = row.text_hash,
    entity.%vector_version% = row.version, entity.%vector_job% = row.id,
    entity.%vector_print% = row.print, entity.%vector_at% = now,
    entity.%vector_pieces% = row.pieces
"""
"""For an entity without text: no vector, but the hash says that this is on purpose."""

FIND_KNOWN: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $hashes AS hash
CALL (hash) {
  MATCH (entity:%label% {%vector_hash%: hash}) USING INDEX entity:%label%(%vector_hash%)
  WHERE entity.%vector_model% = $model
  RETURN entity LIMIT 1
}
RETURN collect(hash) AS hashes
"""
"""Which texts were embedded before; mostly none, and then no vector is read at all."""

FIND_VECTORS: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $hashes AS hash
CALL (hash) {
  MATCH (entity:%label% {%vector_hash%: hash}) USING INDEX entity:%label%(%vector_hash%)
  WHERE entity.%vector_model% = $model AND size(entity.%vector%) = $dimensions
  RETURN entity.%vector% AS vector, entity.%vector_print% AS print LIMIT 1
}
RETURN hash, vector, print
"""
"""Vectors of texts that were embedded before, by the hash of the text.

With their prints, because one of them may have been overwritten with another vector.
"""
