"""Scans during the storm and after it, and looks at what a reader would find meanwhile."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, LiteralString

from neo4j import AsyncDriver

from embed_pipeline.domain.coverage import ReconcilePage
from embed_pipeline.domain.keys import KeyValue
from embed_pipeline.domain.lifecycle import EnqueueOutcome
from embed_pipeline.store.queue import Queue
from tests.proof.chaos.graph import PIECES
from tests.proof.chaos.history import ERROR, Log
from tests.proof.chaos.operators import ERRORS
from tests.proof.chaos.plan import TRANSACTION_TIMEOUT
from tests.proof.chaos.texts import MODEL

PAGE: Final = 100
PAUSE: Final = 1.0
"""Seconds between two pages of the scan in the storm."""
SCANS: Final = 5
"""After the storm; the second of them finds nothing, if all is well."""
LOOK_EVERY: Final = 0.25
IS_SCANNING: ContextVar[bool] = ContextVar("IS_SCANNING", default=False)
"""Whether what is enqueued now was asked for by a scan."""

COUNT: Final[LiteralString] = "MATCH (e:Entity) RETURN count(e) AS entities"
LOCK: Final[LiteralString] = """
MATCH (e:Entity) WITH e SKIP $place LIMIT 1 SET e._look = 1 RETURN e.name AS name
"""
LOOK: Final[LiteralString] = (
    "MATCH (e:Entity {name: $name}) RETURN e.name AS name, e.version AS version,"
    " e.embedding AS embedding, " + PIECES + " AS pieces"
)


async def scan_for_ever(queue: Queue, log: Log) -> None:
    """Scan a page at a time, and again from the beginning."""
    IS_SCANNING.set(True)
    cursor: KeyValue = ""
    while True:
        await asyncio.sleep(PAUSE)
        try:
            async with asyncio.timeout(20):
                page = await queue.reconciler(MODEL).page(after=cursor, limit=PAGE)
        except ERRORS as error:
            log("scan", phase=ERROR, error=type(error).__name__)
        else:
            _note(log, page)
            cursor = page.cursor or ""


async def scan_until_nothing_is_found(
    queue: Queue, log: Log, until_quiet: Callable[[Queue], Awaitable[None]]
) -> None:
    """What the promise says of the scan: it mends what changed since the texts were read."""
    IS_SCANNING.set(True)
    for _ in range(SCANS):
        found, cursor = 0, ""
        while cursor is not None:
            page = await queue.reconciler(MODEL).page(after=cursor, limit=10 * PAGE)
            found += _note(log, page)
            cursor: KeyValue | None = page.cursor
        if not found:
            break
        await until_quiet(queue)


def _note(log: Log, page: ReconcilePage) -> int:
    outcomes = {word.value: count for word, count in page.enqueued.items()}
    log("scan", scanned=page.scanned, enqueued=outcomes)
    return sum(n for word, n in page.enqueued.items() if word is not EnqueueOutcome.PRESENT)


@dataclass
class Reader:
    """Looks at one entity after the other, with its vector and its pieces."""

    driver: AsyncDriver
    log: Log
    chance: random.Random

    async def look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            try:
                async with asyncio.timeout(20):
                    await self._look()
            except ERRORS as error:
                self.log("look", phase=ERROR, error=type(error).__name__)

    async def _look(self) -> None:
        async with self._transaction() as ask:
            [counted] = await ask(COUNT)
            if not counted["entities"]:
                return
            place = self.chance.randrange(counted["entities"])
            # Held, or a commit could fall between the entity and its pieces: Neo4j reads no
            # snapshots. Nothing of it is committed.
            for locked in await ask(LOCK, place=place):
                for found in await ask(LOOK, name=locked["name"]):
                    self.log("look", **found)

    @asynccontextmanager
    async def _transaction(self) -> AsyncGenerator[Callable[..., Awaitable[list[dict[str, Any]]]]]:
        seconds = TRANSACTION_TIMEOUT.total_seconds()
        async with self.driver.session() as session:
            tx = await session.begin_transaction(timeout=seconds)
            try:

                async def ask(statement: LiteralString, **given: Any) -> list[dict[str, Any]]:
                    return await (await tx.run(statement, given)).data()

                yield ask
            finally:
                await tx.close()
