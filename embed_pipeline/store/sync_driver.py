"""A sync driver where the store wants an async one.

The store knows one kind of driver. A program with a sync driver gets the same code: its calls run
in an event loop of their own, which they may block. Before each transaction the loop has its turn,
so that an interrupt is heard.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, LiteralString, Self, TypeVar, cast

from neo4j import (
    READ_ACCESS,
    AsyncDriver,
    Driver,
    Record,
    Result,
    ResultSummary,
    Session,
    Transaction as SyncTransaction,
)

Answer = TypeVar("Answer")
Work = Callable[[Any], Awaitable[Answer]]


def as_async(driver: Driver) -> AsyncDriver:
    """The driver with awaitable methods; may be used from several threads.

    The cast is as honest as the tests, which run the store through it.
    """
    return cast("AsyncDriver", _Driver(driver))


class _Driver:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def session(self, **config: Any) -> "_Session":
        return _Session(self._driver, config)


class _Session:
    """A session per transaction: the access mode is that of the session."""

    def __init__(self, driver: Driver, config: dict[str, Any]) -> None:
        self._driver = driver
        self._config = config
        self._open: list[Session] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for session in self._open:
            session.close()

    async def run(self, query: LiteralString, parameters: dict[str, Any]) -> "_Result":
        session = await self._session()
        self._open.append(session)
        return _Result(session.run(query, parameters))

    async def execute_write(self, work: Work[Answer]) -> Answer:
        with await self._session() as session:
            return await self._transact(session, work)

    async def execute_read(self, work: Work[Answer]) -> Answer:
        with await self._session(default_access_mode=READ_ACCESS) as session:
            return await self._transact(session, work)

    async def _session(self, **options: Any) -> Session:
        await asyncio.sleep(0)
        return self._driver.session(**self._config, **options)

    async def _transact(self, session: Session, work: Work[Answer]) -> Answer:
        # No retries: the store repeats by itself.
        with session.begin_transaction(timeout=getattr(work, "timeout", None)) as tx:
            answer = await work(_Transaction(tx))
            tx.commit()
            return answer


class _Transaction:
    def __init__(self, transaction: SyncTransaction) -> None:
        self._transaction = transaction

    async def run(
        self, query: LiteralString, parameters: dict[str, Any] | None = None
    ) -> "_Result":
        return _Result(self._transaction.run(query, parameters))


class _Result:
    def __init__(self, result: Result) -> None:
        self._result = result

    async def __aiter__(self) -> AsyncIterator[Record]:
        for record in self._result:
            yield record

    async def consume(self) -> ResultSummary:
        return self._result.consume()
