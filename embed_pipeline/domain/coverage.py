"""How well entities are covered by their vectors."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from embed_pipeline.domain.entity import MAX_KEY_LENGTH
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.lifecycle import EnqueueOutcome

Name = TypeVar("Name", bound=str | int)

UNKNOWN_MODEL: Final = "(unknown)"
"""Stands for the model of a vector that came without its name."""
MOST_TYPES: Final = 50
MOST_MODELS: Final = 10
MOST_LENGTHS: Final = 20
OTHER_TYPES: Final = "(other types)"
OTHER_MODELS: Final = "(other models)"
OTHER_LENGTHS: Final = -1


class Coverage(StrEnum):
    """What the scan finds on a current entity."""

    CURRENT = "current"
    MISSING = "missing"
    STALE = "stale"
    """The vector is that of another text or version, or nobody knows of which."""
    WRONG_MODEL = "wrong_model"
    """The vector is of another model or length."""
    UNEMBEDDABLE = "unembeddable"
    """Its key or version cannot be those of a job, or another entity has the same key."""


@dataclass(frozen=True, slots=True)
class EntityReading:
    """What the scan reads of one current entity and of the job for its version."""

    uid: str
    version: object
    has_vector: bool
    dimensions: int | None
    vector_model: str | None
    vector_hash: str | None
    vector_version: int | None
    job_status: JobStatus | None
    entity_type: str = ""
    is_truncated: bool = False
    """Only the beginning of its text was embedded."""

    @property
    def model(self) -> str | None:
        """The model of the vector that is there; ``None`` without one."""
        return (self.vector_model or UNKNOWN_MODEL) if self.has_vector else None


class CoverageKey(NamedTuple):
    """What entities are counted by."""

    entity_type: str
    """Empty where the entity has none."""
    model: str | None
    """The model of the vector that is there; ``None`` without one."""
    coverage: Coverage


@dataclass(frozen=True, slots=True)
class ReconcilePage:
    """What one page of the scan found and did; ``cursor`` is ``None`` after the last page."""

    cursor: str | None
    scanned: int
    coverage: Mapping[Coverage, int]
    waiting: int
    """Not current, but with a job that is pending or processing."""
    orphaned: int
    """Vectors on entities that are no longer current; search would still find them."""
    enqueued: Mapping[EnqueueOutcome, int] = field(default_factory=dict)
    rows: Mapping[CoverageKey, int] = field(default_factory=dict)
    truncated: int = 0
    """Current, but only the beginning of the text was embedded."""
    dimensions: Mapping[int, int] = field(default_factory=dict)
    """How many vectors have which length."""


def classify(
    reading: EntityReading, *, model: str, text_hash: str, dimensions: int | None
) -> Coverage:
    """Say how well the vector fits text, version and model of today."""
    if type(reading.version) is not int or reading.version < 0:
        return Coverage.UNEMBEDDABLE
    if not 0 < len(reading.uid) <= MAX_KEY_LENGTH:
        return Coverage.UNEMBEDDABLE
    is_known = reading.vector_hash is not None
    if not reading.has_vector and not is_known:
        return Coverage.MISSING
    if is_known and reading.vector_model != model:
        return Coverage.WRONG_MODEL
    if reading.vector_hash != text_hash or reading.vector_version != reading.version:
        return Coverage.STALE
    if not reading.has_vector:
        # An entity without text is completed without a vector; any other has lost its own.
        is_on_purpose = reading.job_status is JobStatus.COMPLETED
        return Coverage.CURRENT if is_on_purpose else Coverage.MISSING
    if dimensions is not None and reading.dimensions != dimensions:
        return Coverage.WRONG_MODEL
    return Coverage.CURRENT


@dataclass(frozen=True, slots=True)
class CoverageReport:
    """How well all entities are covered by the vectors of a model."""

    model: str
    entities: int = 0
    counts: Mapping[Coverage, int] = field(default_factory=lambda: dict.fromkeys(Coverage, 0))
    waiting: int = 0
    """Not current, but with a job that is pending or processing."""
    orphaned: int = 0
    """Vectors on entities that are no longer current."""
    truncated: int = 0
    """Current, but only the beginning of the text was embedded."""
    dimensions: Mapping[int, int] = field(default_factory=dict)
    """How many vectors have which length; the rarest under ``OTHER_LENGTHS``."""
    rows: Mapping[CoverageKey, int] = field(default_factory=dict)
    """Entities by type, model and coverage; the rarest under ``OTHER_TYPES``, ``OTHER_MODELS``.

    A scan knows only the pages so far: a type that grows late may be counted under both names.
    """
    at: datetime | None = None
    """When the scan ended; ``None`` before that."""

    @property
    def embeddable(self) -> int:
        """Entities that can have a vector at all."""
        return self.entities - self.counts[Coverage.UNEMBEDDABLE]

    @property
    def percent(self) -> float:
        """Current ones of those that can have a vector; a graph without any is covered."""
        if self.embeddable == 0:
            return 100.0
        return self.counts[Coverage.CURRENT] / self.embeddable * 100

    @property
    def summary(self) -> dict[str, int]:
        """The figures of the whole graph by name."""
        counts = {kind.value: number for kind, number in self.counts.items()}
        return {**counts, "waiting": self.waiting, "orphaned": self.orphaned}

    def plus(self, page: ReconcilePage) -> "CoverageReport":
        """Add a page."""
        rows = Counter(self.rows) + Counter(page.rows)
        return CoverageReport(
            model=self.model,
            entities=self.entities + page.scanned,
            counts={kind: self.counts[kind] + page.coverage[kind] for kind in Coverage},
            waiting=self.waiting + page.waiting,
            orphaned=self.orphaned + page.orphaned,
            truncated=self.truncated + page.truncated,
            dimensions=_most(
                Counter(self.dimensions) + Counter(page.dimensions), MOST_LENGTHS, OTHER_LENGTHS
            ),
            rows=_bounded(rows),
            at=None,
        )

    def by_type(self) -> dict[str, Counter[Coverage]]:
        """How well each type is covered, the most frequent type first."""
        types: dict[str, Counter[Coverage]] = {}
        for key, number in self.rows.items():
            types.setdefault(key.entity_type, Counter())[key.coverage] += number
        return dict(sorted(types.items(), key=lambda item: (-item[1].total(), item[0])))

    def models(self) -> Counter[str]:
        """How many vectors there are of each model."""
        return _sums(self.rows, lambda key: key.model)

    def to_json(self) -> str:
        """Write it down."""
        return json.dumps(
            {
                "model": self.model,
                "entities": self.entities,
                "counts": self.counts,
                "waiting": self.waiting,
                "orphaned": self.orphaned,
                "truncated": self.truncated,
                "dimensions": self.dimensions,
                "rows": [[*key, number] for key, number in self.rows.items()],
                "at": self.at and self.at.isoformat(),
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> "CoverageReport":
        """Read what ``to_json`` wrote.

        Raises:
            ValueError: nobody's ``to_json`` wrote that, or that of another version.
        """
        try:
            return _read(json.loads(text))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"this is no coverage report: {type(error).__name__} {error}"
            ) from error


def _read(data: Any) -> CoverageReport:
    return CoverageReport(
        model=str(data["model"]),
        entities=int(data["entities"]),
        counts={kind: int(data["counts"][kind]) for kind in Coverage},
        waiting=int(data["waiting"]),
        orphaned=int(data["orphaned"]),
        truncated=int(data["truncated"]),
        dimensions={int(length): int(number) for length, number in data["dimensions"].items()},
        rows={
            CoverageKey(str(type_), model, Coverage(kind)): int(number)
            for type_, model, kind, number in data["rows"]
        },
        at=datetime.fromisoformat(data["at"]) if data["at"] else None,
    )


def _bounded(rows: Counter[CoverageKey]) -> dict[CoverageKey, int]:
    """The most frequent types and models by name, all others together."""
    types = _most(_sums(rows, lambda key: key.entity_type), MOST_TYPES, OTHER_TYPES)
    models = _most(_sums(rows, lambda key: key.model), MOST_MODELS, OTHER_MODELS)
    bounded: Counter[CoverageKey] = Counter()
    for key, number in rows.items():
        type_ = key.entity_type if key.entity_type in types else OTHER_TYPES
        model = key.model if key.model is None or key.model in models else OTHER_MODELS
        bounded[CoverageKey(type_, model, key.coverage)] += number
    return dict(bounded)


def _sums(
    rows: Mapping[CoverageKey, int], name_of: Callable[[CoverageKey], str | None]
) -> Counter[str]:
    sums: Counter[str] = Counter()
    for key, number in rows.items():
        if (name := name_of(key)) is not None:
            sums[name] += number
    return sums


def _most(numbers: Counter[Name], most: int, other: Name) -> dict[Name, int]:
    """The most frequent ones, and the sum of the rest under ``other``, which takes no place."""
    named = Counter({name: number for name, number in numbers.items() if name != other})
    kept = dict(named.most_common(most))
    rest = numbers.total() - sum(kept.values())
    return kept | ({other: rest} if rest else {})
