"""From batches at the provider to vectors in the graph, and what a crash has left between."""

import logging
from contextlib import suppress
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
    BatchStatus,
    ProviderBatch,
    held_until,
)
from embed_pipeline.domain.errors import DatabaseFault, EmbeddingError, OutageError
from embed_pipeline.domain.prices import Price
from embed_pipeline.domain.words import span
from embed_pipeline.worker.batch_answers import Answers
from embed_pipeline.worker.batch_parts import BatchParts, TurnLostError, give_back
from embed_pipeline.worker.lease_keeper import Holdings
from embed_pipeline.worker.report import DrainReport
from embed_pipeline.worker.settling import Settler

logger = logging.getLogger(__name__)

POLL_EVERY: Final = timedelta(minutes=1)


@dataclass(slots=True)
class Tended:
    """What was found, and what was done about it."""

    report: DrainReport
    lines: list[str] = field(default_factory=list)
    ready: int = 0
    """Batches whose answers can be collected."""
    collected: int = 0
    outage: str | None = None
    """Why no further batch was asked for: the provider answers nothing."""


class Collector:
    """Repairs, polls and collects every batch that no other worker has taken."""

    def __init__(self, parts: BatchParts, *, price: Price) -> None:
        self._all = parts
        self._batches = parts.batches
        self._provider = parts.provider
        self._model = parts.parts.embedder.model
        self.report = DrainReport(f"batches/{parts.holder}", self._model, price=price)
        self._settler = Settler(parts.parts.store, Holdings(), self.report, parts.parts.fault_of)
        self._answers = Answers(parts, self._settler, self.report)

    async def tend(self, *, collects: bool = True, patience: timedelta = POLL_EVERY) -> Tended:
        """Look after all batches; without ``collects`` no answers are read.

        A batch that was asked for less than ``patience`` ago is not asked for again.
        """
        tended = Tended(self.report)
        for found in await self._batches.every():
            now = await self._batches.now()
            if tended.outage:
                tended.lines.append(found.line(now))
                continue
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
                    try:
                        is_kept = await self._tend(batch, now, tended, collects=collects)
                    except TurnLostError:
                        raise
                    except Exception as error:
                        await self._stumbled(batch, error, now, tended)
            except TurnLostError:
                logger.info("batch=%s another worker goes on", batch.id)
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
                await self._all.drop(batch.id)
                await self._all.refund(batch.tokens)
                tended.lines.append(f"batch {batch.id} was never sent; its jobs are given back")
            case BatchStatus.COLLECTED:
                await self._remove(batch, tended)
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
            await self._refused(batch, why, tended, is_charged=shown.status != "failed")
            return False
        if shown.is_over and collects:
            return await self._collect(batch, shown, tended)
        tended.ready += shown.is_over
        tended.lines.append(batch.line(now))
        return True

    async def _collect(self, batch: Batch, shown: ProviderBatch, tended: Tended) -> bool:
        if why := await self._answers.refusal_of_all(shown):
            await self._refused(batch, why, tended, is_charged=False)
            return False
        completed, failed = self.report.completed, self.report.failed.total()
        await self._answers.collect(batch, shown)
        tended.collected += 1
        tended.lines.append(
            f"batch {batch.id} is {shown.status} and collected: "
            f"{self.report.completed - completed} completed, "
            f"{self.report.failed.total() - failed} failed"
        )
        await self._remove(batch, tended)
        return True

    async def _adopt(self, batch: Batch, shown: ProviderBatch, now: datetime) -> None:
        if batch.status is BatchStatus.CREATING:
            await self._batches.hold(batch.id, held_until(shown.expires_at, now))
        await self._all.write(
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
            await self._all.write(batch.id, missed_at=now)
        elif now - batch.missed_at >= LOOK_AGAIN:
            # First: a worker that slept just before asking for it now asks in vain.
            await self._delete_files(batch, tended)
            await self._give_back(batch)
            await self._all.write(batch.id, status=BatchStatus.ABANDONED.value, polled_at=now)
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
                await self._all.write(batch.id, polled_at=now)
                tended.lines.append(batch.line(now))
            return
        await self._provider.cancel(shown.id)
        found = replace(batch, output_file=shown.output_file, error_file=shown.error_file)
        await self._remove(found, tended)
        tended.lines.append(
            f"batch {batch.id} turned up at the provider after its jobs were given back; it is "
            "cancelled"
        )

    async def _refused(self, batch: Batch, why: str, tended: Tended, *, is_charged: bool) -> None:
        await self._give_back(batch)
        await self._delete_files(batch, tended)
        until = await self._batches.now() + REFUSED_FOR
        await self._all.write(batch.id, status=BatchStatus.REFUSED.value, error=why, until=until)
        if not is_charged:
            await self._all.refund(batch.tokens)
        tended.lines.append(f"batch {batch.id}: {why}; its jobs are given back")

    async def _stumbled(
        self, batch: Batch, error: Exception, now: datetime, tended: Tended
    ) -> None:
        """Say what keeps a batch from being looked after; the others are, unless nobody answers."""
        if self._all.parts.fault_of(error) is DatabaseFault.AWAY:
            raise error
        is_known = isinstance(error, (EmbeddingError, AnswerCutError))
        said = str(error) if is_known else type(error).__name__
        logger.warning("batch=%s could not be looked after: %s", batch.id, said)
        if isinstance(error, OutageError):
            tended.outage = said
        elif batch.is_at_provider and now - batch.created_at > LONGEST_BATCH:
            await self._end(batch, said, tended)
            return
        again = "; it is read again, and nothing is paid again"
        more = again if isinstance(error, AnswerCutError) else ""
        tended.lines.append(f"batch {batch.id} could not be looked after now: {said}{more}")

    async def _end(self, batch: Batch, why: str, tended: Tended) -> None:
        """Forget a batch that cannot be read: its leases have ended, or are about to."""
        await self._give_back(batch)
        await self._all.drop(batch.id)
        tended.lines.append(
            f"batch {batch.id} could not be read for {span(LONGEST_BATCH)}: {why}; its jobs are "
            "given back, and are embedded and paid for again"
        )
        with suppress(OutageError):
            await self._delete_files(batch, tended)

    async def _give_back(self, batch: Batch) -> None:
        jobs = await self._batches.sent_jobs(batch.id, model=batch.model)
        await give_back([job.lease for job in jobs], self._settler)

    async def _remove(self, batch: Batch, tended: Tended) -> None:
        await self._delete_files(batch, tended)
        await self._batches.drop(batch.id, holder=self._all.holder)

    async def _delete_files(self, batch: Batch, tended: Tended) -> None:
        """A key that may not delete them keeps no batch; ``OutageError``: it is tried again."""
        try:
            for file in (batch.input_file, batch.output_file, batch.error_file):
                if file is not None:
                    await self._provider.delete(file)
        except OutageError:
            raise
        except EmbeddingError as error:
            tended.lines.append(f"the files of batch {batch.id} are left at the provider: {error}")


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
