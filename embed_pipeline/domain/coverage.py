"""How well entities are covered by their vectors."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from embed_pipeline.domain.contents import Contents
from embed_pipeline.domain.embedding import TextSize
from embed_pipeline.domain.keys import KeyValue, Unfit
from embed_pipeline.domain.lifecycle import EnqueueOutcome

Name = TypeVar("Name", bound=str | int)

MOST_TYPES: Final = 50
MOST_MODELS: Final = 10
MOST_LENGTHS: Final = 20
MOST_NAMES: Final = 20
MOST_EXAMPLES: Final = 3
"""Entities that are named for each reason why they cannot be embedded."""
OTHER_TYPES: Final = "(other types)"
OTHER_MODELS: Final = "(other models)"
OTHER_LENGTHS: Final = -1


class Coverage(StrEnum):
    """The classes of the scan; each current entity is counted in exactly one."""

    CURRENT = "current"
    MISSING = "missing"
    """It has a text and no vector, whatever became of its job."""
    STALE = "stale"
    """The vector is that of another text or version, or another one was asked for."""
    WRONG_MODEL = "wrong_model"
    """The vector is of another model or length."""
    FOREIGN = "foreign"
    """Another program wrote the vector: it has no mark of ours, or one that does not fit it."""
    EMPTY_TEXT = "empty_text"
    """It has no vector because there is nothing to embed."""
    UNEMBEDDABLE = "unembeddable"
    """No job can mean it; ``Unfit`` says why."""


class CoverageKey(NamedTuple):
    """What entities are counted by."""

    entity_type: str
    """Empty where the entity has none."""
    model: str | None
    """The model of the vector that is there; ``None`` without one."""
    coverage: Coverage


@dataclass(frozen=True, slots=True)
class ReconcilePage:
    """The result of one page of the scan; ``cursor`` is ``None`` after the last page."""

    cursor: KeyValue | None
    scanned: int
    coverage: Mapping[Coverage, int]
    waiting: int
    """Not current, but with a job that is pending or processing."""
    orphaned: int
    """Vectors on entities that are no longer current; other programs would still find them."""
    cleared: int = 0
    """Of those, the ones that were removed."""
    forced: int = 0
    """Enqueued, or on a dry run to be enqueued, because they were asked for again."""
    wanted: Mapping[Coverage, int] = field(default_factory=dict)
    """To be embedded, for whatever reason."""
    sizes: tuple[TextSize, ...] = ()
    """Of each text that is to be embedded; empty ones where they are not counted."""
    enqueued: Mapping[EnqueueOutcome, int] = field(default_factory=dict)
    rows: Mapping[CoverageKey, int] = field(default_factory=dict)
    in_pieces: int = 0
    pieces: int = 0
    """Current, and too long for the model: such entities, and the pieces of their texts."""
    neighbours_changed: int = 0
    """Stale, and nothing of their text has changed but what it says of neighbours."""
    dimensions: Mapping[int, int] = field(default_factory=dict)
    """How many vectors have which length."""
    oversized: int = 0
    """Of their texts only the beginning is read, or nothing can be."""
    oversized_names: tuple[str, ...] = ()
    """The keys of some of them."""
    unfit: Mapping[Unfit, int] = field(default_factory=dict)
    """Why the unembeddable ones are that."""
    unfit_names: Mapping[Unfit, tuple[str, ...]] = field(default_factory=dict)
    """Some of them: keys, or ids of nodes that have none."""
    contents: Contents = field(default_factory=Contents)


@dataclass(frozen=True, slots=True)
class CoverageReport:
    """How well all entities are covered by the vectors of a model."""

    model: str
    entities: int = 0
    counts: Mapping[Coverage, int] = field(default_factory=lambda: dict.fromkeys(Coverage, 0))
    waiting: int = 0
    orphaned: int = 0
    """Vectors on entities that are no longer current."""
    in_pieces: int = 0
    pieces: int = 0
    """Current, and too long for the model: such entities, and the pieces of their texts."""
    neighbours_changed: int = 0
    """Stale, and nothing of their text has changed but what it says of neighbours."""
    dimensions: Mapping[int, int] = field(default_factory=dict)
    """How many vectors have which length; the rarest under ``OTHER_LENGTHS``."""
    oversized: int = 0
    """Of their texts only the beginning is read, or nothing can be."""
    oversized_names: tuple[str, ...] = ()
    """The keys of the first of them."""
    unfit: Mapping[Unfit, int] = field(default_factory=dict)
    """Why the unembeddable ones are that."""
    unfit_names: Mapping[Unfit, tuple[str, ...]] = field(default_factory=dict)
    """The first of them: keys, or ids of nodes that have none."""
    contents: Contents = field(default_factory=Contents)
    keeps_foreign: bool = False
    """Vectors of others are left alone, so they are not waited for."""
    rows: Mapping[CoverageKey, int] = field(default_factory=dict)
    """Entities by type, model and coverage; the rarest under ``OTHER_TYPES``, ``OTHER_MODELS``.

    A scan knows only the pages so far: a type that grows late may be counted under both names.
    """
    at: datetime | None = None
    """When the scan ended; ``None`` before that."""

    @property
    def embeddable(self) -> int:
        """Entities that can have one of our vectors."""
        without = self.counts[Coverage.UNEMBEDDABLE] + self.counts[Coverage.EMPTY_TEXT]
        return self.entities - without - self.keeps_foreign * self.counts[Coverage.FOREIGN]

    @property
    def percent(self) -> float:
        """Current ones as a share of the embeddable; a graph without any counts as covered."""
        if self.embeddable == 0:
            return 100.0
        return self.counts[Coverage.CURRENT] / self.embeddable * 100

    @property
    def left_out(self) -> str:
        """What the percentage leaves out, as the end of a sentence; empty if nothing."""
        words = {Coverage.EMPTY_TEXT: "without text", Coverage.UNEMBEDDABLE: "not embeddable"}
        if self.keeps_foreign:
            words[Coverage.FOREIGN] = "with a vector of others"
        said = ", ".join(f"{self.counts[k]} {word}" for k, word in words.items() if self.counts[k])
        return f" (besides {said})" if said else ""

    @property
    def summary(self) -> dict[str, int]:
        """The figures of the whole graph by name."""
        counts = {kind.value: number for kind, number in self.counts.items()}
        return {**counts, "waiting": self.waiting, "orphaned": self.orphaned}

    def plus(self, page: ReconcilePage) -> "CoverageReport":
        """Add a page."""
        rows = Counter(self.rows) + Counter(page.rows)
        return replace(
            self,
            entities=self.entities + page.scanned,
            counts={kind: self.counts[kind] + page.coverage[kind] for kind in Coverage},
            waiting=self.waiting + page.waiting,
            orphaned=self.orphaned + page.orphaned,
            in_pieces=self.in_pieces + page.in_pieces,
            pieces=self.pieces + page.pieces,
            neighbours_changed=self.neighbours_changed + page.neighbours_changed,
            dimensions=_most(
                Counter(self.dimensions) + Counter(page.dimensions), MOST_LENGTHS, OTHER_LENGTHS
            ),
            oversized=self.oversized + page.oversized,
            oversized_names=(*self.oversized_names, *page.oversized_names)[:MOST_NAMES],
            unfit=dict(Counter(self.unfit) + Counter(page.unfit)),
            unfit_names={
                reason: (*self.unfit_names.get(reason, ()), *page.unfit_names.get(reason, ()))[
                    :MOST_EXAMPLES
                ]
                for reason in (*self.unfit_names, *page.unfit_names)
            },
            contents=self.contents.plus(page.contents),
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
                "in_pieces": self.in_pieces,
                "pieces": self.pieces,
                "neighbours_changed": self.neighbours_changed,
                "dimensions": self.dimensions,
                "oversized": self.oversized,
                "oversized_names": self.oversized_names,
                "unfit": self.unfit,
                "unfit_names": self.unfit_names,
                "contents": self.contents.to_plain(),
                "keeps_foreign": self.keeps_foreign,
                "rows": [[*key, number] for key, number in self.rows.items()],
                "at": self.at and self.at.isoformat(),
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> "CoverageReport":
        """Read what ``to_json`` wrote.

        Raises:
            ValueError: not written by ``to_json``, or by that of another version.
        """
        try:
            return _read(json.loads(text))
        except (KeyError, TypeError, AttributeError) as error:
            said = f"this is no coverage report: {type(error).__name__} {error}"
            raise ValueError(said) from error


def _read(data: Any) -> CoverageReport:
    return CoverageReport(
        model=str(data["model"]),
        entities=int(data["entities"]),
        counts={kind: int(data["counts"][kind]) for kind in Coverage},
        waiting=int(data["waiting"]),
        orphaned=int(data["orphaned"]),
        in_pieces=int(data.get("in_pieces", 0)),
        pieces=int(data.get("pieces", 0)),
        neighbours_changed=int(data.get("neighbours_changed", 0)),
        dimensions={int(length): int(number) for length, number in data["dimensions"].items()},
        oversized=int(data["oversized"]),
        oversized_names=tuple(str(name) for name in data["oversized_names"]),
        unfit={Unfit(reason): int(number) for reason, number in data["unfit"].items()},
        unfit_names={
            Unfit(reason): tuple(str(name) for name in names)
            for reason, names in data["unfit_names"].items()
        },
        contents=Contents.from_plain(data["contents"]),
        keeps_foreign=bool(data["keeps_foreign"]),
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
    """The most frequent entries, and the sum of the rest under ``other``, which counts as none."""
    named = Counter({name: number for name, number in numbers.items() if name != other})
    kept = dict(named.most_common(most))
    rest = numbers.total() - sum(kept.values())
    return kept | ({other: rest} if rest else {})
