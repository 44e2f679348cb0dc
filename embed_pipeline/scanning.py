"""The scan of all entities, whole or in steps: the one way for sensor, job and command line."""

import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta

from embed_pipeline.domain.coverage import CoverageReport
from embed_pipeline.domain.lifecycle import EnqueueOutcome
from embed_pipeline.store.reconciling import PAGE, Neo4jReconciler


@dataclass(slots=True)
class Scan:
    """How far a scan has come and what it has found; ``cursor`` is None at its end."""

    reconciler: Neo4jReconciler
    report: CoverageReport
    cursor: str | None = ""
    enqueued: Counter[EnqueueOutcome] = field(default_factory=Counter)

    @classmethod
    def begin(cls, reconciler: Neo4jReconciler, *, after: str = "") -> "Scan":
        """A scan that has read nothing yet."""
        return cls(reconciler, CoverageReport(reconciler.model), cursor=after)

    async def step(
        self, *, page_size: int = PAGE, dry_run: bool = False, clear_orphans: bool = False
    ) -> None:
        """Read one page; ``dry_run`` only counts."""
        page = await self.reconciler.page(
            after=self.cursor or "", limit=page_size, dry_run=dry_run, clear_orphans=clear_orphans
        )
        self.cursor = page.cursor
        self.report = self.report.plus(page)
        self.enqueued.update(page.enqueued)

    async def go_on(
        self,
        *,
        most: timedelta | None = None,
        page_size: int = PAGE,
        dry_run: bool = False,
        clear_orphans: bool = False,
    ) -> None:
        """Read on to the end, or until ``most`` is over; keep what a whole scan found.

        ``dry_run`` changes nothing, and keeps nothing either.
        """
        deadline = time.monotonic() + most.total_seconds() if most else float("inf")
        while self.cursor is not None:
            await self.step(page_size=page_size, dry_run=dry_run, clear_orphans=clear_orphans)
            if time.monotonic() >= deadline:
                break
        if self.cursor is None and not dry_run:
            self.report = await self.reconciler.save(self.report)
