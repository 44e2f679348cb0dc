"""What becomes of jobs once it is known: completed, failed or given back."""

import logging
from collections.abc import Sequence
from typing import Final

from embed_pipeline.domain.errors import EmbeddingError, ErrorCategory, UnreachableError
from embed_pipeline.domain.job import Lease, run_id_of
from embed_pipeline.domain.ports import JobStore
from embed_pipeline.domain.redact import stack_of
from embed_pipeline.domain.results import (
    Completion,
    CompletionOutcome,
    Failure,
    FailureOutcome,
)
from embed_pipeline.worker.batching import Item
from embed_pipeline.worker.holdings import Holdings
from embed_pipeline.worker.report import DrainReport

logger = logging.getLogger(__name__)

ROWS_PER_WRITE: Final = 512
"""Vectors per transaction: the largest request makes four. More gain nothing and make others wait.
"""


class Settler:
    """Writes outcomes for leases that are still held, and counts what happened."""

    def __init__(self, store: JobStore, holdings: Holdings, report: DrainReport) -> None:
        self._store = store
        self._holdings = holdings
        self._report = report

    async def still_held(self, items: Sequence[Item]) -> list[Item]:
        """Leave out what was cancelled or lost; a question that fails stops no work."""
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
                self._report.lost += self._holdings.drop(gone)
                for lease in gone:
                    _log(logging.INFO, lease, word)
        # What has expired during the question is given up too: among the holdings, without work,
        # the heartbeat would keep it from everybody for as long as the drain lives.
        return [item for item in items if self._is_mine(item.leased.lease)]

    async def complete(self, rows: Sequence[Completion]) -> None:
        """Store vectors; where the database refuses a write, find the row it refuses."""
        for start in range(0, len(rows), ROWS_PER_WRITE):
            await self._complete(rows[start : start + ROWS_PER_WRITE])

    async def fail(self, items: Sequence[Item], error: EmbeddingError) -> None:
        """Record a failure for each; the retry policy of the queue decides the rest."""
        stack = stack_of(error)
        await self._fail(
            [
                Failure(
                    item.leased.lease,
                    error.category,
                    str(error),
                    stack,
                    text_hash=item.text_hash,
                )
                for item in items
                if self._is_mine(item.leased.lease)
            ]
        )

    async def release(self, leases: Sequence[Lease]) -> None:
        """Give jobs back untried, with their attempt."""
        mine = [lease for lease in leases if self._is_mine(lease)]
        for start in range(0, len(mine), ROWS_PER_WRITE):
            part = mine[start : start + ROWS_PER_WRITE]
            count = await self._store.release(part)
            self._holdings.drop(part)
            self._report.released += count
            self._report.fenced += len(part) - count

    def _is_mine(self, lease: Lease) -> bool:
        if self._holdings.is_held(lease):
            return True
        if self._holdings.drop([lease]):
            self._report.lost += 1
            _log(logging.WARNING, lease, "lost: its lease has expired, nothing is written")
        return False

    async def _complete(self, rows: Sequence[Completion]) -> None:
        mine = [row for row in rows if self._is_mine(row.lease)]
        if not mine:
            return
        try:
            outcomes = await self._store.complete(mine)
        except UnreachableError:
            raise
        except Exception as error:
            await self._complete_in_halves(mine, error)
            return
        self._holdings.drop(row.lease for row in mine)
        for row, outcome in zip(mine, outcomes, strict=True):
            self._count(row, outcome)

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
            outcomes = await self._store.fail(part)
            self._holdings.drop(row.lease for row in part)
            for row, outcome in zip(part, outcomes, strict=True):
                self._count_failure(row, outcome)

    def _count(self, row: Completion, outcome: CompletionOutcome) -> None:
        match outcome:
            case CompletionOutcome.COMPLETED:
                self._report.completed += 1
                self._report.truncated += row.is_truncated
            case CompletionOutcome.SUPERSEDED | CompletionOutcome.GONE:
                self._report.superseded += 1
            case CompletionOutcome.MOVED:
                self._report.moved += 1
            case CompletionOutcome.FENCED:
                self._report.fenced += 1
        is_refused = outcome is CompletionOutcome.FENCED
        _log(logging.WARNING if is_refused else logging.DEBUG, row.lease, outcome.value)

    def _count_failure(self, row: Failure, outcome: FailureOutcome) -> None:
        match outcome:
            case FailureOutcome.FAILED:
                self._report.failed[row.category] += 1
            case FailureOutcome.RETRY:
                self._report.retried += 1
            case FailureOutcome.GIVEN_BACK:
                self._report.given_back += 1
            case FailureOutcome.FENCED:
                self._report.fenced += 1
        is_final = outcome in (FailureOutcome.FAILED, FailureOutcome.FENCED)
        level = logging.WARNING if is_final else logging.INFO
        _log(level, row.lease, f"{outcome.value} {row.category.value}")


def _log(level: int, lease: Lease, what: str) -> None:
    run = run_id_of(lease.owner)
    logger.log(level, "job=%s owner=%s run=%s %s", lease.job_id, lease.owner, run, what)
