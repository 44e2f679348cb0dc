"""Feels whether the server answers, so that nobody is blamed for what nobody could have done."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, LiteralString

from neo4j import AsyncDriver
from neo4j.exceptions import DriverError, Neo4jError

from embed_pipeline.domain.queue_name import DEFAULT_QUEUE
from embed_pipeline.store.cypher import adopt, clock, worker
from embed_pipeline.store.database import Database, Transaction, fetch
from tests.proof.chaos.history import Log, now_ms
from tests.proof.chaos.plan import TRANSACTION_TIMEOUT

INTERVAL: Final = 0.5
SLOW_MS: Final = 1_000
"""A server that needs longer for a recovery of nothing is as good as none.

That is so for some time after a restart, when nothing is compiled and no plan is cached, and
whenever the machine has no time left.
"""
NOBODY: Final = "nobody's"
Statements = dict[LiteralString, dict[str, Any]]


def taking_back(count: int) -> Statements:
    """The transaction that takes leases away, of as many jobs as there are not.

    It holds nothing that anybody else wants, so who waits for a lock is not excused by it.
    """
    rows = [{"id": NOBODY, "after": "pending", "properties": {}}] * count
    return {
        worker.PICK_EXPIRED: {"now": None, "grace": 0, "limit": 1},
        worker.LOCK_JOBS: {"ids": [NOBODY] * count, "token": 1},
        worker.READ_JOBS: {"ids": [NOBODY] * count, "now": None},
        worker.CHANGE_JOBS: {"rows": rows},
        worker.ADD_COUNTERS: {"queue": NOBODY, "token": 1, "counts": {"recovered": 1}},
        clock.NOTE_CLOCK: {"queue": NOBODY, "token": 1, "now": None},
    }


RECOVERY_OF_NOTHING: Final[tuple[Statements, ...]] = (
    {adopt.COUNT_STRAYS: {"limit": 1}},
    {clock.READ_CLOCK: {"queue": DEFAULT_QUEUE, "now": None}},
    *map(taking_back, (1, 10, 100)),
)
"""The transactions of a recovery. Neo4j makes a plan for each order of magnitude of a list, and one
for empty lists that nobody else ever asks with."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """Recovers nothing, on a line of its own that nobody disturbs, in the time that others have.

    A transaction that is ended while its statement is planned leaves no plan behind. So a server on
    which nobody gets through looks well to whoever may wait until his own plans are made.
    """

    driver: AsyncDriver
    log: Log

    async def feel_for_ever(self) -> None:
        """Log every time in which the server was dead or too slow, or nobody got to ask."""
        last = now_ms()
        while True:
            await asyncio.sleep(INTERVAL)
            while not await self.answers():  # noqa: ASYNC110 - a dead server sends no event
                await asyncio.sleep(INTERVAL)
            now = now_ms()
            if now - last > SLOW_MS + INTERVAL * 1_000:
                self.log("blackout", since=last, until=now)
            last = now

    async def answers(self) -> bool:
        """Whether somebody could have recovered now."""
        once = Database(self.driver, timeout=TRANSACTION_TIMEOUT, patience=timedelta(0))
        try:
            for statements in RECOVERY_OF_NOTHING:
                await once.write(lambda tx, asked=statements: _ask(tx, asked))
        except (DriverError, Neo4jError, OSError, TimeoutError):
            return False
        return True


async def _ask(tx: Transaction, statements: Statements) -> None:
    for statement, parameters in statements.items():
        await fetch(tx, statement, **parameters)
