"""Users of the graph: they create, change and delete entities, each write together with its job."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, LiteralString

from neo4j import AsyncManagedTransaction, unit_of_work
from neo4j.exceptions import DriverError, Neo4jError

from embed_pipeline.domain.job import NewJob
from embed_pipeline.domain.lifecycle import EnqueueOutcome
from embed_pipeline.store.load import read_hashes
from embed_pipeline.store.queue import Queue
from tests.proof.chaos.history import ANSWER, ERROR, Log
from tests.proof.chaos.plan import TRANSACTION_TIMEOUT
from tests.proof.chaos.texts import MODEL, edited, first_text
from tests.support.queue_harness import enqueue_in

BATCH: Final = 20
RECENT: Final = 40
PUT: Final[LiteralString] = """
UNWIND $rows AS row
MERGE (entity:Entity {name: row.uid})
SET entity.entityType = 'chaos', entity.observations = [row.text], entity.version = row.version
"""
HUB_SHARE: Final = 0.3
"""Of the relations that lead to one entity, which has many."""
EDITS: Final[dict[str, LiteralString]] = {
    "add": """
    MATCH (one:Entity {name: $one}), (other:Entity {name: $other}) MERGE (one)-[:KNOWS]->(other)
    """,
    "remove": "MATCH (:Entity {name: $one})-[old:KNOWS]-() DELETE old",
    "rename": "MATCH (one:Entity {name: $one}) SET one.alias = $alias",
}
DELETE: Final[LiteralString] = (
    "UNWIND $rows AS row MATCH (e:Entity {name: row.uid}) DETACH DELETE e"
)


@dataclass(frozen=True, slots=True)
class Written:
    """What an entity is to be after a write."""

    uid: str
    version: int
    text: str

    @property
    def row(self) -> dict[str, Any]:
        return {"uid": self.uid, "version": self.version, "text": self.text}


@dataclass
class Writer:
    """Repeats each write until it is acknowledged; until then nobody knows."""

    name: str
    queue: Queue
    log: Log
    chance: random.Random
    living: dict[str, Written] = field(default_factory=dict)
    created: int = 0

    async def create(self, count: int) -> None:
        """Make entities, and their jobs, in one transaction."""
        first, self.created = self.created, self.created + count
        rows = [
            Written(f"{self.name}{number}", 1, first_text(number))
            for number in range(first, self.created)
        ]
        await self._put(rows, kind="create")
        self.living.update((row.uid, row) for row in rows)

    async def create_special(self, uid: str, text: str) -> None:
        """Make an entity that nobody changes."""
        await self._put([Written(uid, 1, text)], kind="create")

    async def update(self) -> None:
        """Change a text, half of the time with a new version."""
        # Half of them while the first text is still waiting, or just being embedded.
        everybody = list(self.living.values())
        before = self.chance.choice(everybody[-RECENT if self.chance.random() < 0.5 else 0 :])
        version = before.version + self.chance.randint(0, 1)
        after = Written(before.uid, version, edited(before.text, self.chance))
        await self._put([after], kind="update")
        self.living[after.uid] = after

    async def delete(self) -> None:
        """Remove an entity; its jobs stay."""
        gone = self.living.pop(self.chance.choice(list(self.living)))

        async def work(tx: AsyncManagedTransaction) -> None:
            await tx.run(DELETE, rows=[gone.row])

        await self._until_acknowledged("delete", [gone], work)

    async def _put(self, rows: Sequence[Written], *, kind: str) -> None:
        async def work(tx: AsyncManagedTransaction) -> list[EnqueueOutcome]:
            await tx.run(PUT, rows=[row.row for row in rows])
            # The neighbours that this transaction sees are in the texts.
            found = await read_hashes(tx, self.queue.config, [row.uid for row in rows])
            jobs = [
                NewJob(row.uid, MODEL, row.version, text_hash=found[row.uid].text_hash)
                for row in rows
            ]
            return await enqueue_in(self.queue, tx, jobs)

        await self._until_acknowledged(kind, rows, work)

    async def edit_relations(self) -> None:
        """Join two entities, part them, or call one otherwise in the texts of the others.

        Nobody enqueues anything: it is a client that knows nothing of the queue, without a trigger.
        """
        one, other = (self.chance.choice(list(self.living)) for _ in range(2))
        if self.chance.random() < HUB_SHARE:
            other = next(iter(self.living))
        kind = self.chance.choice(list(EDITS))
        row = {"one": one, "other": other, "alias": f"alias {self.chance.getrandbits(32):x}"}
        statement = EDITS[kind]

        async def work(tx: AsyncManagedTransaction) -> None:
            await tx.run(statement, row)

        await self._repeat("relation", {"kind": kind, "row": row}, work)

    async def _until_acknowledged(
        self,
        kind: str,
        rows: Sequence[Written],
        work: Callable[[AsyncManagedTransaction], Awaitable[Any]],
    ) -> None:
        await self._repeat("write", {"kind": kind, "rows": [row.row for row in rows]}, work)

    async def _repeat(
        self,
        what: str,
        facts: dict[str, Any],
        work: Callable[[AsyncManagedTransaction], Awaitable[Any]],
    ) -> None:
        seconds = TRANSACTION_TIMEOUT.total_seconds()
        bounded = unit_of_work(timeout=seconds)(work)
        while True:
            try:
                async with asyncio.timeout(2 * seconds):
                    async with self.queue.database.driver.session() as session:
                        outcomes = await session.execute_write(bounded)
            except (DriverError, Neo4jError, OSError, TimeoutError) as error:
                self.log(what, phase=ERROR, error=type(error).__name__, **facts)
                await asyncio.sleep(0.5)
            else:
                self.log(what, phase=ANSWER, outcome=outcomes, **facts)
                return
