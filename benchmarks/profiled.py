"""Database hits of everything that goes through a queue."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from neo4j import AsyncResult, Record

from embed_pipeline.store.database import Database, Result, Transaction

PROFILE: Final = "PROFILE "


@dataclass
class Hits:
    """What was counted since ``take``."""

    total: int = 0

    def take(self) -> int:
        """Read and begin anew."""
        total, self.total = self.total, 0
        return total


@dataclass(frozen=True, slots=True)
class ProfiledDatabase(Database):
    """A database that lets the server profile every statement."""

    hits: Hits = field(default_factory=Hits)

    async def write(
        self, work: Callable[[Transaction], Awaitable[Result]], *, is_divisible: bool = False
    ) -> Result:
        """Run ``work`` as ever, and count."""
        profiled = self._profiling(work)
        return await Database.write(self, profiled, is_divisible=is_divisible)

    async def read(
        self, work: Callable[[Transaction], Awaitable[Result]], *, is_divisible: bool = False
    ) -> Result:
        """Run ``work`` as ever, and count."""
        return await Database.read(self, self._profiling(work), is_divisible=is_divisible)

    def _profiling(
        self, work: Callable[[Transaction], Awaitable[Result]]
    ) -> Callable[[Transaction], Awaitable[Result]]:
        return lambda tx: work(self._profiled(tx))

    def _profiled(self, tx: Transaction) -> Transaction:
        return cast("Transaction", _ProfiledTransaction(tx, self.hits))


@dataclass(frozen=True)
class _ProfiledTransaction:
    tx: Transaction
    hits: Hits

    async def run(self, statement: str, parameters: Mapping[str, Any]) -> "_ProfiledResult":
        result = await self.tx.run(cast("Any", PROFILE + statement), dict(parameters))
        return _ProfiledResult(result, self.hits)


@dataclass(frozen=True)
class _ProfiledResult:
    result: AsyncResult
    hits: Hits

    async def __aiter__(self) -> AsyncIterator[Record]:
        async for record in self.result:
            yield record
        summary = await self.result.consume()
        self.hits.total += _hits(summary.profile or {})


def _hits(plan: Mapping[str, Any]) -> int:
    own = plan.get("dbHits") or plan.get("args", {}).get("DbHits", 0)
    return own + sum(map(_hits, plan.get("children", ())))
