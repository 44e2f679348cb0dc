"""From batches at the provider to vectors in the graph, and what a crash has left between."""

import logging
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from embed_pipeline.domain.batch import (
    LONGEST_BATCH,
    LOOK_AGAIN,
    LOOK_FOR_STRAYS,
    REFUSED_FOR,
    WHILE_MADE,
    AnswerCutError,
    Batch,
    BatchAnswer,
    BatchStatus,
    ProviderBatch,
    SentJob,
    custom_id,
    held_until,
)
from embed_pipeline.domain.embedding import PreparedText
from embed_pipeline.domain.errors import CriticalError, EmbeddingError, TransientError
from embed_pipeline.domain.job import LeasedJob
from embed_pipeline.domain.prices import Price
from embed_pipeline.domain.results import Completion
from embed_pipeline.domain.vector import Vector
from embed_pipeline.worker.batch_parts import BatchParts, Step
from embed_pipeline.worker.batch_submitting import FOR_EVER, TurnLostError, give_back
from embed_pipeline.worker.batching import Item, judge_answer
from embed_pipeline.worker.lease_keeper import Holdings
from embed_pipeline.worker.report import DrainReport
from embed_pipeline.worker.settling import Settler

logger = logging.getLogger(__name__)

PAGE: Final = 256
"""Answers per write."""
POLL_EVERY: Final = timedelta(minutes=1)


@dataclass(slots=True)
class Tended:
    """What was found, and what was done about it."""

    report: DrainReport
    lines: list[str] = field(default_factory=list)
    ready: int = 0
    """Batches whose answers can be collected."""
    collected: int = 0


