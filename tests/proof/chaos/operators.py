"""Operators of the queue, and the upkeep that Dagster's sensors do."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final, LiteralString

from neo4j import AsyncManagedTransaction, unit_of_work
from neo4j.exceptions import DriverError, Neo4jError

from embed_pipeline.domain.errors import (
    EmbedPipelineError,
    ErrorCategory,
    JobNotFoundError,
    TransitionRefusedError,
)
from embed_pipeline.domain.job import Job, JobFilter, JobStatus
from embed_pipeline.operations.recovery import recover_all
from embed_pipeline.store.database import Database
from embed_pipeline.store.purge import SHORTEST_RETENTION, Neo4jPurge
from embed_pipeline.store.queue import Queue
from tests.integration.test_store_adoption import (
    REQUIRED_NODE,
    REQUIRED_RECOVERY,
    REQUIRED_RESET,
)
from tests.proof.chaos.history import ANSWER, ERROR, Log
from tests.proof.chaos.plan import RECOVERY_INTERVAL, TRANSACTION_TIMEOUT
from tests.proof.chaos.texts import MODEL
from tests.proof.chaos.writers import PUT

RETENTION: Final = timedelta(seconds=15)
OPERATOR: Final = "operator"
RECOVERIES_PER_SCAN: Final = 10
ERRORS: Final = (DriverError, Neo4jError, EmbedPipelineError, OSError, TimeoutError)

LOCK_FAILED: Final[LiteralString] = (
    "MATCH (job:EmbedJob {status: 'failed'}) SET job._hand = 1 RETURN job.id AS x"
)
LOCK_EXPIRED: Final[LiteralString] = """
MATCH (job:EmbedJob {status: 'processing'}) WHERE job.lock_until < timestamp()
SET job._hand = 1 RETURN job.id AS x
"""
ALLOW: Final[LiteralString] = (
    "MATCH (job:EmbedJob {entity_uid: $uid}) SET job.max_attempts = $most RETURN job.id AS x"
)


async def rows_of(
    tx: AsyncManagedTransaction, statement: LiteralString, **parameters: Any
) -> list[dict[str, Any]]:
    result = await tx.run(statement, parameters)
    return await result.data()


def now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


@dataclass
class Operators:
    """Each action is repeated until the database has answered."""

    queue: Queue
    log: Log
    chance: random.Random
    attempts: int
    """Of every job."""

    async def cancel(self) -> None:
        """Cancel a job that is waiting or in work, and none of those that a test is about."""
        open_states = frozenset({JobStatus.PENDING, JobStatus.PROCESSING})
        while True:
            found = await self._until_answered(
                "look", lambda: self.queue.admin.find_jobs(JobFilter(statuses=open_states))
            )
            ordinary = [job for job in found if not job.entity_uid.startswith("special")]
            if ordinary and await self._cancel(self.chance.choice(ordinary)):
                return
            await asyncio.sleep(0.2)

    async def _cancel(self, job: Job) -> bool:
        facts = {"id": job.id, "uid": job.entity_uid, "version": job.version}
        try:
            await self._until_answered(
                "cancel", lambda: self.queue.admin.cancel_job(job.id, by=OPERATOR), **facts
            )
        except (TransitionRefusedError, JobNotFoundError):
            return False
        return True

    async def retry(self, *, also_killers: bool) -> None:
        """Give failed jobs another chance, which the special ones will not use."""
        which = JobFilter(categories=frozenset({ErrorCategory.PERMANENT}))
        if also_killers:
            which = JobFilter()
        report = await self._until_answered("retry", lambda: self.queue.admin.retry_failed(which))
        self.log("retry", phase=ANSWER, ids=report.job_ids)

    async def switch_off_and_on(self, seconds: float) -> None:
        """Pause the queue and resume it."""
        await self._until_answered("off", lambda: self.queue.switch.pause(by=OPERATOR))
        await asyncio.sleep(seconds)
        await self._until_answered("on", self.queue.switch.resume)

    async def close_breaker(self) -> None:
        """Say that the provider works again."""
        await self._until_answered("breaker", self.queue.switch.close_breaker)

    async def purge(self) -> None:
        """Clean up with a clock that runs ahead: a retention below a day is refused."""

        def ahead() -> datetime:
            return datetime.now(UTC) + SHORTEST_RETENTION - RETENTION

        real = self.queue.database
        moved = Database(real.driver, real.name, ahead, real.timeout)
        purge = Neo4jPurge(moved, self.queue.config)
        report = await self._until_answered(
            "purge", lambda: purge.purge_terminal(retention=SHORTEST_RETENTION)
        )
        self.log("purge", phase=ANSWER, deleted=report.deleted)

    async def write_as_others_do(self, where: float) -> None:
        """Make an entity, and its job exactly as requirement 001 describes it."""
        uid = f"foreign{where}"
        row = {"uid": uid, "version": 1, "text": f"written by others at {where}"}
        node = {"model": MODEL, "status": "pending", "now": now_ms(), "attempts": 0}
        nothing = dict.fromkeys(("processed_at", "owner", "until", "error"))

        async def work(tx: AsyncManagedTransaction) -> None:
            await tx.run(PUT, rows=[row])
            # The same again after an answer that was lost.
            if not await rows_of(tx, "MATCH (job:EmbedJob {entity_uid: $uid}) RETURN job", uid=uid):
                await tx.run(REQUIRED_NODE, uid=uid, version=1, **node, **nothing)
                made = await rows_of(tx, ALLOW, uid=uid, most=self.attempts)
                self.log("edit", ids=[row["x"] for row in made])

        await self._until_answered("write", lambda: self._in_session(work), kind="x", rows=[row])

    async def recover_by_hand(self) -> None:
        """Run the recovery query of the requirements."""

        async def work(tx: AsyncManagedTransaction) -> None:
            await rows_of(tx, LOCK_EXPIRED)
            # Before the commit: what may be edited is known, whatever becomes of it. All in work:
            # their query reads the clock anew, and leases expire between two statements.
            held = await rows_of(tx, "MATCH (job:EmbedProcessing) RETURN job.id AS x")
            self.log("edit", ids=[row["x"] for row in held])
            await tx.run(REQUIRED_RECOVERY)

        await self._until_answered("by hand", lambda: self._in_session(work))

    async def reset_by_hand(self) -> None:
        """Reset failed jobs as the requirements do, which the special ones will not use."""

        async def work(tx: AsyncManagedTransaction) -> list[str]:
            ids = [row["x"] for row in await rows_of(tx, LOCK_FAILED)]
            self.log("edit", ids=ids)
            await tx.run(REQUIRED_RESET)
            return ids

        ids = await self._until_answered("retry", lambda: self._in_session(work))
        self.log("retry", phase=ANSWER, ids=ids)

    async def _in_session(self, work: Callable[[AsyncManagedTransaction], Awaitable[Any]]) -> Any:
        bounded = unit_of_work(timeout=TRANSACTION_TIMEOUT.total_seconds())(work)
        async with self.queue.database.driver.session() as session:
            return await session.execute_write(bounded)

    async def recover_for_ever(self) -> None:
        """What the sensors do, at their pace: recovery, and every tenth time what the scan adopts.

        A job that was reset by hand has the label of another state, which only the scan looks for.
        """
        for number in count():
            pace = asyncio.create_task(asyncio.sleep(RECOVERY_INTERVAL.total_seconds()))
            try:
                await recover_all(self.queue, grace=timedelta(0))
                if number % RECOVERIES_PER_SCAN == 0:
                    await self.queue.adoption.all()
            except ERRORS as error:
                self.log("upkeep", phase=ERROR, error=type(error).__name__)
            await pace

    async def _until_answered(
        self, what: str, action: Callable[[], Awaitable[Any]], **facts: Any
    ) -> Any:
        while True:
            try:
                async with asyncio.timeout(20):
                    answer = await action()
            except (TransitionRefusedError, JobNotFoundError):
                self.log(what, phase="refused", **facts)
                raise
            except ERRORS as error:
                self.log(what, phase=ERROR, error=type(error).__name__, **facts)
                await asyncio.sleep(0.5)
            else:
                if facts:
                    self.log(what, phase=ANSWER, **facts)
                return answer
