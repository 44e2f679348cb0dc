"""Feels whether the server answers, so that nobody is blamed for what nobody could have done."""

import asyncio
from dataclasses import dataclass
from typing import Any, Final, LiteralString

from neo4j import AsyncDriver
from neo4j.exceptions import DriverError, Neo4jError

from embed_pipeline.store.cypher import worker as cypher
from tests.proof.chaos.history import Log, now_ms

INTERVAL: Final = 0.5
SLOW_MS: Final = 1_000
"""A server that needs longer for a recovery of nothing is as good as none.

That is so for some time after a restart, when nothing is compiled and no plan is cached, and
whenever the machine has no time left.
"""


RECOVERY_OF_NOTHING: Final[dict[LiteralString, dict[str, Any]]] = {
    cypher.PICK_EXPIRED: {"now": None, "grace": 0, "limit": 1},
    cypher.LOCK_JOBS: {"ids": [], "token": 1},
    cypher.READ_JOBS: {"ids": [], "now": None},
    cypher.CHANGE_JOBS: {"rows": []},
    cypher.ADD_COUNTERS: {"queue": "nobody's", "token": 1, "counts": {}},
}


@dataclass(frozen=True, slots=True)
class Pulse:
    """Recovers nothing, on a line of its own that nobody disturbs, and without a timeout."""

    driver: AsyncDriver
    log: Log

    async def feel_for_ever(self) -> None:
        """Log every time in which the server was dead or too slow, or nobody got to ask."""
        last = now_ms()
        while True:
            await asyncio.sleep(INTERVAL)
            while not await self._answers():  # noqa: ASYNC110 - a dead server sends no event
                await asyncio.sleep(INTERVAL)
            now = now_ms()
            if now - last > SLOW_MS + INTERVAL * 1_000:
                self.log("blackout", since=last, until=now)
            last = now

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(30), self.driver.session() as session:
                tx = await session.begin_transaction()
                for statement, parameters in RECOVERY_OF_NOTHING.items():
                    await (await tx.run(statement, parameters)).consume()
                await tx.rollback()
        except (DriverError, Neo4jError, OSError, TimeoutError):
            return False
        return True
