"""Gives a vector index the name of another one; Neo4j renames none, so it is made anew."""

from dataclasses import replace

from embed_pipeline.domain.errors import SchemaError
from embed_pipeline.store.database import Transaction, fetch
from embed_pipeline.store.queue import Queue
from embed_pipeline.store.schema.indexes import await_online, show
from embed_pipeline.store.schema.objects import (
    DROP_INDEX,
    SchemaObject,
    entity_objects,
    piece_objects,
)


async def take_names(queue: Queue, name: str, *, former: Queue) -> None:
    """Let the vector index of a queue have a ``name``, and that of its pieces the former one's.

    May be repeated at any point: once the pieces have the name, the former index is gone.
    """
    shape = queue.config.shape
    await _take_name(queue, replace(entity_objects(shape, queue.config.queue)[-1], name=name))
    if shape.pieces is None:
        return
    of_former = piece_objects(former.config.queue)[-1]
    found = await show(queue.database.driver, queue.database.name)
    for index in found:
        if index.is_like(of_former):
            wanted = replace(piece_objects(queue.config.queue)[-1], name=index.name)
            await _take_name(queue, wanted)


async def _take_name(queue: Queue, wanted: SchemaObject) -> None:
    """Give an index the name that is wanted; another index that has it is dropped.

    One transaction drops both and makes the one: two cannot be on one property. Until it is filled,
    a search by the name waits, and fails after 30 s.

    Raises:
        SchemaError: the queue has no vector index.
    """
    database = queue.database
    found = await show(database.driver, database.name)
    own = next((index for index in found if index.is_like(wanted)), None)
    if own is None:
        raise SchemaError("there is no vector index; run 'embed-pipeline init'")
    options = {
        "dimensions": own.as_vector_index().dimensions,
        "quantized": own.options.get("indexConfig", {}).get("vector.quantization.enabled", False),
    }

    async def work(tx: Transaction) -> None:
        await fetch(tx, DROP_INDEX, name=wanted.name)
        await fetch(tx, DROP_INDEX, name=own.name)
        await fetch(tx, wanted.statement, **options)

    if own.name != wanted.name:
        await database.write(work)
    await await_online(database.driver, database.name, (wanted,))
