"""Operators of the queue, and the upkeep that Dagster's sensors do."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from neo4j.exceptions import DriverError, Neo4jError

from embed_pipeline.domain.errors import (
    EmbedPipelineError,
    ErrorCategory,
    JobNotFoundError,
    TransitionRefusedError,
)
from embed_pipeline.domain.filters import JobFilter
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.recovering import recover_all
from embed_pipeline.store.database import Database
from embed_pipeline.store.purging import SHORTEST_RETENTION, Neo4jPurge
from embed_pipeline.store.queue import Queue
from tests.chaos.history import ANSWER, ERROR, Log
from tests.chaos.plan import RECOVERY_INTERVAL

RETENTION: Final = timedelta(seconds=15)
OPERATOR: Final = "operator"
ERRORS: Final = (DriverError, Neo4jError, EmbedPipelineError, OSError, TimeoutError)


@dataclass
class Operators:
    """Each action is repeated until the database has answered."""

    queue: Queue
    log: Log
    chance: random.Random

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

    async def _cancel(self, job: Any) -> bool:
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

    async def recover_for_ever(self) -> None:
        """What the sensor does, at its pace."""
        while True:
            pace = asyncio.create_task(asyncio.sleep(RECOVERY_INTERVAL.total_seconds()))
            try:
                await recover_all(self.queue, grace=timedelta(0))
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
