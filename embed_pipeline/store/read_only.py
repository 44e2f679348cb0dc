"""A driver whose every transaction is one that reads, so that the server itself refuses a write.

What is handed to an agent must not depend on our own code only reading: Neo4j ends a transaction in
read mode at its first write, from any caller.
"""

from collections.abc import Awaitable, Callable
from typing import Any, LiteralString, Self, TypeVar, cast

from neo4j import READ_ACCESS, AsyncDriver, AsyncResult, AsyncSession

from embed_pipeline.store.connection import Connection, open_driver

Answer = TypeVar("Answer")


def open_reading_driver(connection: Connection) -> AsyncDriver:
    """Open a driver that cannot write; nothing is sent before its first use.

    The cast is as honest as the tests, which run the store through it.

    Raises:
        ConfigurationError: the URI cannot be one of Neo4j, or holds a password.
    """
    return cast("AsyncDriver", _Driver(open_driver(connection)))


class _Driver:
    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._driver.close()

    async def verify_connectivity(self) -> None:
        await self._driver.verify_connectivity()

    def session(self, **config: Any) -> "_Session":
        return _Session(self._driver.session(**config, default_access_mode=READ_ACCESS))


class _Session:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def run(self, query: LiteralString, parameters: dict[str, Any]) -> AsyncResult:
        return await self._session.run(query, parameters)

    async def execute_read(self, work: Callable[[Any], Awaitable[Answer]]) -> Answer:
        return await self._session.execute_read(work)

    # Work that only reads, and wants the leader for it: here it gets what may be read.
    execute_write = execute_read
