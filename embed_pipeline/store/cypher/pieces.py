"""The statements about pieces of texts that are nodes; written for a shape by ``for_shape``.

A piece is ``(:EmbedChunk:Chunk)-[:FROM_DOCUMENT]->(entity)``, the shape of neo4j-graphrag, and has
the label of its queue beside these, on which its indexes stand: pieces of two models must not be
found by one question. All are written while the entity is locked, by a completion that holds the
job.

Within a transaction pieces are found by their ids: an index that has 10,000 changes of its own
transaction to look through needs seconds where an id needs none.
"""

from typing import Final, LiteralString

COUNT_PIECES: Final[LiteralString] = """
COUNT {
  MATCH (entity)<-[:FROM_DOCUMENT]-(piece:EmbedPiece)
  WHERE piece.embedding IS NOT NULL
}"""
"""How many an entity has that can be found.

Measured for a page of 500 entities with twelve each, of 1,536 numbers: 76 ms and 19,501 hits, where
only to ask for any took 37 ms and 3,001. A look at their vectors takes 425, so the print of one
that somebody has replaced is compared only where it is copied.
"""

READ_PIECES: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $keys AS key
MATCH (entity:%label% {%key%: key}) USING INDEX entity:%label%(%key%)
WITH key, entity, %current_entity% AS is_current
WHERE is_current OR $outdated
OPTIONAL MATCH (entity)<-[:FROM_DOCUMENT]-(piece:EmbedPiece)
WITH key, entity, piece, is_current ORDER BY piece.index
RETURN key,
  count(DISTINCT CASE WHEN is_current THEN entity END) AS nodes,
  collect(CASE WHEN piece IS NOT NULL
    THEN [elementId(piece), piece.text_hash,
      CASE WHEN piece.embedding IS NOT NULL THEN piece.model END, piece.print, is_current] END)
    AS pieces
"""
"""The pieces of entities, and of their outdated versions: a new version of a text takes over what
it shares with the last one.

A piece comes as often as there are nodes that it leads to: several may share a key.
"""

READ_STAGED: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $jobs AS job
MATCH (piece:EmbedPieceStaged {job: job}) USING INDEX piece:EmbedPieceStaged(job)
RETURN job, collect([elementId(piece), piece.text_hash, piece.model, piece.print]) AS pieces
"""
"""The pieces that a completion in parts has written so far."""

STAGE_PIECES: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $rows AS row
MERGE (piece:EmbedPieceStaged {uid: row.uid})
SET piece += row.properties, piece.job = row.job
WITH piece, row
CALL db.create.setNodeVectorProperty(piece, 'embedding', row.vector)
"""
"""Write pieces that no search finds yet, for a job that this transaction has locked.

Invariant: no index has the label, and nothing leads from them to the entity. May be repeated.
"""

CREATE_PIECES: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $rows AS row
CREATE (piece:EmbedPiece:EmbedChunk:Chunk)
SET piece += row.properties, piece.uid = row.uid
WITH piece, row
CALL db.create.setNodeVectorProperty(piece, 'embedding', row.vector)
RETURN row.uid AS uid, elementId(piece) AS id
"""

ADOPT_STAGED: Final[LiteralString] = """
CYPHER replan=skip
MATCH (piece) WHERE elementId(piece) IN $ids AND piece:EmbedPieceStaged
SET piece:EmbedPiece:EmbedChunk:Chunk, piece.job = null
REMOVE piece:EmbedPieceStaged
"""
"""Let what was staged be found, all of it with the commit of the completion."""

REMOVE_PIECES: Final[LiteralString] = """
CYPHER replan=skip
MATCH (piece) WHERE elementId(piece) IN $ids AND piece:EmbedPiece
DETACH DELETE piece
"""

REMOVE_STAGED: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $jobs AS job
MATCH (piece:EmbedPieceStaged {job: job}) USING INDEX piece:EmbedPieceStaged(job)
DETACH DELETE piece
"""
"""What former workers have staged for locked jobs, and no completion has taken."""

PLACE_PIECES: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $rows AS row
MATCH (piece) WHERE elementId(piece) = row.id
SET piece.index = row.index, piece.start = row.start, piece.`end` = row.`end`
WITH piece
OPTIONAL MATCH (piece)-[next:NEXT_CHUNK]->()
DELETE next
"""
"""Where pieces stand in the text now; their order is written anew."""

