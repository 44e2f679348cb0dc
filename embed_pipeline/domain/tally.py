"""Counts what a scan finds, a page at a time."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from embed_pipeline.domain.coverage import Coverage, CoverageKey, EntityReading, ReconcilePage
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.lifecycle import EnqueueOutcome

LONGEST_NAME: Final = 100
"""Characters of a type or model that are kept: anybody may have written them."""
_LIVE: Final = (JobStatus.PENDING, JobStatus.PROCESSING)


@dataclass(slots=True)
class Tally:
    """Counts the entities of a page."""

    rows: Counter[CoverageKey] = field(default_factory=Counter)
    dimensions: Counter[int] = field(default_factory=Counter)
    waiting: int = 0
    truncated: int = 0

    def add(self, reading: EntityReading, found: Coverage) -> None:
        """Count one entity."""
        model = None if reading.model is None else str(reading.model)[:LONGEST_NAME]
        self.rows[CoverageKey(reading.entity_type[:LONGEST_NAME], model, found)] += 1
        if reading.has_vector and reading.dimensions is not None:
            self.dimensions[reading.dimensions] += 1
        if found is Coverage.CURRENT:
            is_completed = reading.job_status is JobStatus.COMPLETED
            self.truncated += is_completed and reading.is_truncated
        elif found is not Coverage.UNEMBEDDABLE:
            self.waiting += reading.job_status in _LIVE

    def page(
        self,
        *,
        cursor: str | None,
        orphaned: int,
        enqueued: Mapping[EnqueueOutcome, int],
    ) -> ReconcilePage:
        """What the page comes to."""
        coverage = Counter[Coverage]()
        for key, number in self.rows.items():
            coverage[key.coverage] += number
        return ReconcilePage(
            cursor=cursor,
            scanned=coverage.total(),
            coverage={kind: coverage[kind] for kind in Coverage},
            waiting=self.waiting,
            orphaned=orphaned,
            enqueued=enqueued,
            rows=dict(self.rows),
            truncated=self.truncated,
            dimensions=dict(self.dimensions),
        )
