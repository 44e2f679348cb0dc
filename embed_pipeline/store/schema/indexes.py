"""Asks the server for its indexes, and runs what changes them."""

import asyncio
import random
from typing import Any, Final, LiteralString

from neo4j import AsyncDriver, Record, ResultSummary, exceptions as neo4j_errors

from embed_pipeline.domain.errors import SchemaError
from embed_pipeline.store.connection import open_session
from embed_pipeline.store.schema.objects import SHOW_INDEXES, SchemaObject
from embed_pipeline.store.schema.state import FoundIndex

_ATTEMPTS: Final = 8
_ONLINE_SECONDS: Final = 300.0
_BUSY: Final = (
    neo4j_errors.TransientError,
    neo4j_errors.ServiceUnavailable,
    neo4j_errors.SessionExpired,
)


async def show(driver: AsyncDriver, database: str) -> list[FoundIndex]:
    """Read every index of the database."""
    return [
        FoundIndex(
            name=record["name"],
            type=record["type"],
            entity_type=record["entityType"],
            state=record["state"],
            label=record["labelsOrTypes"][0],
            properties=tuple(record["properties"]),
            unique=record["owningConstraint"] is not None,
            options=record["options"] or {},
            failure=record["failureMessage"] or "",
        )
        for record in await execute(driver, database, SHOW_INDEXES)
        if record["labelsOrTypes"] and record["properties"]
    ]


async def await_online(
    driver: AsyncDriver, database: str, wanted: tuple[SchemaObject, ...]
) -> None:
    """Wait until the indexes are online.

    Raises:
        SchemaError: one has failed, and never will be.
    """
    async with asyncio.timeout(_ONLINE_SECONDS):
        pause = 0.05
        while True:
            found = [
                f for f in await show(driver, database) if any(f.is_like(obj) for obj in wanted)
            ]
            if failed := next((f for f in found if f.state == "FAILED"), None):
                raise SchemaError(
                    f"index {failed.name} failed: {failed.failure.splitlines()[0][:300]}; mend the "
                    f"data, DROP INDEX {failed.name}, then run 'embed-pipeline init' again"
                )
            if all(f.state == "ONLINE" for f in found):
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)


async def execute(
    driver: AsyncDriver, database: str, statement: LiteralString, **parameters: Any
) -> list[Record]:
    """Run one repeatable statement and return its records."""
    records, _ = await run(driver, database, statement, **parameters)
    return records


async def run(
    driver: AsyncDriver, database: str, statement: LiteralString, **parameters: Any
) -> tuple[list[Record], ResultSummary]:
    """Run one repeatable statement; retried for rivals and a busy server.

    Auto-commit, because the driver's own retry waits a second and prints every deadlock: six
    installers at once make five of them.
    """
    for attempt in range(_ATTEMPTS):
        try:
            async with open_session(driver, database) as session:
                result = await session.run(statement, parameters)
                return [record async for record in result], await result.consume()
        except _BUSY:
            if attempt == _ATTEMPTS - 1:
                raise
            await asyncio.sleep(random.uniform(0.05, 0.1) * 2**attempt)  # noqa: S311 - jitter
    raise AssertionError("unreachable")
