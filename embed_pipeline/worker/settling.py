"""What becomes of jobs once it is known: completed, failed or given back."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from embed_pipeline.domain.errors import (
    DatabaseFault,
    EmbeddingError,
    ErrorCategory,
    OutageError,
    plain_fault,
)
from embed_pipeline.domain.job import Lease, run_id_of
from embed_pipeline.domain.lifecycle import Move
from embed_pipeline.domain.ports import JobStore
from embed_pipeline.domain.redact import stack_of
from embed_pipeline.domain.results import (
    Completion,
    CompletionOutcome,
    Failure,
    FailureOutcome,
)
from embed_pipeline.worker.batching import Item
from embed_pipeline.worker.lease_keeper import Holdings
from embed_pipeline.worker.report import DrainReport, log_jobs

logger = logging.getLogger(__name__)

FaultOf = Callable[[Exception], DatabaseFault]
"""What an error of the store means; only the store knows its own."""
RELEASED: Final = Move.RELEASE.value
ROWS_PER_WRITE: Final = 512
"""Vectors per transaction: the largest request makes four. More gain nothing and make others wait.
"""
_FAILURES: Final = frozenset(FailureOutcome) - {FailureOutcome.FENCED}


class Settler:
    """Writes outcomes for leases that are still held, and counts what happened.

    Each lease is counted once: by the call that takes it out of the holdings.
    """

    def __init__(
        self,
        store: JobStore,
        holdings: Holdings,
        report: DrainReport,
        fault_of: FaultOf = plain_fault,
    ) -> None:
        self._store = store
        self.holdings = holdings
        self._report = report
        self._fault_of = fault_of
        self._failing: dict[Lease, Failure] = {}
        """Failures whose answer has not come yet, or never will."""

    async def still_held(self, items: Sequence[Item]) -> list[Item]:
        """Leave out what was cancelled or lost; a failed check does not stop the work."""
        leases = [item.leased.lease for item in items if self._is_mine(item.leased.lease)]
        try:
            beat = await self._store.check(leases)
        except Exception as error:
            logger.warning(
                "owner=%s cannot look for cancellations: %s",
                self._report.owner,
                type(error).__name__,
            )
        else:
            for word, gone in (("cancelled", beat.cancelled), ("lost", beat.lost)):
                self._report.lost += self.holdings.drop(gone)
                for lease in gone:
                    _log(logging.INFO, lease, word)
            for lease, ending in beat.settled.items():
                if self.holdings.drop([lease]):
                    self._count(lease, ending)
        # What has expired during the question is given up too: among the holdings, without work,
        # the heartbeat would keep it from everybody for as long as the drain lives.
        return [item for item in items if self._is_mine(item.leased.lease)]

    async def complete(self, rows: Sequence[Completion]) -> None:
        """Store vectors; if the database refuses a write, find the refused row."""
        for part in _in_writes(rows):
            await self._complete(part)

    async def fail(self, items: Sequence[Item], error: EmbeddingError) -> None:
        """Record a failure for each; the queue's retry policy decides."""
        stack = stack_of(error)
        await self._fail(
            [
                Failure(
                    item.leased.lease,
                    error.category,
                    str(error),
                    stack,
                    text_hash=item.text_hash,
                    is_outage=isinstance(error, OutageError),
                )
                for item in items
                if self._is_mine(item.leased.lease)
            ]
        )

    async def refuse(self, lease: Lease, error: EmbeddingError) -> None:
        """Fail a job whose text could not be read."""
        await self._fail([Failure(lease, error.category, str(error), stack_of(error))])

    async def release(self, leases: Sequence[Lease]) -> None:
        """Give jobs back untried, attempts refunded."""
        mine = [lease for lease in leases if self._is_mine(lease)]
        for start in range(0, len(mine), ROWS_PER_WRITE):
            part = mine[start : start + ROWS_PER_WRITE]
            released = await self._store.release(part)
            log_jobs(logging.INFO, "released", self._report.owner, part)
            if released < len(part):
                await self._reckon(part, released=released)
            else:
                self._report.released += self.holdings.drop(part)

    def _is_mine(self, lease: Lease) -> bool:
        if self.holdings.is_held(lease):
            return True
        if self.holdings.drop([lease]):
            self._report.lost += 1
            _log(logging.WARNING, lease, "lost: its lease has expired, nothing is written")
        return False

    async def _complete(self, rows: Sequence[Completion]) -> None:
        mine = [row for row in rows if self._is_mine(row.lease)]
        if not mine:
            return
        try:
            outcomes = await self._store.complete(mine)
        except Exception as error:
            fault = self._fault_of(error)
            # Whether it was done is then open; the jobs stay among the holdings until it is known.
            if fault is DatabaseFault.AWAY or (fault is DatabaseFault.BUSY and len(mine) == 1):
                raise
            await self._complete_in_halves(mine, error)
            return
        for row, outcome in zip(mine, outcomes, strict=True):
            if self.holdings.drop([row.lease]):
                self._count(row.lease, outcome.value)
                is_split = outcome is CompletionOutcome.COMPLETED and row.pieces > 1
                self._report.in_pieces += is_split

    async def _complete_in_halves(self, rows: list[Completion], error: Exception) -> None:
        if len(rows) > 1:
            middle = len(rows) // 2
            await self._complete(rows[:middle])
            await self._complete(rows[middle:])
            return
        [row] = rows
        message = f"the database refuses the vector: {type(error).__name__}"
        critical = ErrorCategory.CRITICAL
        await self._fail([Failure(row.lease, critical, message, stack_of(error), is_pinned=True)])

    async def _fail(self, rows: Sequence[Failure]) -> None:
        for start in range(0, len(rows), ROWS_PER_WRITE):
            part = rows[start : start + ROWS_PER_WRITE]
            self._failing |= {row.lease: row for row in part}
            outcomes = await self._store.fail(part)
            refused = []
            for row, outcome in zip(part, outcomes, strict=True):
                if outcome is FailureOutcome.FENCED:
                    refused.append(row.lease)
                elif self.holdings.drop([row.lease]):
                    self._count(row.lease, outcome.value)
            await self._reckon(refused)
            for row in part:
                self._failing.pop(row.lease, None)

    async def _reckon(self, leases: Sequence[Lease], *, released: int = 0) -> None:
        """Count leases whose write was refused: an earlier, unconfirmed one may have ended them.

        ``released`` of them were given back just now; others may have taken some of those since.
        """
        settled = (await self._store.check(leases)).settled if leases else {}
        taken_since = released - sum(ending == RELEASED for ending in settled.values())
        for lease in leases:
            ending = settled.get(lease)
            if ending is None and taken_since > 0:
                taken_since -= 1
                ending = RELEASED
            if self.holdings.drop([lease]):
                self._count(lease, ending or CompletionOutcome.FENCED.value)

    def _count(self, lease: Lease, ending: str) -> None:
        failure = self._failing.get(lease)
        if failure and ending in _FAILURES:
            self._report.note_error(failure.category, failure.message, FailureOutcome(ending))
        category = failure.category if failure else None
        level = logging.DEBUG
        match ending:
            case CompletionOutcome.COMPLETED:
                self._report.completed += 1
            case CompletionOutcome.SUPERSEDED | CompletionOutcome.GONE:
                self._report.superseded += 1
            case CompletionOutcome.MOVED:
                self._report.moved += 1
            case FailureOutcome.FAILED:
                self._report.failed[category or ErrorCategory.TRANSIENT] += 1
                self._report.note_failed(lease.job_id)
                level = logging.WARNING
            case FailureOutcome.RETRY:
                self._report.retried += 1
                level = logging.INFO
            case FailureOutcome.GIVEN_BACK:
                self._report.given_back += 1
                level = logging.INFO
            case Move.RELEASE:
                self._report.released += 1
            case _:
                self._report.fenced += 1
                level = logging.WARNING
        _log(level, lease, f"{ending} {category.value}" if category else ending)


def _in_writes(rows: Sequence[Completion]) -> Iterator[list[Completion]]:
    """Split completions into transactions; pieces that are nodes count as vectors."""
    part: list[Completion] = []
    vectors = 0
    for row in rows:
        if part and vectors + 1 + len(row.passages) > ROWS_PER_WRITE:
            yield part
            part, vectors = [], 0
        part.append(row)
        vectors += 1 + len(row.passages)
    if part:
        yield part


def _log(level: int, lease: Lease, what: str) -> None:
    run = run_id_of(lease.owner)
    logger.log(level, "job=%s owner=%s run=%s %s", lease.job_id, lease.owner, run, what)