class Collector:
    """Repairs, polls and collects every batch that no other worker has taken."""

    def __init__(self, parts: BatchParts, *, price: Price) -> None:
        self._all = parts
        self._batches = parts.batches
        self._provider = parts.provider
        self._model = parts.parts.embedder.model
        self.report = DrainReport(f"batches/{parts.holder}", self._model, price=price)
        self._holdings = Holdings()
        self._settler = Settler(
            parts.parts.store, self._holdings, self.report, parts.parts.fault_of
        )

    async def tend(self, *, collects: bool = True, patience: timedelta = POLL_EVERY) -> Tended:
        """Look after all batches; without ``collects`` no answers are read.

        A batch that was asked for less than ``patience`` ago is not asked for again.
        """
        tended = Tended(self.report)
        for found in await self._batches.every():
            now = await self._batches.now()
            wait = LOOK_FOR_STRAYS if found.status is BatchStatus.ABANDONED else patience
            is_fresh = found.polled_at is not None and now - found.polled_at < wait
            batch = None
            if not is_fresh:
                batch = await self._batches.take(found.id, holder=self._all.holder)
            if batch is None:
                tended.lines.append(found.line(now))
                continue
            is_kept = True
            try:
                async with self._all.turn(batch.id):
                    is_kept = await self._tend(batch, now, tended, collects=collects)
            except TurnLostError:
                logger.info("batch=%s another worker goes on", batch.id)
            except AnswerCutError as error:
                tended.lines.append(f"{error}; it is read again, and nothing is paid again")
            finally:
                if is_kept:
                    await self._all.let_go(batch.id)
        return tended

    async def _tend(self, batch: Batch, now: datetime, tended: Tended, *, collects: bool) -> bool:
        """Continue from the state of a batch; False if no other worker should continue at once."""
        match batch.status:
            case BatchStatus.REFUSED:
                await self._batches.drop(batch.id, holder=self._all.holder)
            case BatchStatus.PREPARING:
                await self._give_back(batch)
                await self._remove(batch)
                tended.lines.append(f"batch {batch.id} was never sent; its jobs are given back")
            case BatchStatus.COLLECTED:
                await self._remove(batch)
            case BatchStatus.ABANDONED:
                await self._look_for_stray(batch, now, tended)
            case BatchStatus.CREATING | BatchStatus.SUBMITTED:
                return await self._poll(batch, now, tended, collects=collects)
        return True

    async def _poll(self, batch: Batch, now: datetime, tended: Tended, *, collects: bool) -> bool:
        if batch.provider_id is None:
            shown = await self._provider.find(self._all.metadata(batch.id))
        else:
            shown = await self._provider.read(batch.provider_id)
        if shown is None:
            return await self._miss(batch, now, tended)
        await self._adopt(batch, shown, now)
        batch = _updated(batch, shown, now)
        if shown.status == "failed" or batch.model != self._model:
            if not shown.is_over:
                await self._provider.cancel(shown.id)
            why = shown.error or f"it is of the model {batch.model}, which is not used any more"
            await self._refused(batch, why)
            tended.lines.append(f"batch {batch.id}: {why}; its jobs are given back")
            return False
        if shown.is_over and collects:
            completed, failed = self.report.completed, self.report.failed.total()
            try:
                await self._collect(batch, shown)
            finally:
                self._holdings.drop(self._holdings.all())
            tended.collected += 1
            tended.lines.append(
                f"batch {batch.id} is {shown.status} and collected: "
                f"{self.report.completed - completed} completed, "
                f"{self.report.failed.total() - failed} failed"
            )
            return True
        tended.ready += shown.is_over
        tended.lines.append(batch.line(now))
        return True

    async def _adopt(self, batch: Batch, shown: ProviderBatch, now: datetime) -> None:
        if batch.status is BatchStatus.CREATING:
            await self._batches.hold(batch.id, held_until(shown.expires_at, now))
        await self._write(
            batch.id,
            status=BatchStatus.SUBMITTED.value,
            provider_id=shown.id,
            provider_status=shown.status,
            done=shown.done,
            output_file=shown.output_file,
            error_file=shown.error_file,
            expires_at=shown.expires_at or batch.expires_at,
            # What can be collected is not waited for.
            polled_at=None if shown.is_over else now,
            missed_at=None,
        )

    async def _miss(self, batch: Batch, now: datetime, tended: Tended) -> bool:
        """Look twice before giving up: the provider's list may lag."""
        if batch.missed_at is None:
            await self._batches.hold(batch.id, now + WHILE_MADE)
            await self._write(batch.id, missed_at=now)
        elif now - batch.missed_at >= LOOK_AGAIN:
            # First: a worker that slept just before asking for it now asks in vain.
            await self._delete_files(batch)
            await self._give_back(batch)
            await self._write(batch.id, status=BatchStatus.ABANDONED.value, polled_at=now)
            tended.lines.append(f"the provider has no batch {batch.id}; its jobs are given back")
            return True
        tended.lines.append(f"the provider does not show batch {batch.id}; it is looked for again")
        return True

    async def _look_for_stray(self, batch: Batch, now: datetime, tended: Tended) -> None:
        """Cancel what was made after its jobs were given back: it would never be collected."""
        shown = await self._provider.find(self._all.metadata(batch.id))
        if shown is None:
            if now - (batch.missed_at or now) >= LONGEST_BATCH:
                await self._batches.drop(batch.id, holder=self._all.holder)
            else:
                await self._write(batch.id, polled_at=now)
                tended.lines.append(batch.line(now))
            return
        await self._provider.cancel(shown.id)
        found = replace(batch, output_file=shown.output_file, error_file=shown.error_file)
        await self._remove(found)
        tended.lines.append(
            f"batch {batch.id} turned up at the provider after its jobs were given back; it is "
            "cancelled"
        )

    async def _collect(self, batch: Batch, shown: ProviderBatch) -> None:
        jobs = await self._batches.sent_jobs(batch.id, model=batch.model)
        sent = {custom_id(job.lease): job for job in jobs}
        self._holdings.add((job.lease for job in jobs), deadline=FOR_EVER)
        charged = 0
        for file, expected in ((shown.output_file, shown.done), (shown.error_file, 0)):
            if file is None:
                continue
            lines, page = 0, list[tuple[SentJob, BatchAnswer]]()
            async for answer in self._provider.answers(file):
                lines += 1
                charged += answer.tokens or 0
                # What was settled before a crash, cancelled or leased again is passed over.
                if (job := sent.get(answer.custom_id)) is not None and not answer.is_untried:
                    page.append((job, answer))
                if len(page) >= PAGE:
                    await self._settle(batch.id, page)
                    page = []
            await self._settle(batch.id, page)
            if lines < expected:
                raise AnswerCutError(f"file {file} has {lines} answers of {expected}")
        await self._settler.release(self._holdings.all())
        await self._write(batch.id, status=BatchStatus.COLLECTED.value)
        self._all.passed(Step.COLLECTED)
        await self._account(batch, charged)
        await self._remove(batch)

    async def _settle(self, id_: str, page: list[tuple[SentJob, BatchAnswer]]) -> None:
        if not page:
            return
        rows: list[Completion] = []
        for job, answer in page:
            judged = _judged(answer, self._all.parts.embedder.dimensions)
            if isinstance(judged, CriticalError) and self.report.breaker is None:
                # The next batch would be paid for in vain, too.
                self.report.breaker = await self._all.parts.switch.open_breaker(str(judged))
            if isinstance(judged, EmbeddingError):
                leased = LeasedJob(job.lease, attempts=1, max_attempts=1)
                item = Item(leased, PreparedText("", 0), job.text_hash)
                await self._settler.fail([item], judged)
            else:
                tokens = answer.tokens or job.tokens
                rows.append(Completion(job.lease, judged, job.text_hash, tokens=tokens))
        await self._settler.complete(rows)
        self._all.passed(Step.PAGE)
        await self._write(id_)

    async def _account(self, batch: Batch, charged: int) -> None:
        """Correct the budget once; if this is lost, it has counted too much, never too little."""
        await self._all.purse.correct(counted=batch.tokens, charged=charged)
        self.report.tokens += charged
        self.report.requests += 1
        cost = self.report.price.nano_usd(charged)
        counts = {"requests": 1, "tokens": charged, "cost_nano_usd": cost}
        await self._all.parts.counters.count(counts)

    async def _refused(self, batch: Batch, why: str) -> None:
        await self._give_back(batch)
        await self._delete_files(batch)
        until = await self._batches.now() + REFUSED_FOR
        await self._write(batch.id, status=BatchStatus.REFUSED.value, error=why, until=until)

    async def _give_back(self, batch: Batch) -> None:
        jobs = await self._batches.sent_jobs(batch.id, model=batch.model)
        await give_back([job.lease for job in jobs], self._settler)

    async def _remove(self, batch: Batch) -> None:
        await self._delete_files(batch)
        await self._batches.drop(batch.id, holder=self._all.holder)

    async def _delete_files(self, batch: Batch) -> None:
        for file in (batch.input_file, batch.output_file, batch.error_file):
            if file is not None:
                await self._provider.delete(file)

    async def _write(self, id_: str, **properties: object) -> None:
        if not await self._batches.write(id_, holder=self._all.holder, **properties):
            raise TurnLostError(f"batch {id_} was taken by another worker")


def _judged(answer: BatchAnswer, dimensions: int) -> Vector | EmbeddingError:
    if answer.error is not None or answer.vector is None:
        return answer.error or TransientError("the line has no vector")
    try:
        [judged] = judge_answer([answer.vector], expected=1, dimensions=dimensions)
    except CriticalError as error:
        return error
    return judged


def _updated(batch: Batch, shown: ProviderBatch, now: datetime) -> Batch:
    return replace(
        batch,
        status=BatchStatus.SUBMITTED,
        provider_id=shown.id,
        provider_status=shown.status,
        done=shown.done,
        output_file=shown.output_file,
        error_file=shown.error_file,
        expires_at=shown.expires_at or batch.expires_at,
        polled_at=now,
    )
