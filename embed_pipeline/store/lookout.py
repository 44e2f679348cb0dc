"""Looks at leases without touching them: is a recovery due, and who holds jobs."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from embed_pipeline.domain.job import Job, JobStatus
from embed_pipeline.store.clock import note_clock
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher.adopt import COUNT_STRAYS
from embed_pipeline.store.cypher.clock import READ_CLOCK
from embed_pipeline.store.cypher.lookout import COUNT_OPEN, FIND_OVERDUE, READ_FAILED, READ_HOLDERS
from embed_pipeline.store.cypher.worker import PICK_EXPIRED
from embed_pipeline.store.database import (
    Database,
    Transaction,
    duration_ms,
    fetch,
    fetch_one,
    to_ms,
)
from embed_pipeline.store.records import to_job
from embed_pipeline.store.transactions import count, new_token, write_once

EXPIRED: Final = "leases have expired"
STRAYS: Final = "another program wrote or edited jobs"
CLOCK: Final = "the clock of the server went back"

MOST_FAILED: Final = 1_000
"""Failures that are looked at to tell their kinds."""
MOST_OVERDUE: Final = 500
"""Ended jobs that are looked at to tell whether the clean-up runs."""


@dataclass(frozen=True, slots=True)
class Neo4jLookout:
    """Read-only questions about leases and failures."""

    database: Database
    config: QueueConfig

    async def is_at_rest(self) -> bool:
        """Whether no job waits and none is in work, by the count store alone."""
        found = await self.database.read(lambda tx: fetch_one(tx, COUNT_OPEN))
        return not found["open"]

    async def recovery_needed(self, *, grace: timedelta) -> str | None:
        """Why a recovery is needed now; None if it would find nothing."""

        async def work(tx: Transaction) -> str | None:
            now = self.database.now_ms
            if await fetch(tx, PICK_EXPIRED, now=now, grace=duration_ms(grace), limit=1):
                return EXPIRED
            found = await fetch_one(tx, COUNT_STRAYS, limit=1)
            if found["moved"] or found["nodes"] != found["labelled"]:
                return STRAYS
            clock = await fetch_one(tx, READ_CLOCK, queue=self.config.queue, now=now)
            is_back = clock["last"] is not None and clock["last"] > clock["now"]
            return CLOCK if is_back else None

        return await self.database.read_latest(work)

    async def record_vain_look(self) -> None:
        """Record a recovery of 0: the look has found nothing to recover."""
        token, queue = new_token(), self.config.queue

        async def work(tx: Transaction) -> None:
            await count(tx, queue, {"recoveries": 1}, token=token)
            await note_clock(tx, self.database, self.config)

        await write_once(self.database, queue, token, work)

    async def holders(self) -> list[str]:
        """The current owners of jobs."""
        records = await self.database.read(lambda tx: fetch(tx, READ_HOLDERS))
        return [record["owner"] for record in records]

    async def failed_since(self, since: datetime, *, limit: int = MOST_FAILED) -> list[Job]:
        """The jobs that failed since then and were not reopened, the latest first."""
        records = await self.database.read(
            lambda tx: fetch(tx, READ_FAILED, since=to_ms(since), limit=limit)
        )
        return [to_job(record["job"]) for record in records]

    async def overdue(self, kept: Mapping[JobStatus, timedelta]) -> dict[JobStatus, timedelta]:
        """How long ago jobs ended that are older than those of their state may be, if any."""

        async def work(tx: Transaction) -> dict[JobStatus, timedelta]:
            found: dict[JobStatus, timedelta] = {}
            for status, allowed in kept.items():
                record = await fetch_one(
                    tx,
                    FIND_OVERDUE,
                    now=self.database.now_ms,
                    kept=duration_ms(allowed),
                    status=status.value,
                    limit=MOST_OVERDUE,
                )
                if (age := record["age"]) is not None:
                    found[status] = timedelta(milliseconds=age)
            return found

        return await self.database.read(work)
