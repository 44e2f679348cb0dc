"""From the answer of one batch to vectors in the graph."""

from contextlib import aclosing
from typing import Final

from embed_pipeline.domain.batch import (
    AnswerCutError,
    Batch,
    BatchAnswer,
    ProviderBatch,
    SentJob,
    custom_id,
)
from embed_pipeline.domain.embedding import PreparedText
from embed_pipeline.domain.errors import (
    CriticalError,
    EmbeddingError,
    PermanentError,
    TransientError,
)
from embed_pipeline.domain.job import LeasedJob
from embed_pipeline.domain.results import Completion
from embed_pipeline.domain.vector import Vector
from embed_pipeline.worker.batch_parts import COUNTED, FOR_EVER, BatchParts, Step, TurnLostError
from embed_pipeline.worker.batching import Item, judge_answer
from embed_pipeline.worker.chores import Counting
from embed_pipeline.worker.report import DrainReport
from embed_pipeline.worker.settling import Settler

PAGE: Final = 256
"""Answers per write."""


class Answers:
    """Reads answers, and settles the jobs that they are for."""

    def __init__(self, parts: BatchParts, settler: Settler, report: DrainReport) -> None:
        self._all = parts
        self._batches = parts.batches
        self._provider = parts.provider
        self._report = report
        self._settler = settler
        self._counting = Counting(parts.parts.counters, report, counted=COUNTED)

    async def refusal_of_all(self, shown: ProviderBatch) -> str | None:
        """Why nothing of the batch was done, if every line says the same.

        Then no text is to blame: the breaker opens if somebody must act. It is looked at before
        any line is settled, and only until two lines differ.
        """
        if shown.done:
            return None
        first: BatchAnswer | None = None
        for file in (shown.output_file, shown.error_file):
            if file is None:
                continue
            async with aclosing(self._provider.answers(file)) as answers:
                async for answer in answers:
                    first = first or answer
                    if answer.refusal is None or answer.refusal != first.refusal:
                        return None
        if first is None:
            return None
        error = first.error
        if isinstance(error, PermanentError):
            error = CriticalError(
                f"the provider refuses every text of a batch: {first.refusal}; {error.advice}"
            )
        if isinstance(error, CriticalError):
            # First of all: what is given back must not be leased again meanwhile.
            await self._open_breaker(error)
            return str(error)
        return f"nothing of it could be done: {first.refusal}"

    async def collect(self, batch: Batch, shown: ProviderBatch) -> None:
        """Settle every line, and put what the provider charged into budget and counters."""
        try:
            charged = await self._settle_all(batch, shown)
        finally:
            self._settler.holdings.drop(self._settler.holdings.all())
        # Together: after a crash nothing of it is missing, and nothing is counted twice.
        cost = self._report.price.nano_usd(charged)
        counts = {"requests": 1, "tokens": charged, "cost_nano_usd": cost}
        if not await self._batches.settle(batch.id, holder=self._all.holder, counts=counts):
            raise TurnLostError(f"batch {batch.id} was taken by somebody else")
        self._all.passed(Step.COLLECTED)
        self._report.tokens += charged
        self._report.requests += 1
        # If this is lost, the budget has counted too much, never too little.
        await self._all.purse.correct(counted=batch.tokens, charged=charged)

    async def _settle_all(self, batch: Batch, shown: ProviderBatch) -> int:
        jobs = await self._batches.sent_jobs(batch.id, model=batch.model)
        sent = {custom_id(job.lease): job for job in jobs}
        self._settler.holdings.add((job.lease for job in jobs), deadline=FOR_EVER)
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
        await self._settler.release(self._settler.holdings.all())
        return charged

    async def _settle(self, id_: str, page: list[tuple[SentJob, BatchAnswer]]) -> None:
        if not page:
            return
        rows: list[Completion] = []
        for job, answer in page:
            judged = _judged(answer, self._all.parts.embedder.dimensions)
            if isinstance(judged, CriticalError) and self._report.breaker is None:
                # The next batch would be paid for in vain, too.
                await self._open_breaker(judged)
            if isinstance(judged, EmbeddingError):
                leased = LeasedJob(job.lease, attempts=1, max_attempts=1)
                item = Item(leased, PreparedText("", 0), job.text_hash)
                await self._settler.fail([item], judged)
            else:
                tokens = answer.tokens or job.tokens
                rows.append(Completion(job.lease, judged, job.text_hash, tokens=tokens))
        await self._settler.complete(rows)
        await self._counting.send()
        self._all.passed(Step.PAGE)
        await self._all.write(id_)

    async def _open_breaker(self, error: CriticalError) -> None:
        self._report.breaker = await self._all.parts.switch.open_breaker(str(error))


def _judged(answer: BatchAnswer, dimensions: int) -> Vector | EmbeddingError:
    if answer.error is not None or answer.vector is None:
        return answer.error or TransientError("the line has no vector")
    try:
        [judged] = judge_answer([answer.vector], expected=1, dimensions=dimensions)
    except CriticalError as error:
        return error
    return judged
