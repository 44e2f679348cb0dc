"""What about the data shows that the settings are hardly meant.

A label that no node has, a key of another type, a template whose properties are missing: each of
them leaves a queue that looks healthy, because there is nothing that could fail.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from embed_pipeline.domain.contents import MOST_KEYS
from embed_pipeline.domain.coverage import Coverage, CoverageReport
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.keys import Unfit
from embed_pipeline.domain.relations import READ_AS

FEWEST_SAME: Final = 3
SAME_SHARE: Final = 0.25
"""So many entities with one and the same text are no chance any more."""
EMPTY_SHARE: Final = 0.1
MISSING_SHARE: Final = 0.5
"""What most entities lack is hardly what their text should be made of."""
SHOWN: Final = 10
"""Names of labels or properties in a message."""
_OF_THE_KEY: Final = (
    Unfit.KEY_MISSING,
    Unfit.KEY_EMPTY,
    Unfit.KEY_LONG,
    Unfit.KEY_NUMBER,
    Unfit.KEY_TYPE,
)


@dataclass(frozen=True, slots=True)
class Names:
    """The labels and properties of the graph, each with its count."""

    labels: Mapping[str, int] = field(default_factory=dict)
    properties: Mapping[str, int] = field(default_factory=dict)
    """Those of some nodes of the label."""
    relations: Mapping[str, int] | None = None
    """The types of relationships; ``None`` if not read."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """One mismatch between settings and data, and what to do."""

    what: str
    remedy: str
    examples: tuple[str, ...] = ()
    """Keys, or ids of nodes: the contents of the graph, which not everybody may see."""
    is_of_keys: bool = False
    """Several entities have one key."""

    def __str__(self) -> str:
        return f"{self.seen}; {self.remedy}"

    @property
    def seen(self) -> str:
        """The mismatch, with examples."""
        return f"{self.what}: {', '.join(self.examples)}" if self.examples else self.what


def misfits(report: CoverageReport, shape: EntityShape, names: Names) -> list[Misfit]:
    """Mismatches that a scan has seen and that are probably not intended."""
    if report.entities == 0:
        return [_nothing(shape, names)]
    return [
        *_unembeddable(report, shape, names),
        *_duplicates(report, shape),
        *_missing(report, shape, names),
        *_neighbours(report, shape, names),
        *_empty(report, shape),
        *_same(report, shape),
    ]


def _nothing(shape: EntityShape, names: Names) -> Misfit:
    if number := names.labels.get(shape.label):
        return Misfit(
            f"all {number} nodes with the label {shape.label} are outdated: each has a "
            f"{shape.valid_to}",
            "set EMBED_ENTITY_VALID_TO to the property that only outdated versions have",
        )
    what = f"no node has the label {shape.label}"
    if not names.labels:
        return Misfit(
            f"{what}, and none has another one",
            "write entities, or set NEO4J_DATABASE or NEO4J_URI to where they are",
        )
    return Misfit(what, f"set EMBED_ENTITY_LABEL{_suggestion(shape.label, names.labels)}")


def _unembeddable(report: CoverageReport, shape: EntityShape, names: Names) -> Iterator[Misfit]:
    for reason, number in report.unfit.items():
        if reason is Unfit.DUPLICATE:
            continue
        if reason in _OF_THE_KEY:
            offer = _suggestion(shape.key, names.properties)
            remedy = f"mend {shape.key}, or set EMBED_ENTITY_KEY{offer}"
        elif reason is Unfit.VERSION:
            remedy = f"mend {shape.version}, or set EMBED_ENTITY_VERSION"
        else:
            remedy = "make their texts shorter"
        yield Misfit(
            f"{number} of {report.entities} {shape.label} nodes cannot be embedded, {reason.words}",
            remedy,
            report.unfit_names.get(reason, ()),
        )


def _duplicates(report: CoverageReport, shape: EntityShape) -> Iterator[Misfit]:
    # Two that differ in the type of their keys, 42 and '42', may be on two pages of the scan.
    number = max(report.contents.duplicates, report.unfit.get(Unfit.DUPLICATE, 0))
    if number:
        yield Misfit(
            f"{number} current {shape.label} nodes share their {shape.key} with another one",
            f"make {shape.key} unique{_way_to_order(shape)}; nodes that differ get no vector, "
            "because a job could not say which one it means",
            shared_keys(report),
            is_of_keys=True,
        )


def _way_to_order(shape: EntityShape) -> str:
    if shape.order is None:
        return ", or set EMBED_ENTITY_ORDER to the property in which the newest is the greatest"
    return f", or give each another {shape.order}"


def shared_keys(report: CoverageReport) -> tuple[str, ...]:
    """Keys that several current entities have; the first of them."""
    differ = report.unfit_names.get(Unfit.DUPLICATE, ())
    return tuple(dict.fromkeys((*report.contents.duplicate_keys, *differ)))[:MOST_KEYS]


def _missing(report: CoverageReport, shape: EntityShape, names: Names) -> Iterator[Misfit]:
    contents = report.contents
    if shape.template is None:
        # A name is always there, and not everybody has types; but somebody has facts.
        variable, wanted, least = "EMBED_ENTITY_OBSERVATIONS", (shape.observations,), 0.0
    else:
        variable, wanted = "EMBED_ENTITY_TEMPLATE", shape.text
        least = MISSING_SHARE * contents.read
    for name in wanted if contents.read else ():
        there = contents.present.get(name, 0)
        if there > least:
            continue
        what = f"no {shape.label} node has the property {name}"
        if there:
            lacking = contents.read - there
            what = f"the property {name} is missing on {lacking} of {contents.read} nodes"
        offer = _suggestion(name, names.properties)
        yield Misfit(f"{what}, of which {variable} makes the text", f"set {variable}{offer}")


def _neighbours(report: CoverageReport, shape: EntityShape, names: Names) -> Iterator[Misfit]:
    if not shape.has_relations:
        return
    types, known = shape.relations.types, names.relations
    unknown = [name for name in types if known is not None and name not in known]
    if unknown:
        yield Misfit(
            f"no relationship has the type {' or '.join(unknown)}, for which {READ_AS} stands",
            f"set EMBED_ENTITY_RELATIONS_TYPES{_suggestion(unknown[0], known or {})}",
        )
    elif report.contents.present.get(READ_AS) == 0:
        yield Misfit(
            f"none of {report.contents.read} {shape.label} nodes has a neighbour that {READ_AS} "
            "could name",
            "set EMBED_ENTITY_RELATIONS_TYPES, EMBED_ENTITY_RELATIONS_DIRECTION or "
            f"EMBED_ENTITY_RELATIONS_NAMES{_suggestion('', known or {})}",
        )


def _empty(report: CoverageReport, shape: EntityShape) -> Iterator[Misfit]:
    number = report.counts[Coverage.EMPTY_TEXT]
    if number and number >= EMPTY_SHARE * report.entities:
        yield Misfit(
            f"the text of {number} of {report.entities} {shape.label} nodes is empty: they get no "
            "vector",
            "set EMBED_ENTITY_TEMPLATE to properties that they have",
        )


def _same(report: CoverageReport, shape: EntityShape) -> Iterator[Misfit]:
    number, read = report.contents.same_text, report.contents.read
    if number >= max(FEWEST_SAME, SAME_SHARE * read):
        yield Misfit(
            f"at least {number} of {read} {shape.label} nodes have one and the same text, and so "
            "the same vector",
            "set EMBED_ENTITY_TEMPLATE to properties in which they differ",
        )


def _suggestion(wanted: str, names: Mapping[str, int]) -> str:
    """An existing name that is similar, if any, and the other existing names."""
    if not names:
        return ""
    lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(wanted.lower(), lower, n=1)
    similar = next((lower[name] for name in close if lower[name] != wanted), None)
    begin = f"; did you mean {similar}? There" if similar else "; there"
    known = ", ".join(f"{name} ({number})" for name, number in list(names.items())[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{begin} are {known}{more}"
