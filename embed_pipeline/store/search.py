"""Asks the vector index: which entities are nearest in meaning?"""

from typing import Final

from neo4j import Record

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
from embed_pipeline.store.naming import for_shape

CANDIDATES_PER_HIT: Final = 10
FEWEST_CANDIDATES: Final = 100


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
    if state.vector_index is None:
        raise SchemaError("there is no vector index; run 'embed-pipeline init'")
    index = state.vector_index.name

    async def look(tx: Transaction) -> list[Record] | None:
        found = await fetch(
            tx,
            for_shape(cypher.SEARCH, config.shape),
            index=index,
            vector=numbers_of(vector),
            model=model,
            limit=limit,
            candidates=max(FEWEST_CANDIDATES, limit * CANDIDATES_PER_HIT),
            longest=ANY_LENGTH,
            most=min(LONGEST_TEXT, share_of(limit)),
            alias=alias,
            epoch=epoch,
        )
        if not found and alias:
            now = await alias_in(tx, alias)
            return [] if now and now.epoch == epoch else None
        return found

    records = await database.read(look)
    if records is None:
        return None
    render = render_for(config.shape)
    return [Hit(str(uid_of(r["key"])), r["type"], r["score"], render(r["text"])) for r in records]


async def embedded_by_model(database: Database, config: QueueConfig) -> dict[str, int]:
    """How many current entities each model has embedded."""
    statement = for_shape(cypher.EMBEDDED_BY_MODEL, config.shape)
    records = await database.read(lambda tx: fetch(tx, statement))
    return {str(record["model"]): record["entities"] for record in records}
