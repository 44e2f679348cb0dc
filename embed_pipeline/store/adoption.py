"""Finds the jobs that others wrote or edited, in bounded pages; ``adopting`` puts them right."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from neo4j.exceptions import ConstraintError

from embed_pipeline.store.adopt import adopt
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import adopt as cypher
from embed_pipeline.store.database import Database, Transaction, fetch, fetch_one
from embed_pipeline.store.enqueue import enqueue
from embed_pipeline.store.transactions import count, new_token, write_once

PAGE: Final = 500
"""Jobs of one transaction."""
AT_ONCE: Final = 5_000
"""Jobs that one look finds; more are left for the next."""
JOBS_PER_WALK: Final = 10_000
"""Jobs that one page of the walk looks at."""


@dataclass(frozen=True, slots=True)
class AdoptionPage:
    """The result of one page; ``cursor`` is ``None`` at the end."""

    cursor: str | None
    adopted: int


@dataclass(frozen=True, slots=True)
class Neo4jAdoption:
    """Finds jobs whose label, lane or fence does not fit their status, and repairs them."""

    database: Database
    config: QueueConfig

    async def strays(self) -> int:
        """Adopt nodes without a label of ours, and leases that another program has ended.

        Costs a look at the counts and two seeks where there are none.
        """
        return await self.these(await self.database.read_latest(self._find))

    async def page(self, *, after: str = "") -> AdoptionPage:
        """Adopt what is found among the next jobs in order of their ids."""
        record = await self.database.read_latest(
            lambda tx: fetch_one(tx, cypher.WALK_JOBS, after=after, limit=JOBS_PER_WALK)
        )
        adopted_ = await self.these(record["strays"])
        cursor = record["last"] if record["jobs"] == JOBS_PER_WALK else None
        return AdoptionPage(cursor, adopted_)

    async def all(self) -> int:
        """Look at every job there is."""
        total = 0
        while found := await self.strays():
            total += found
        cursor: str | None = ""
        while cursor is not None:
            page = await self.page(after=cursor)
            total, cursor = total + page.adopted, page.cursor
        return total

    async def these(self, elements: Sequence[str]) -> int:
        """Adopt those of the nodes that need it."""
        total = 0
        for start in range(0, len(elements), PAGE):
            total += await self._adopt_page(elements[start : start + PAGE])
        return total

    async def _find(self, tx: Transaction) -> list[str]:
        found = await fetch_one(tx, cypher.COUNT_STRAYS, limit=AT_ONCE)
        elements: list[str] = found["moved"]
        if found["nodes"] != found["labelled"]:
            records = await fetch(tx, cypher.PICK_UNLABELLED, limit=AT_ONCE)
            elements += [record["element"] for record in records]
        return list(dict.fromkeys(elements))

    async def _adopt_page(self, elements: Sequence[str]) -> int:
        token = new_token()

        async def work(tx: Transaction) -> int:
            now = self.database.now_ms
            found = await adopt(tx, self.config, elements, token=token, now=now)
            if found.wishes:
                await enqueue(tx, self.config, found.wishes, now=now)
            await count(tx, self.config.queue, {"adopted": found.count}, token=token)
            return found.count

        try:
            return await write_once(self.database, self.config.queue, token, work)
        except ConstraintError:
            # A job with the key of a stray was made a moment ago: now it is seen.
            return await write_once(self.database, self.config.queue, token, work)
