"""Counts what a scan finds, a page at a time."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from embed_pipeline.domain.contents import Contents
from embed_pipeline.domain.coverage import (
    MOST_EXAMPLES,
    MOST_NAMES,
    Coverage,
    CoverageKey,
    ReconcilePage,
)
from embed_pipeline.domain.embedding import TextSize
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.judging import EntityReading
from embed_pipeline.domain.keys import KeyValue, Unfit
from embed_pipeline.domain.lifecycle import EnqueueOutcome

LONGEST_NAME: Final = 100
"""Characters of a type or model that are kept: anybody may have written them."""
_LIVE: Final = (JobStatus.PENDING, JobStatus.PROCESSING)
_WAITED_FOR: Final = (Coverage.MISSING, Coverage.STALE, Coverage.WRONG_MODEL, Coverage.FOREIGN)


@dataclass(slots=True)
class Tally:
    """Counts the entities of a page."""

    rows: Counter[CoverageKey] = field(default_factory=Counter)
    dimensions: Counter[int] = field(default_factory=Counter)
    waiting: int = 0
    forced: int = 0
    wanted: Counter[Coverage] = field(default_factory=Counter)
    sizes: list[TextSize] = field(default_factory=list)
    in_pieces: int = 0
    pieces: int = 0
    neighbours_changed: int = 0
    oversized: int = 0
    oversized_names: list[str] = field(default_factory=list)
    contents: Contents = field(default_factory=Contents)
    unfit: Counter[Unfit] = field(default_factory=Counter)
    unfit_names: defaultdict[Unfit, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(
        self, reading: EntityReading, found: Coverage, *, only_neighbours: bool = False
    ) -> None:
        """Count an entity; ``only_neighbours`` if nothing else of its text has changed."""
        model = None if reading.model is None else str(reading.model)[:LONGEST_NAME]
        self.rows[CoverageKey(reading.entity_type[:LONGEST_NAME], model, found)] += 1
        if reading.has_vector and reading.dimensions is not None:
            self.dimensions[reading.dimensions] += 1
        if found is Coverage.CURRENT:
            if reading.pieces > 1:
                self.in_pieces += 1
                self.pieces += reading.pieces
        elif found in _WAITED_FOR:
            self.neighbours_changed += found is Coverage.STALE and only_neighbours
            self.waiting += reading.job_status in _LIVE
        if reading.unfit is not None:
            self._explain(reading.unfit, 1, [reading.uid])
        if reading.is_cut:
            self._name(reading.uid)

    def add_wanted(self, found: Coverage, size: TextSize) -> None:
        """Count one that is to be embedded."""
        self.wanted[found] += 1
        self.sizes.append(size)

    def add_unfit(self, reason: Unfit, number: int, examples: Iterable[str]) -> None:
        """Count entities that cannot be embedded, of which only the reason is known."""
        self.rows[CoverageKey("", None, Coverage.UNEMBEDDABLE)] += number
        self._explain(reason, number, examples)

    def add_unreadable(self, uid: str, number: int) -> None:
        """Count entities whose text the database cannot return."""
        self.add_unfit(Unfit.UNREADABLE, number, [uid])
        self._name(uid)

    def _explain(self, reason: Unfit, number: int, examples: Iterable[str]) -> None:
        self.unfit[reason] += number
        names = self.unfit_names[reason]
        names += [name[:LONGEST_NAME] for name in examples][: MOST_EXAMPLES - len(names)]

    def _name(self, uid: str) -> None:
        self.oversized += 1
        if len(self.oversized_names) < MOST_NAMES:
            self.oversized_names.append(str(uid)[:LONGEST_NAME])

    def page(
        self,
        *,
        cursor: KeyValue | None,
        orphaned: int = 0,
        cleared: int = 0,
        enqueued: Mapping[EnqueueOutcome, int],
    ) -> ReconcilePage:
        """The sum of the page."""
        coverage = Counter[Coverage]()
        for key, number in self.rows.items():
            coverage[key.coverage] += number
        return ReconcilePage(
            cursor=cursor,
            scanned=coverage.total(),
            coverage={kind: coverage[kind] for kind in Coverage},
            waiting=self.waiting,
            orphaned=orphaned,
            cleared=cleared,
            forced=self.forced,
            wanted=dict(self.wanted),
            sizes=tuple(self.sizes),
            enqueued=enqueued,
            rows=dict(self.rows),
            in_pieces=self.in_pieces,
            pieces=self.pieces,
            neighbours_changed=self.neighbours_changed,
            dimensions=dict(self.dimensions),
            oversized=self.oversized,
            oversized_names=tuple(self.oversized_names),
            contents=self.contents,
            unfit=dict(self.unfit),
            unfit_names={reason: tuple(names) for reason, names in self.unfit_names.items()},
        )
