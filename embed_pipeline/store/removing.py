"""Removes what a side of a cut-over leaves behind: jobs, index, vectors."""

from embed_pipeline.store.cypher import alias as cypher
from embed_pipeline.store.cypher.pieces import REMOVE_ALL
from embed_pipeline.store.database import Database, fetch
from embed_pipeline.store.naming import for_shape, name_for
from embed_pipeline.store.queue import Queue
from embed_pipeline.store.schema.indexes import show
from embed_pipeline.store.schema.objects import (
    DROP_CONSTRAINT,
    DROP_INDEX,
    MIGRATIONS,
    Kind,
    piece_objects,
    schema_name,
)


async def remove_side(side: Queue, *, is_own_queue: bool) -> int:
    """Remove them in batches; returns how many entities had a vector. Safe to repeat.

    ``is_own_queue``: with everything of a queue that was made for the side.

    The order matters: a queue that is retired gives out no jobs, and a worker that still holds one
    is refused once it is deleted, so no vector is written behind this.
    """
    database, config, queue = side.database, side.config, side.config.queue
    await database.write(
        lambda tx: fetch(
            tx, cypher.RETIRE_QUEUE, queue=queue, reason="removed by a finished cut-over"
        )
    )
    await database.run_in_batches(cypher.DELETE_JOBS)
    await database.run_in_batches(cypher.DELETE_BATCHES)
    if config.shape.index:
        await database.run_in_batches(DROP_INDEX, name=config.shape.index)
    await _drop_pieces(database, queue)
    removed = await database.run_in_batches(
        for_shape(cypher.REMOVE_VECTORS, config.shape),
        foreign=not config.keeps_foreign,
    )
    await database.write(
        lambda tx: fetch(tx, cypher.FREE_PROPERTY, queue=queue, schema=schema_name(queue))
    )
    if is_own_queue:
        await database.write(
            lambda tx: fetch(tx, cypher.FORGET_QUEUE, queue=queue, schema=schema_name(queue))
        )
        await _drop_schema(database, queue)
    return removed[0]["entities"] if removed else 0


async def _drop_schema(database: Database, queue: str) -> None:
    """Drop the objects that only this queue uses, and the index of its hashes."""
    for migration in MIGRATIONS:
        for shared in migration.objects:
            own = shared.of(queue)
            if own is not shared:
                drop = DROP_CONSTRAINT if own.kind is Kind.UNIQUE else DROP_INDEX
                await database.run_in_batches(drop, name=own.name)
    await database.run_in_batches(DROP_INDEX, name=name_for("embed_entity_hash", queue))


async def _drop_pieces(database: Database, queue: str) -> None:
    """Remove the pieces of the side after their vector index, which may have got another name."""
    *others, vectors = piece_objects(queue)
    for index in await show(database.driver, database.name):
        if index.is_like(vectors):
            await database.run_in_batches(DROP_INDEX, name=index.name)
    await database.run_in_batches(REMOVE_ALL)
    for piece in others:
        drop = DROP_CONSTRAINT if piece.kind is Kind.UNIQUE else DROP_INDEX
        await database.run_in_batches(drop, name=piece.name)
