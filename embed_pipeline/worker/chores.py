"""What a drain does beside its jobs: it recovers expired leases, counts, and submits batches."""

import asyncio
import logging
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from embed_pipeline.domain.ports import Counters, JobStore
from embed_pipeline.domain.results import RecoveredJob
from embed_pipeline.worker.lease_keeper import Clock
from embed_pipeline.worker.options import Batching, DrainOptions
from embed_pipeline.worker.report import DrainReport
from embed_pipeline.worker.stopping import unless_stopped

logger = logging.getLogger(__name__)


COUNTED: Final = (
    *("completed", "requests", "requests_limited", "tokens", "cost_nano_usd", "cache_hits"),
    "heartbeats_failed",
)
SECONDS_BETWEEN: Final = 15.0
"""So much is missing in the counters when a drain is killed."""


class Counting:
    """Adds a drain's counts to the shared counters; its errors never end a drain."""

    def __init__(
        self,
        counters: Counters,
        report: DrainReport,
        clock: Clock = time.monotonic,
        *,
        counted: Sequence[str] = COUNTED,
    ) -> None:
        self._counters = counters
        self._report = report
        self._clock = clock
        self._sent = dict.fromkeys(counted, 0)
        self._due_at = self._clock() + SECONDS_BETWEEN

    async def if_due(self) -> None:
        """Send at intervals during a drain."""
        if self._clock() >= self._due_at:
            await self.send()

    async def send(self) -> None:
        """Send what has not been sent yet."""
        self._due_at = self._clock() + SECONDS_BETWEEN
        now = {name: getattr(self._report, name) for name in self._sent}
        news = {name: now[name] - sent for name, sent in self._sent.items() if now[name] > sent}
        if not news:
            return
        try:
            await self._counters.count(news)
        except Exception as error:
            logger.warning("owner=%s cannot count: %s", self._report.owner, type(error).__name__)
        else:
            self._sent = now


SECONDS_BETWEEN_BATCHES: Final = 60.0


class Submitting:
    """Lets what can wait go into a batch before it is leased for ordinary requests.

    A drain does about as many jobs as make a batch and then looks at the backlog again: what comes
    meanwhile is not paid for in full.
    """

    def __init__(
        self,
        batching: Batching | None,
        report: DrainReport,
        stop: asyncio.Event,
        clock: Clock,
    ) -> None:
        self._batching = batching
        self._report = report
        self._stop = stop
        self._clock = clock
        self._due_at = 0.0
        self._leased = 0

    async def if_due(self) -> None:
        """Look before the first lease, every minute, and after as many jobs as make a batch."""
        if self._batching is None or self._stop.is_set():
            return
        has_done_enough = self._report.leased - self._leased >= self._batching.least
        if self._clock() < self._due_at and not has_done_enough:
            return
        # A file of 150 MB takes minutes: who stops the drain does not wait for it. How far it came
        # is written down, and others go on.
        await unless_stopped(self._batching.look(self._report), self._stop)
        self._due_at = self._clock() + SECONDS_BETWEEN_BATCHES
        self._leased = self._report.leased


JOBS_PER_RECOVERY: Final = 500


class Recovery:
    """Recovers expired leases; its errors are logged and counted, and never end a drain."""

    def __init__(
        self,
        store: JobStore,
        options: DrainOptions,
        report: DrainReport,
        clock: Clock = time.monotonic,
    ) -> None:
        self._store = store
        self._clock = clock
        self._interval = options.recovery_interval
        self._grace = options.recovery_grace
        self._report = report
        self.due_at = float("inf")

    async def until_none_is_left(self) -> None:
        """Recover at the start, so that this drain completes the jobs of a killed run."""
        if not self._interval:
            logger.info("owner=%s recovery is off", self._report.owner)
            return
        while await self._recover() == JOBS_PER_RECOVERY:
            pass

    async def if_due(self) -> None:
        """Recover during a drain, bounded, at most once per interval."""
        if self._clock() >= self.due_at:
            await self._recover()

    async def _recover(self) -> int:
        self.due_at = self._clock() + self._interval / timedelta(seconds=1)
        try:
            recovered = await self._store.recover_expired(
                limit=JOBS_PER_RECOVERY, grace=self._grace
            )
        except Exception as error:
            self._report.recovery_errors += 1
            logger.warning("owner=%s recovery failed: %s", self._report.owner, type(error).__name__)
            return 0
        self._report.note_recovered(recovered)
        for job in recovered:
            _log(job)
        logger.info("owner=%s recovered %d expired leases", self._report.owner, len(recovered))
        return len(recovered)


def _log(job: RecoveredJob) -> None:
    logger.warning("%s", job.line)
