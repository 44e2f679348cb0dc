"""The drain: leases and reads ahead, embeds several batches at once, and completes, all at once."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from embed_pipeline.domain.errors import DatabaseFault, UnreachableError
from embed_pipeline.domain.rate_window import Grant
from embed_pipeline.worker.ahead import Ahead
from embed_pipeline.worker.batching import first_tokens
from embed_pipeline.worker.chores import Counting, Recovery, Submitting
from embed_pipeline.worker.in_flight import InFlight
from embed_pipeline.worker.intake import Intake, Taken
from embed_pipeline.worker.lease_keeper import Heartbeat, Holdings
from embed_pipeline.worker.options import DrainOptions, Parts
from embed_pipeline.worker.outage import Outage, Say
from embed_pipeline.worker.processing import LOOK_AGAIN, Processor
from embed_pipeline.worker.report import DrainReport, Ending, log_jobs
from embed_pipeline.worker.settling import Settler

logger = logging.getLogger(__name__)


class Drain:
    """One drain, from its first recovery to its last release."""

    def __init__(
        self,
        parts: Parts,
        *,
        owner: str,
        options: DrainOptions | None = None,
        stop: asyncio.Event | None = None,
        say: Say = lambda _: None,
    ) -> None:
        """Nothing happens before ``run``.

        Args:
            parts: store, limiter, provider and the like.
            owner: who holds the leases; begins with the id of the run.
            options: sizes and budgets.
            stop: set it to end the drain: no new lease, a grace, then everything is given back.
            say: is called with what an observer should know at once.
        """
        self.report = DrainReport(owner, parts.embedder.model, price=parts.price)
        self._parts = parts
        self._clock = parts.clock
        self._options = options or DrainOptions()
        self._stop = stop or asyncio.Event()
        self._holdings = Holdings(parts.clock)
        self._settler = Settler(parts.store, self._holdings, self.report, parts.fault_of)
        self._recovery = Recovery(parts.store, self._options, self.report, parts.clock)
        self._counting = Counting(parts.counters, self.report, parts.clock)
        self._submitting = Submitting(parts.batching, self.report, self._stop, parts.clock)
        self._intake = Intake(parts, self._options, self._settler, self.report)
        self._processor = Processor(parts, self._options, self._settler, self.report)
        self._heartbeat = Heartbeat(
            self._holdings,
            self.report,
            parts.open_store,
            interval=self._options.heartbeat,
            lease=self._options.lease,
        )
        self._outage = Outage(parts, self._settler, self._holdings, owner, self._stop, say)
        self._requests = InFlight(self._options, parts.embedder.limits)
        """What is under way, each with the vectors it waits for or writes."""
        self._ahead = Ahead(self._intake)
        self._resume_at = 0.0
        self._look_at = 0.0
        self._limit: Grant | None = None
        self._deadline = float("inf")

    @property
    def waiting(self) -> float:
        """Seconds until the rate limit lets the drain go on; 0 while it works."""
        return max(0.0, self._resume_at - self._clock())

    async def run(self) -> DrainReport:
        """Work until there is nothing left, the budget is used, or the drain is told to stop.

        Raises:
            Exception: the database refuses, or is away and the drain does not wait for new jobs.
        """
        with self._parts.trace(self.report):
            return await self._run()

    async def _run(self) -> DrainReport:
        started = self._clock()
        if self._options.max_time is not None:
            self._deadline = started + self._options.max_time.total_seconds()
        async with self._heartbeat:
            try:
                await self._recovery.until_none_is_left()
                while not await self._works_to_its_end():
                    pass
            finally:
                await self._wind_down()
                self.report.seconds = self._clock() - started
        logger.info("drain ended: %s", self.report.as_dict())
        return self.report

    async def _works_to_its_end(self) -> bool:
        """Work to the end; a watching drain waits for a server that restarts."""
        try:
            await self._work()
        except Exception as error:
            is_final = self._parts.fault_of(error) is DatabaseFault.FINAL
            if self._options.until_empty or is_final:
                raise
            await self._ahead.end()
            await self._requests.end()
            self._ahead.give_up()
            await self._outage.sit_out(error, deadline=self._deadline)
            self._heartbeat.forgive()
            return False
        return True

    async def _work(self) -> None:
        while (ending := self._ending()) is None:
            await self._recovery.if_due()
            await self._counting.if_due()
            await self._send()
            await self._read_ahead()
            self._lease_ahead()
            await self._until_something_happens()
        self.report.ending = ending

    def _ending(self) -> Ending | None:
        if self._stop.is_set():
            return Ending.STOPPED
        if self._processor.critical is not None:
            self.report.reason = str(self._processor.critical)
            return Ending.CRITICAL
        if self._processor.breaker is not None and self._options.until_empty:
            self.report.reason = str(self._processor.breaker)
            return Ending.OUTAGE
        if self._heartbeat.is_failing:
            if not self._options.until_empty:
                raise UnreachableError("the heartbeats do not reach the database")
            return Ending.HEARTBEAT
        now = self._clock()
        if now >= self._deadline:
            if (pause := self._processor.take_pause()) is not None:
                self._wait_for(pause)
            if self._resume_at > now:
                self._say_what_lasts_longer()
            return Ending.BUDGET
        if self._requests or not self._ahead.is_empty:
            return None
        if self._limit and self._limit.budget and self._options.until_empty:
            self.report.reason = str(self._limit.budget)
            return Ending.SPENT
        if self._intake.refusal is not None:
            self.report.reason = self._intake.refusal
            return Ending.CLOSED
        if self._intake.budget == 0:
            return Ending.BUDGET
        if self._resume_at > self._deadline:
            self._say_what_lasts_longer()
            return Ending.BUDGET
        return Ending.EMPTY if self._intake.is_dry and self._options.until_empty else None

    def _say_what_lasts_longer(self) -> None:
        why = f"; {self._limit.hold}" if self._limit and self._limit.hold else ""
        self.report.reason = f"the rate limit lasts longer than the time left{why}"

    async def _send(self) -> None:
        """Start requests for what is ready, as far as concurrency and the rate limit allow."""
        ready = self._ahead.ready
        while ready and self._requests.has_room(sum(item.inputs for item in ready[0])):
            if self._processor.critical is not None or self._stop.is_set():
                return
            if self._processor.is_down:
                await self._settler.release(self._ahead.give_up())
                return
            # Looked at before the grant, which is for now and not for later.
            items = ready[0] = await self._settler.still_held(ready[0])
            if items:
                limits = self._options.limits(self._parts.embedder.limits)
                tokens = first_tokens([item.text for item in items], limits)
                asked_at = self._clock()
                grant = await self._parts.limiter.acquire(tokens=tokens)
                if not grant.is_granted:
                    await self._pause(grant)
                    return
                send_by = asked_at + grant.good_for.total_seconds()
                work = self._processor.process(items, send_by=send_by)
                self._requests.start(work, vectors=sum(item.inputs for item in items))
            ready.popleft()

    async def _pause(self, grant: Grant) -> None:
        """Release what has not started, and wait for the limit holding nothing."""
        self._wait_for(grant)
        logger.info("owner=%s waits %.1f s for the rate limit", self.report.owner, self.waiting)
        await self._settler.release(self._ahead.give_up())

    def _wait_for(self, grant: Grant) -> None:
        now = self._clock()
        self._limit = grant
        self._resume_at = now + grant.wait.total_seconds()
        self._look_at = now + min(grant.wait, LOOK_AGAIN).total_seconds()

    def _lease_ahead(self) -> None:
        # One batch ahead is enough to keep the provider busy; what is held is lost by a crash.
        may_lease = self._ahead.may_lease(len(self._requests), most=self._options.requests_at_once)
        if may_lease and not (self._requests.is_full or self._is_paused) and self._intake.may_take:
            self._ahead.lease(self._lease())

    @property
    def _is_paused(self) -> bool:
        return self._clock() < self._look_at or self._processor.is_stopped

    async def _read_ahead(self) -> None:
        """Read what was leased, when the texts that were read before are under way."""
        if self._ahead.taken and self._is_paused:
            # The pause began during the lease: nothing is held while nothing may be sent.
            await self._settler.release(self._ahead.give_up())
        elif taken := self._ahead.take_next():
            self._ahead.read(self._prepare(taken))

    async def _lease(self) -> None:
        await self._submitting.if_due()
        if self._resume_at:
            # Others waited for the same moment, or the pause was ended before its time: look first.
            grant = await self._parts.limiter.peek()
            if not grant.is_granted:
                self._wait_for(grant)
                return
            self._resume_at, self._limit = 0.0, None
        taken = await self._intake.take()
        if taken.is_probe:
            # Among the requests, so that a stop does not wait for an answer that may never come.
            self._requests.start(self._processor.probe(), vectors=1)
        elif taken.jobs:
            self._ahead.taken = taken

    async def _prepare(self, taken: Taken) -> None:
        batch = await self._intake.prepare(taken)
        if batch.requests or batch.known:
            self._processor.forget_outage()
        self._ahead.ready.extend(batch.requests)
        if batch.known:
            work = self._processor.complete_known(batch.known)
            self._requests.start(work, vectors=len(batch.known))

    async def _until_something_happens(self) -> None:
        if (pause := self._processor.take_pause()) is not None:
            await self._pause(pause)
        running = {*self._requests, *self._ahead.tasks}
        stopping = asyncio.create_task(self._stop.wait())
        is_waiting, is_idle = self.waiting > 0, not running and self._intake.is_empty
        began = self._clock()
        try:
            done, _ = await asyncio.wait(
                {*running, stopping}, timeout=self._patience(), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            stopping.cancel()
            if is_waiting:
                self.report.seconds_waiting += self._clock() - began
            elif is_idle:
                self.report.seconds_idle += self._clock() - began
        for task in done - {stopping}:
            self._requests.discard(task)
            if not self._ahead.discard(task):
                self._intake.look_again()
            task.result()

    def _patience(self) -> float:
        """Seconds until something is due even if nothing happens."""
        now = self._clock()
        waits = [self._deadline - now, self._recovery.due_at - now]
        if self._look_at > now:
            waits.append(self._look_at - now)
        elif self._ahead.is_moving or self._requests or not self._intake.may_take:
            waits.append(self._intake.pause)
        else:
            waits.append(0.0)
        return max(0.0, min(waits))

    async def _wind_down(self) -> None:
        """Release everything, after a grace for requests in flight; heartbeats stop last."""
        await self._ahead.end()
        log_jobs(logging.INFO, "shutdown", self.report.owner, self._holdings.all())
        await self._try("release what was ready", self._settler.release(self._ahead.give_up()))
        await self._requests.end()
        await self._try("release the rest", self._settler.release(self._holdings.all()))
        await self._counting.send()
        if self._processor.critical is not None:
            await self._try("open the breaker", self._processor.open_breaker())

    async def _try(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            # Leases that are not given back expire, and are recovered by another worker.
            logger.warning(
                "owner=%s could not %s: %s", self.report.owner, what, type(error).__name__
            )
