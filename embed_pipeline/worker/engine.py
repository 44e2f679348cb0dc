"""The drain: leases ahead, embeds several batches at once, and completes, all overlapping."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from embed_pipeline.domain.breaker import BreakerStatus
from embed_pipeline.domain.errors import CriticalError
from embed_pipeline.domain.ports import Counters, Embedder, JobStore, QueueSwitch, RateLimiter
from embed_pipeline.domain.text import Render
from embed_pipeline.worker.batching import Item
from embed_pipeline.worker.counting import Counting
from embed_pipeline.worker.heartbeat import Heartbeat, OpenStore
from embed_pipeline.worker.holdings import Holdings
from embed_pipeline.worker.intake import Intake
from embed_pipeline.worker.options import DrainOptions
from embed_pipeline.worker.processing import Processor
from embed_pipeline.worker.recovery import Recovery
from embed_pipeline.worker.report import DrainReport, Ending
from embed_pipeline.worker.settling import Settler

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """What a drain works with."""

    store: JobStore
    open_store: OpenStore
    """Opens another store, for the thread of the heartbeat."""
    limiter: RateLimiter
    switch: QueueSwitch
    counters: Counters
    embedder: Embedder
    render: Render
    recipe: str


class Drain:
    """One drain, from its first recovery to its last release."""

    def __init__(
        self,
        parts: Parts,
        *,
        owner: str,
        options: DrainOptions | None = None,
        stop: asyncio.Event | None = None,
    ) -> None:
        """Nothing happens before ``run``.

        Args:
            parts: store, limiter, provider and the like.
            owner: who holds the leases; begins with the id of the run.
            options: sizes and budgets.
            stop: set it to end the drain: no new lease, a grace, then everything is given back.
        """
        self.report = DrainReport(owner=owner, model=parts.embedder.model)
        self._parts = parts
        self._options = options or DrainOptions()
        self._stop = stop or asyncio.Event()
        self._holdings = Holdings()
        self._settler = Settler(parts.store, self._holdings, self.report)
        self._recovery = Recovery(parts.store, self._options, self.report)
        self._counting = Counting(parts.counters, self.report)
        self._intake = Intake(parts, self._options, self._holdings, self.report)
        self._processor = Processor(parts, self._options, self._settler, self.report)
        self._heartbeat = Heartbeat(
            self._holdings,
            self.report,
            parts.open_store,
            interval=self._options.heartbeat,
            lease=self._options.lease,
        )
        self._ready: deque[list[Item]] = deque()
        self._requests: set[asyncio.Task[None]] = set()
        self._leasing: asyncio.Task[None] | None = None
        self._resume_at = 0.0
        self._deadline = float("inf")

    @property
    def waiting(self) -> float:
        """Seconds until the rate limit lets the drain go on; 0 while it works."""
        return max(0.0, self._resume_at - time.monotonic())

    async def run(self) -> DrainReport:
        """Work until there is nothing left, the budget is used, or the drain is told to stop.

        Raises:
            EmbedPipelineError: the database cannot be reached; what was held is given back, or
                expires.
        """
        started = time.monotonic()
        if self._options.max_time is not None:
            self._deadline = started + self._options.max_time.total_seconds()
        async with self._heartbeat:
            try:
                await self._recovery.until_none_is_left()
                await self._work()
            finally:
                await self._wind_down()
                self.report.seconds = time.monotonic() - started
        logger.info("drain ended: %s", self.report.as_dict())
        return self.report

    async def _work(self) -> None:
        while (ending := self._ending()) is None:
            await self._recovery.if_due()
            await self._counting.if_due()
            await self._send()
            self._lease_ahead()
            await self._until_something_happens()
        self.report.ending = ending

    def _ending(self) -> Ending | None:
        if self._stop.is_set():
            return Ending.STOPPED
        if self._processor.critical is not None:
            self.report.reason = str(self._processor.critical)
            return Ending.CRITICAL
        if self._heartbeat.is_failing:
            return Ending.HEARTBEAT
        now = time.monotonic()
        if now >= self._deadline:
            return Ending.BUDGET
        if self._requests or self._leasing or self._ready:
            return None
        if self._intake.refusal is not None:
            self.report.reason = self._intake.refusal
            return Ending.CLOSED
        if self._intake.budget == 0:
            return Ending.BUDGET
        if self._resume_at > self._deadline:
            self.report.reason = "the rate limit lasts longer than the time left"
            return Ending.BUDGET
        return Ending.EMPTY if self._intake.is_dry and self._options.until_empty else None

    async def _send(self) -> None:
        """Start requests for what is ready, as many as may be under way and as the limit allows."""
        while self._ready and len(self._requests) < self._options.requests_at_once:
            if self._processor.critical is not None or self._stop.is_set():
                return
            # Looked at before the grant, which is for now and not for later.
            items = self._ready[0] = await self._settler.still_held(self._ready[0])
            if items:
                tokens = sum(item.text.tokens for item in items)
                asked_at = time.monotonic()
                grant = await self._parts.limiter.acquire(tokens=tokens)
                if not grant.is_granted:
                    await self._pause(grant.wait.total_seconds())
                    return
                send_by = asked_at + grant.good_for.total_seconds()
                self._start(self._processor.process(items, send_by=send_by))
            self._ready.popleft()

    async def _pause(self, seconds: float) -> None:
        """Give back what has not started, and wait for the limit with nothing held."""
        self._resume_at = time.monotonic() + seconds
        logger.info("owner=%s waits %.1f s for the rate limit", self.report.owner, seconds)
        await self._release_ready()

    async def _release_ready(self) -> None:
        waiting = [item.leased.lease for items in self._ready for item in items]
        self._ready.clear()
        await self._settler.release(waiting)

    def _lease_ahead(self) -> None:
        is_paused = time.monotonic() < self._resume_at or self._processor.is_paused
        # One batch ahead is enough to keep the provider busy; what is held is lost by a crash.
        if self._leasing is None and not is_paused and not self._ready and self._intake.may_lease:
            self._leasing = asyncio.create_task(self._lease())

    async def _lease(self) -> None:
        if self._resume_at:
            # Others waited for the same moment: look first, instead of leasing in vain.
            wait = (await self._parts.limiter.peek()).wait.total_seconds()
            if wait:
                self._resume_at = time.monotonic() + wait
                return
            self._resume_at = 0.0
        batch = await self._intake.take()
        self._ready.extend(batch.requests)
        if batch.known:
            self._start(self._processor.complete_known(batch.known))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._requests.add(asyncio.create_task(work))

    async def _until_something_happens(self) -> None:
        if (pause := self._processor.take_pause()) is not None:
            await self._pause(pause)
        running = {*self._requests, *([self._leasing] if self._leasing else [])}
        stopping = asyncio.create_task(self._stop.wait())
        is_waiting, is_idle = self.waiting > 0, not running and self._intake.is_empty
        began = time.monotonic()
        try:
            done, _ = await asyncio.wait(
                {*running, stopping}, timeout=self._patience(), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            stopping.cancel()
            if is_waiting:
                self.report.seconds_waiting += time.monotonic() - began
            elif is_idle:
                self.report.seconds_idle += time.monotonic() - began
        for task in done - {stopping}:
            self._requests.discard(task)
            if task is self._leasing:
                self._leasing = None
            else:
                self._intake.look_again()
            task.result()

    def _patience(self) -> float:
        """Seconds after which there is something to do although nothing has happened."""
        now = time.monotonic()
        waits = [self._deadline - now, self._recovery.due_at - now]
        if self._resume_at > now:
            waits.append(self._resume_at - now)
        elif self._leasing or self._requests or not self._intake.may_lease:
            waits.append(self._options.idle_pause.total_seconds())
        else:
            waits.append(0.0)
        return max(0.0, min(waits))

    async def _wind_down(self) -> None:
        """Give back everything, requests in flight after a grace; heartbeats go on meanwhile."""
        if self._leasing is not None:
            with suppress(Exception):
                await self._leasing
        await self._try("release what was ready", self._release_ready())
        if self._requests:
            grace = self._options.grace.total_seconds()
            _, late = await asyncio.wait(self._requests, timeout=grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._requests, return_exceptions=True)
        await self._try("release the rest", self._settler.release(self._holdings.all()))
        await self._counting.send()
        if self._processor.critical is not None:
            await self._try("open the breaker", self._open_breaker(self._processor.critical))

    async def _open_breaker(self, error: CriticalError) -> None:
        breaker = await self._parts.switch.open_breaker(str(error))
        if breaker.status is BreakerStatus.OPEN:
            logger.error("owner=%s opened the breaker: %s", self.report.owner, breaker.reason)

    async def _try(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            # Leases that are not given back expire, and are recovered by somebody else.
            logger.warning(
                "owner=%s could not %s: %s", self.report.owner, what, type(error).__name__
            )
