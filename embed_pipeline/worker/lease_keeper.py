"""Which leases this worker holds, and the heartbeat that keeps every one of them alive."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from contextvars import copy_context
from datetime import timedelta
from typing import Final, Self

from embed_pipeline.domain.job import Lease
from embed_pipeline.domain.ports import JobStore
from embed_pipeline.worker.report import DrainReport, log_jobs

logger = logging.getLogger(__name__)


Clock = Callable[[], float]
"""Seconds that never go back, also while the process is suspended."""


class Holdings:
    """The leases of this worker, shared with the heartbeat thread.

    A lease counts as held until the deadline that the database last confirmed. After that the
    worker writes nothing about the job, without asking anybody: it may have been suspended.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.clock = clock
        self._deadlines: dict[Lease, float] = {}
        self._mutex = threading.Lock()

    def __len__(self) -> int:
        with self._mutex:
            return len(self._deadlines)

    def add(self, leases: Iterable[Lease], *, deadline: float) -> None:
        """Add new leases; their deadline counts from before the request."""
        with self._mutex:
            self._deadlines.update(dict.fromkeys(leases, deadline))

    def extend(self, leases: Iterable[Lease], *, deadline: float) -> None:
        """Record a confirmed heartbeat; leases dropped meanwhile stay dropped."""
        with self._mutex:
            for lease in leases:
                if lease in self._deadlines:
                    self._deadlines[lease] = deadline

    def drop(self, leases: Iterable[Lease]) -> int:
        """Forget leases that have ended in any way; return how many were known."""
        with self._mutex:
            return sum(self._deadlines.pop(lease, None) is not None for lease in leases)

    def all(self) -> list[Lease]:
        """All leases that have not ended, for the heartbeat and the final release."""
        with self._mutex:
            return list(self._deadlines)

    def is_held(self, lease: Lease) -> bool:
        """Whether this worker may still write about the job."""
        with self._mutex:
            return self._deadlines.get(lease, 0.0) > self.clock()


OpenStore = Callable[[], AbstractAsyncContextManager[JobStore]]
"""Opens a store for the event loop that calls it: a driver belongs to the loop that made it."""

TOLERATED_FAILURES: Final = 3
LEASES_PER_BEAT: Final = 1_000


class Heartbeat:
    """Beats from entering the block to leaving it.

    A thread, because the worker's own loop stands still while it counts tokens or reads a large
    answer. All leased jobs are beaten for, not only those in work: the tail of a batch would
    expire otherwise. A failed beat changes nothing; the old deadline holds.
    """

    def __init__(
        self,
        holdings: Holdings,
        report: DrainReport,
        open_store: OpenStore,
        *,
        interval: timedelta,
        lease: timedelta,
    ) -> None:
        self._holdings = holdings
        self._report = report
        self._open_store = open_store
        self._interval = interval.total_seconds()
        self._lease = lease
        self._failures = 0
        self._stop = threading.Event()
        self._context = copy_context()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    @property
    def is_failing(self) -> bool:
        """Whether several beats in a row have failed: lease nothing new."""
        return self._failures >= TOLERATED_FAILURES

    def forgive(self) -> None:
        """Forget failed beats: the database has answered since."""
        self._failures = 0

    async def __aenter__(self) -> Self:
        # A thread begins with no context of its own; the beats belong to the trace of the drain.
        self._context = copy_context()
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        self._context.run(asyncio.run, self._beat_until_stopped())

    async def _beat_until_stopped(self) -> None:
        async with self._open_store() as store:
            while not await asyncio.to_thread(self._stop.wait, self._interval):
                await self._beat(store)

    async def _beat(self, store: JobStore) -> None:
        leases = self._holdings.all()
        if not leases:
            return
        try:
            for start in range(0, len(leases), LEASES_PER_BEAT):
                await self._extend(store, leases[start : start + LEASES_PER_BEAT])
        except Exception as error:
            self._failures += 1
            self._report.heartbeats_failed += 1
            logger.warning(
                "owner=%s heartbeat failed (%d in a row): %s",
                self._report.owner,
                self._failures,
                type(error).__name__,
            )
        else:
            self._failures = 0
            self._report.heartbeats += 1

    async def _extend(self, store: JobStore, leases: list[Lease]) -> None:
        # Counted from before the question: when it was answered is not known.
        deadline = self._holdings.clock() + self._lease.total_seconds()
        beat = await store.heartbeat(leases, duration=self._lease)
        self._holdings.extend(beat.held, deadline=deadline)
        log_jobs(logging.DEBUG, "heartbeat", self._report.owner, beat.held)
        for word, gone in (("lost", beat.lost), ("cancelled", beat.cancelled)):
            # What the worker has ended itself in the meantime is no longer among the holdings.
            for lease in gone:
                if self._holdings.drop([lease]):
                    self._report.lost += 1
                    logger.warning("job=%s owner=%s %s", lease.job_id, lease.owner, word)
