"""Puts a ready-made graph into the database."""

import uuid
from collections.abc import Sequence
from typing import Any

from neo4j import AsyncDriver, AsyncManagedTransaction

from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.errors import SchemaError
from embed_pipeline.store.connection import open_session
from embed_pipeline.store.cypher import sample as cypher_sample
from embed_pipeline.store.naming import for_shape


async def count_entities(driver: AsyncDriver, *, database: str, shape: EntityShape) -> int:
    """Count the entities, of all versions."""
    statement = for_shape(cypher_sample.COUNT_ENTITIES, shape)
    result = await driver.execute_query(statement, database_=database)
    return result.records[0]["entities"]


async def load_graph(
    driver: AsyncDriver,
    *,
    database: str,
    shape: EntityShape,
    entities: Sequence[dict[str, Any]],
    relations: Sequence[dict[str, str]],
) -> int:
    """Add entities and relations in one transaction; return how many entities are new.

    Raises:
        SchemaError: ``init`` has not been run yet.
    """

    async def work(tx: AsyncManagedTransaction) -> int:
        result = await tx.run(
            for_shape(cypher_sample.LOAD_ENTITIES, shape),
            token=str(uuid.uuid4()),
            entities=list(entities),
        )
        record = await result.single(strict=True)
        locked = (await result.consume()).counters.properties_set > 0
        if not locked:
            raise SchemaError("the database has no schema yet; run 'embed-pipeline init' first")
        await tx.run(for_shape(cypher_sample.LOAD_RELATIONS, shape), relations=list(relations))
        return record["created"]

    async with open_session(driver, database) as session:
        return await session.execute_write(work)
