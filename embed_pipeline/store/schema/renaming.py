"""Gives a vector index the name of another one; Neo4j renames none, so it is made anew."""

from dataclasses import replace

from embed_pipeline.domain.errors import SchemaError
from embed_pipeline.store.database import Transaction, fetch
from embed_pipeline.store.queue import Queue
from embed_pipeline.store.schema.indexes import await_online, show
from embed_pipeline.store.schema.objects import DROP_INDEX, entity_objects


async def take_name(queue: Queue, name: str) -> None:
    """Let the vector index of a queue have a ``name``; an index that has it is dropped.

    One transaction drops both and makes the one: two cannot be on one property. Until it is filled,
    a search by the name waits, and fails after 30 s. May be repeated at any point.

    Raises:
        SchemaError: the queue has no vector index.
    """
    database, config = queue.database, queue.config
    wanted = replace(entity_objects(config.shape, config.queue)[-1], name=name)
    found = await show(database.driver, database.name)
    own = next((index for index in found if index.is_like(wanted)), None)
    if own is None:
        raise SchemaError("there is no vector index; run 'embed-pipeline init'")
    options = {
        "dimensions": own.as_vector_index().dimensions,
        "quantized": own.options.get("indexConfig", {}).get("vector.quantization.enabled", False),
    }

    async def work(tx: Transaction) -> None:
        await fetch(tx, DROP_INDEX, name=name)
        await fetch(tx, DROP_INDEX, name=own.name)
        await fetch(tx, wanted.statement, **options)

    if own.name != name:
        await database.write(work)
    await await_online(database.driver, database.name, (wanted,))
