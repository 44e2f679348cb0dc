"""A driver that stops its user between two statements, with all the locks he holds."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Self, TypeVar

from neo4j import AsyncDriver, AsyncSession, Record
from neo4j.exceptions import Neo4jError

Answer = TypeVar("Answer")

HOLD_COUNTERS = "MATCH (counters:EmbedCounters) SET counters._lock = 0"


@dataclass
class Gate:
    """Stops its user once, after so many statements, until it is opened."""

    stop_after: int | None = None
    statements: int = 0
    errors: list[str] = field(default_factory=list)
    """What the database refused on the way; the store repeats a deadlock without a word."""
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def pass_through(self) -> None:
        self.statements += 1
        if self.statements == self.stop_after:
            self.reached.set()
            await self.opened.wait()


@dataclass(frozen=True)
class Records:
    """The answer to a statement that has run to its end."""

    records: Sequence[Record]

    async def __aiter__(self) -> AsyncIterator[Record]:
        for record in self.records:
            yield record

    async def single(self, *, strict: bool) -> Record:
        [record] = self.records
        return record


@dataclass(frozen=True)
class GatedTransaction:
    transaction: Any
    gate: Gate

    async def run(self, statement: str, parameters: Any = None) -> Records:
        # To its end: locks are taken while the rows are read.
        result = await self.transaction.run(statement, parameters)
        records = [record async for record in result]
        await self.gate.pass_through()
        return Records(records)


@dataclass(frozen=True)
class GatedSession:
    session: AsyncSession
    driver: "GatedDriver"

    async def __aenter__(self) -> Self:
        await self.session.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.session.__aexit__(*error)

    async def execute_write(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        return await self.session.execute_write(self._gated(work))

    async def execute_read(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        return await self.session.execute_read(self._gated(work))

    async def run(self, statement: Any, parameters: Any = None) -> Records:
        """Auto-commit: the server commits by itself.

        So the counters, which every clean-up writes last, are kept from it until the gate opens.
        """
        gate = self.driver.gate
        if gate.statements + 1 != gate.stop_after:
            return await GatedTransaction(self.session, gate).run(statement, parameters)
        async with self.driver.driver.session() as other, await other.begin_transaction() as hold:
            await (await hold.run(HOLD_COUNTERS)).consume()
            running = await start(self.driver.driver, _fetch(self.session, statement, parameters))
            await gate.pass_through()
            await hold.rollback()
        return Records(await running)

    def _gated(self, work: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        gate = self.driver.gate

        # Keeps what the store has noted on the function: the timeout of the transaction.
        @wraps(work)
        async def gated(transaction: Any) -> Any:
            try:
                return await work(GatedTransaction(transaction, gate))
            except Neo4jError as error:
                gate.errors.append(str(error.code))
                raise

        return gated


@dataclass(frozen=True)
class GatedDriver:
    """As much of a driver as the store uses."""

    driver: AsyncDriver
    gate: Gate

    def session(self, **options: Any) -> GatedSession:
        return GatedSession(self.driver.session(**options), self)


async def start(driver: AsyncDriver, work: Coroutine[Any, Any, Answer]) -> asyncio.Task[Answer]:
    """Start work, and return when it has ended or waits for a lock."""
    before = await _waiting(driver)
    task = asyncio.create_task(work)
    while not task.done() and await _waiting(driver) == before:
        pass
    return task


async def _waiting(driver: AsyncDriver) -> int:
    """How many transactions wait for a lock.

    APOC has clean-ups wait for each other in a queue of its own: all but one of them count, too.
    """
    records, _, _ = await driver.execute_query("SHOW TRANSACTIONS YIELD status, currentQuery")
    blocked = sum(record["status"].startswith("Blocked") for record in records)
    cleanups = sum("CALL apoc.periodic.iterate" in record["currentQuery"] for record in records)
    return blocked + max(0, cleanups - 1)


async def _fetch(session: AsyncSession, statement: Any, parameters: Any) -> list[Record]:
    result = await session.run(statement, parameters)
    return [record async for record in result]
