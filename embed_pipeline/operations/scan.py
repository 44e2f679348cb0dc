"""The scan of all entities, whole or in steps: the one way for sensor, job and command line."""

import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta

from embed_pipeline.domain.coverage import CoverageReport
from embed_pipeline.domain.judging import Forced
from embed_pipeline.domain.keys import KeyValue
from embed_pipeline.domain.lifecycle import EnqueueOutcome
from embed_pipeline.store.scan import PAGE, Neo4jReconciler


@dataclass(slots=True)
class Scan:
    """The progress and result of a scan; ``cursor`` is None behind the last entity.

    Before the entities their jobs are looked at: what others wrote or edited is put right first.
    """

    reconciler: Neo4jReconciler
    report: CoverageReport
    cursor: KeyValue | None = ""
    jobs_cursor: str | None = ""
    """Where the look at the jobs goes on; None behind the last one."""
    enqueued: Counter[EnqueueOutcome] = field(default_factory=Counter)
    force: Forced | None = None
    """What is to be embedded again, although it fits."""
    forced: int = 0
    cleared: int = 0
    """Vectors of outdated versions that were removed."""
    _most: int = PAGE
    """Entities of the next page: where the database could not read so many, it gets fewer."""

    @classmethod
    def begin(
        cls, reconciler: Neo4jReconciler, *, after: KeyValue = "", force: Forced | None = None
    ) -> "Scan":
        """A scan that has not read anything yet."""
        keeps_foreign = reconciler.config.keeps_foreign
        report = CoverageReport(reconciler.model, keeps_foreign=keeps_foreign)
        return cls(reconciler, report, cursor=after, force=force)

    async def step(self, *, page_size: int = PAGE, dry_run: bool = False) -> None:
        """Read one page; ``dry_run`` only counts."""
        if self.cursor == "" and not dry_run:
            await self.reconciler.begin()
        if self.jobs_cursor is not None:
            self.jobs_cursor = (
                None if dry_run else await self.reconciler.adopt(after=self.jobs_cursor)
            )
        if self.cursor is None:
            return
        limit = min(page_size, self._most)
        page = await self.reconciler.page(
            after=self.cursor,
            limit=limit,
            dry_run=dry_run,
            cleared_before=self.cleared,
            force=self.force,
            forced_before=self.forced,
        )
        self._most = max(1, min(page_size, 2 * page.scanned))
        self.cursor = page.cursor
        self.report = self.report.plus(page)
        self.enqueued.update(page.enqueued)
        self.cleared += page.cleared
        self.forced += page.forced

    @property
    def is_done(self) -> bool:
        """Every entity and every job has been looked at."""
        return self.cursor is None and self.jobs_cursor is None

    async def go_on(
        self,
        *,
        most: timedelta | None = None,
        page_size: int = PAGE,
        dry_run: bool = False,
    ) -> None:
        """Read to the end, or until ``most`` is over; the result of a whole scan is kept.

        ``dry_run`` changes nothing, and keeps nothing either.
        """
        deadline = time.monotonic() + most.total_seconds() if most else float("inf")
        while not self.is_done:
            await self.step(page_size=page_size, dry_run=dry_run)
            if time.monotonic() >= deadline:
                break
        if dry_run:
            return
        if self.is_done:
            self.report = await self.reconciler.save(self.report)
        else:
            await self.reconciler.move()