UNLINK_OUTDATED: Final[LiteralString] = """
CYPHER replan=skip
MATCH (piece) WHERE elementId(piece) IN $ids
MATCH (piece)-[link:FROM_DOCUMENT]->(entity:%label%)
WHERE %outdated_entity%
DELETE link
"""

LINK_PIECES: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $rows AS row
UNWIND row.keys AS key
MATCH (entity:%label% {%key%: key}) USING INDEX entity:%label%(%key%)
WHERE %current_entity%
UNWIND row.ids AS id
MATCH (piece) WHERE elementId(piece) = id
CREATE (piece)-[:FROM_DOCUMENT]->(entity)
"""
"""Let pieces lead to their entity that do not yet.

MERGE would look for the way among all that the entity has: with 10,000 it does not end in time.
"""

LINK_MISSING: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $rows AS row
UNWIND row.keys AS key
MATCH (entity:%label% {%key%: key}) USING INDEX entity:%label%(%key%)
WHERE %current_entity%
UNWIND row.ids AS id
MATCH (piece) WHERE elementId(piece) = id
MERGE (piece)-[:FROM_DOCUMENT]->(entity)
"""
"""The same for pieces that lead to some of the nodes that share a key, and not to all."""

CHAIN_PIECES: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $pairs AS pair
MATCH (piece) WHERE elementId(piece) = pair[0]
MATCH (next) WHERE elementId(next) = pair[1]
CREATE (piece)-[:NEXT_CHUNK]->(next)
"""

FIND_PIECES: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $hashes AS hash
CALL (hash) {
  MATCH (piece:EmbedPiece {text_hash: hash}) USING INDEX piece:EmbedPiece(text_hash)
  WHERE piece.model = $model AND size(piece.embedding) = $dimensions
  RETURN piece LIMIT 1
}
RETURN hash, piece.embedding AS vector, piece.print AS print
"""
"""Vectors of pieces that were embedded before, in whatever text they stand.

With their prints, for the reason given at ``FIND_VECTORS``.
"""

KNOWN_PIECES: Final[LiteralString] = """
CYPHER replan=skip
UNWIND $hashes AS hash
WITH hash WHERE EXISTS {
  MATCH (piece:EmbedPiece {text_hash: hash}) USING INDEX piece:EmbedPiece(text_hash)
  WHERE piece.model = $model AND size(piece.embedding) = $dimensions
}
RETURN collect(hash) AS hashes
"""
"""The same without the vectors, for a plan."""

SWEEP_PIECES: Final[LiteralString] = """
MATCH (piece:EmbedPiece)
WHERE NOT EXISTS {
  MATCH (piece)-[:FROM_DOCUMENT]->(entity:%label%)
  WHERE entity.%valid_to% IS NULL OR entity.%vector% IS NOT NULL
}
CALL (piece) { DETACH DELETE piece } IN TRANSACTIONS OF 1000 ROWS
RETURN count(piece) AS pieces
"""
"""Remove pieces whose entity was deleted, or closed and has lost its vector.

Nothing has to be locked: a piece and its way to the entity are written together, and an entity that
is closed stays so.
"""

SWEEP_STAGED: Final[LiteralString] = """
MATCH (piece:EmbedPieceStaged)
WHERE NOT EXISTS {
  MATCH (job:EmbedJob {id: piece.job, status: 'processing'})
}
CALL (piece) { DETACH DELETE piece } IN TRANSACTIONS OF 1000 ROWS
RETURN count(piece) AS pieces
"""
"""Remove what was staged for jobs that ended otherwise.

One that is processing again may be staged again: its completion takes what fits, and removes the
rest.
"""

REMOVE_ALL: Final[LiteralString] = """
MATCH (piece:EmbedPiece|EmbedPieceStaged)
CALL (piece) { DETACH DELETE piece } IN TRANSACTIONS OF 1000 ROWS
RETURN count(piece) AS pieces
"""
"""For an embedding whose pieces are no nodes any more."""
