"""Asks the vector index: which entities are nearest in meaning?"""

from typing import Final, LiteralString

from neo4j import Record

from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.errors import SchemaError
from embed_pipeline.domain.keys import uid_of
from embed_pipeline.domain.results import Hit
from embed_pipeline.domain.text import LONGEST_TEXT, render_for, share_of
from embed_pipeline.domain.vector import Vector, numbers_of
from embed_pipeline.store import schema
from embed_pipeline.store.alias import alias_in
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import search as cypher
from embed_pipeline.store.database import Database, Transaction, fetch
from embed_pipeline.store.load import ANY_LENGTH
from embed_pipeline.store.naming import for_shape, quoted
from embed_pipeline.store.schema.state import SchemaState, VectorIndex

NO_INDEX: Final = "there is no vector index; run 'embed-pipeline init'"
CANDIDATES_PER_HIT: Final = 10
FEWEST_CANDIDATES: Final = 100
MOST_CANDIDATES: Final = 10_000
"""Asked for, ten times as many in each step, while there are fewer hits than wanted: a long text
whose pieces are all near, or outdated versions that keep their vectors, crowd out the others."""
SEARCH_SINCE: Final = (2026, 8)
"""The oldest server on which the clause ``SEARCH`` was tried; the procedure is deprecated there."""


def nearest(index: VectorIndex, shape: EntityShape, *, server: tuple[int, ...]) -> LiteralString:
    """The search statement for this server's version, for entities or their pieces."""
    hits = for_shape(cypher.PIECE_HITS if shape.pieces else cypher.HITS, shape)
    if server < SEARCH_SINCE:
        return cypher.BEFORE + cypher.BY_PROCEDURE + hits
    inside: list[LiteralString] = []
    if shape.pieces is None and shape.vector_model in index.filters:
        inside.append(f"node.{quoted(shape.vector_model)} = $model")
    if shape.pieces is None and shape.valid_to in index.filters:
        inside.append(f"node.{quoted(shape.valid_to)} IS NULL")
    where: LiteralString = f"WHERE {' AND '.join(inside)}" if inside else ""
    # The name last: it may look like a placeholder.
    clause = cypher.BY_CLAUSE.replace("%inside%", where).replace("%index%", quoted(index.name), 1)
    return "CYPHER 25" + cypher.BEFORE + clause + hits


async def search_entities(
    database: Database,
    config: QueueConfig,
    *,
    vector: Vector,
    model: str,
    limit: int,
    alias: str = "",
    epoch: int = 0,
) -> list[Hit] | None:
    """Find the current entities whose vectors of ``model`` are nearest, the nearest first.

    ``None``: the ``alias`` is at another ``epoch`` by now, and another side is live.

    Raises:
        SchemaError: there is no vector index.
    """
    state = await schema.inspect(
        database.driver, database=database.name, shape=config.shape, queue=config.queue
    )
    index = _index_in(state, config.shape)
    if index is None:
        raise SchemaError(NO_INDEX)
    statement = nearest(index, config.shape, server=state.server)

    async def look(tx: Transaction) -> list[Record] | None:
        candidates = max(FEWEST_CANDIDATES, limit * CANDIDATES_PER_HIT)
        while True:
            found = await fetch(
                tx,
                statement,
                index=index.name,
                vector=numbers_of(vector),
                model=model,
                limit=limit,
                candidates=candidates,
                longest=ANY_LENGTH,
                most=min(LONGEST_TEXT, share_of(limit)),
                alias=alias,
                epoch=epoch,
            )
            if len(found) >= limit or candidates >= MOST_CANDIDATES:
                break
            candidates = min(10 * candidates, MOST_CANDIDATES)
        if not found and alias:
            now = await alias_in(tx, alias)
            return [] if now and now.epoch == epoch else None
        return found

    records = await database.read(look)
    if records is None:
        return None
    render = render_for(config.shape)
    return [
        Hit(
            str(uid_of(record["key"])),
            record["type"],
            record["score"],
            render(record["text"]),
            passage=record.get("passage"),
        )
        for record in records
    ]


async def why_nothing(database: Database, config: QueueConfig, *, dimensions: int) -> str | None:
    """Why a search finds nothing, whatever the vectors are, or ``None``."""
    state = await schema.inspect(
        database.driver, database=database.name, shape=config.shape, queue=config.queue
    )
    index = _index_in(state, config.shape)
    return NO_INDEX if index is None else index.why_nothing(dimensions=dimensions)


def _index_in(state: SchemaState, shape: EntityShape) -> VectorIndex | None:
    return state.piece_index if shape.pieces else state.vector_index


async def embedded_by_model(database: Database, config: QueueConfig) -> dict[str, int]:
    """The number of embedded current entities by model."""
    statement = for_shape(cypher.EMBEDDED_BY_MODEL, config.shape)
    records = await database.read(lambda tx: fetch(tx, statement))
    return {str(record["model"]): record["entities"] for record in records}
