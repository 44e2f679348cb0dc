"""A change of model beside the live one: two sides, an alias that names the live one, and gates.

Each side is a queue of its own on the same entities: own jobs, own property, own vector index. The
alias says which one searches use; a flip swaps the two and raises the epoch.

    (none) --start--> filling --go--> live --finish--> (none)
                         ^             | ^
                         |    rollback | | go
                      finish           v |
                      (forced)     rolled_back --finish--> (none)
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from embed_pipeline.domain.coverage import CoverageReport
from embed_pipeline.domain.errors import CutoverError
from embed_pipeline.domain.figures import nothing_to_embed
from embed_pipeline.domain.identity import Identity
from embed_pipeline.domain.models import MOCK_PREFIX, Provider
from embed_pipeline.domain.quality import FEWEST, FLOOR, Quality
from embed_pipeline.domain.words import span

LEAST_COVERAGE: Final = 99.9
"""Percent of the embeddable entities that the candidate must have embedded."""
MOST_WORSE: Final = 0.02
"""So much worse than the live one the candidate may be: in AUC, in recall of questions."""
GRACE: Final = timedelta(hours=1)
"""The side that is to be dropped must not have been searched for so long."""
LONGEST_SLUG: Final = 40


class Phase(StrEnum):
    """The progress of a cut-over; without one, none is under way."""

    FILLING = "filling"
    """The candidate is being filled, and has never been live."""
    LIVE = "live"
    """The candidate is live; the former side stays fresh for a rollback."""
    ROLLED_BACK = "rolled_back"
    """The candidate has been live; the former side is again."""
    FINISHING = "finishing"
    """The side that is not live is being removed."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two sides: where its vectors are, which model makes them, and from what."""

    queue: str
    index: str
    vector: str
    """The property of the entities."""
    provider: str
    model: str
    dimensions: int
    recipe: str
    template: str | None = None

    @property
    def identity(self) -> Identity:
        """Vectors are comparable only within it."""
        return Identity(self.provider, self.model, self.dimensions, self.recipe)

    def __str__(self) -> str:
        return self.identity.described()


class IndexUse(NamedTuple):
    """When an index was last searched."""

    name: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Alias:
    """Which side is live, and which one is beside it."""

    name: str
    live: Side
    epoch: int
    since: datetime
    """When it became live."""
    other: Side | None = None
    phase: Phase | None = None
    takes: str | None = None
    """The name of the other side's index, which the live one gets before that side is removed."""

    @property
    def kept_fresh(self) -> tuple[Side, ...]:
        """The sides that scans and drains serve, the live one first."""
        if self.other is None or self.phase is Phase.FINISHING:
            return (self.live,)
        return (self.live, self.other)

    def candidate(self) -> Side:
        """The side that ``go`` would make live.

        Raises:
            CutoverError: there is none, or it is live already.
        """
        if self.other is None or self.phase is None:
            raise CutoverError(
                "no cut-over is under way; begin one: embed-pipeline cutover start --model …"
            )
        if self.phase is Phase.LIVE:
            raise CutoverError(
                f"{self.live} is live already; 'embed-pipeline cutover rollback' goes back to "
                f"{self.other}, 'embed-pipeline cutover finish' removes that"
            )
        if self.phase is Phase.FINISHING:
            raise CutoverError(FINISH_FIRST.format(self.other))
        return self.other

    def former(self) -> Side:
        """The side that ``rollback`` would make live again.

        Raises:
            CutoverError: no candidate is live.
        """
        if self.other is None or self.phase is None:
            raise CutoverError("no cut-over is under way: there is nothing to go back to")
        if self.phase is Phase.FINISHING:
            raise CutoverError(FINISH_FIRST.format(self.other))
        if self.phase is not Phase.LIVE:
            raise CutoverError(f"{self.live} is live: the candidate {self.other} is not")
        return self.other


FINISH_FIRST: Final = (
    "the cut-over is being finished, {} is being removed; "
    "repeat 'embed-pipeline cutover finish' until it is done"
)


@dataclass(frozen=True, slots=True)
class Gate:
    """A condition of ``go``."""

    name: str
    passed: bool
    detail: str
    figures: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}"


GATES: Final = {
    "cutover_coverage": f"The candidate has embedded {LEAST_COVERAGE} % of the entities.",
    "cutover_index": "The vector index of the candidate is online and takes its vectors.",
    "cutover_lengths": "All vectors of the candidate are of one length.",
    "cutover_no_mock": "No vector of the candidate is a mock vector.",
    "cutover_quality": "The vectors of the candidate follow the graph as well as those of the live "
    f"model, within {MOST_WORSE}.",
    "cutover_questions": "The candidate answers the questions of questions.yaml as well as the "
    "live model.",
}
"""The gates by name, and what each of them means."""


def coverage_gate(report: CoverageReport | None) -> Gate:
    """Whether nearly all entities can be found through the candidate."""
    name = "cutover_coverage"
    if report is None:
        return Gate(name, passed=False, detail="the entities have not been looked at yet")
    current = report.embeddable * report.percent / 100
    said = nothing_to_embed(report)
    if report.embeddable:
        share = f"{report.percent:.2f} % of {report.embeddable} entities"
        said = f"{share}, {LEAST_COVERAGE} % are needed{report.left_out}"
    if report.waiting:
        said += f"; {report.waiting} wait to be embedded"
    figures = {
        "percent": round(report.percent, 3),
        "embedded": round(current),
        "embeddable": report.embeddable,
        "waiting": report.waiting,
    }
    return Gate(name, report.percent >= LEAST_COVERAGE, said, figures)


def lengths_gate(report: CoverageReport | None, dimensions: int) -> Gate:
    """Whether the index holds every vector: it silently leaves out those of another length."""
    found = dict(report.dimensions) if report else {}
    others = {length: number for length, number in found.items() if length != dimensions}
    said = f"all of {dimensions}"
    if others:
        listed = ", ".join(f"{number} of {length}" for length, number in sorted(others.items()))
        said = f"{listed} instead of {dimensions}"
    figures = {"fitting": found.get(dimensions, 0), "others": sum(others.values())}
    return Gate("cutover_lengths", not others, said, figures)


def mock_gate(side: Side, report: CoverageReport | None) -> Gate:
    """Whether the vectors mean anything."""
    models = report.models() if report else {}
    mock = sum(n for model, n in models.items() if str(model).startswith(MOCK_PREFIX))
    is_mock = side.provider == Provider.MOCK
    said = "none"
    if is_mock or mock:
        said = f"{mock} vectors have no meaning; choose another provider than mock"
    return Gate("cutover_no_mock", not (is_mock or mock), said, {"mock": mock})


def quality_gate(live: Quality, candidate: Quality) -> Gate:
    """Whether the candidate's vectors follow the graph as well as the live ones, on the same edges.

    Where edges say nothing, or there are too few of them, it is no gate.
    """
    name, before, after = "cutover_quality", live.auc, candidate.auc
    if before is None or after is None:
        said = (
            f"fewer than {FEWEST} edges between entities that both have embedded: nothing is said"
        )
        return Gate(name, passed=True, detail=said)
    said = f"AUC {after.value:.3f}, the live one {before.value:.3f} on the same {after.edges} edges"
    figures = {"auc": after.value, "auc_live": before.value, "edges": after.edges}
    if max(before.value, after.value, live.words or 0.0) < FLOOR:
        said = f"no signal: {said}, and joined texts share no more words than others do"
        return Gate(name, passed=True, detail=said, figures=figures)
    return Gate(name, after.value >= before.value - MOST_WORSE, said, figures)


def questions_gate(live: float, candidate: float, *, count: int, k: int) -> Gate:
    """Whether the user's own questions are answered as well as before."""
    return Gate(
        "cutover_questions",
        candidate >= live - MOST_WORSE,
        f"recall@{k} of {count} questions: {candidate:.3f}, the live one {live:.3f}",
        {"recall": candidate, "recall_live": live, "questions": count},
    )


def why_not_to_finish(
    alias: Alias, *, now: datetime, last_read: IndexUse | None, grace: timedelta
) -> str | None:
    """Why the side that is not live must not be removed yet, or ``None``."""
    if alias.phase is Phase.FILLING:
        return (
            f"the candidate {alias.other} has never been live; 'embed-pipeline cutover go' makes "
            "it so, and --force gives it up"
        )
    own = alias.other.index if alias.other else ""
    use = last_read if last_read and last_read.at > alias.since else IndexUse(own, alias.since)
    if alias.phase is Phase.FINISHING or now - use.at >= grace:
        return None
    was = "read" if use is last_read else "live"
    instead = alias.live.index if use.name == own else f"of the pieces of {alias.live}"
    return (
        f"index {use.name} was {was} {span(now - use.at)} ago; it must not have been searched for "
        f"{span(grace)} (--grace), or a client still does: point it to the live index "
        f"{instead}, or drop it all the same with --force"
    )


def slug_of(identity: Identity) -> str:
    """An ending for the names of a side; other identities have others."""
    model = re.sub(r"[^a-z0-9]+", "_", identity.model.lower()).strip("_")
    return f"{model[:LONGEST_SLUG]}_{identity.dimensions}_{_digest(identity, 4)}"


def queue_for(alias: str, identity: Identity) -> str:
    """The queue of a candidate; its name must be short."""
    return f"cut_{_digest((alias, identity), 10)}"


def _digest(value: object, length: int) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:length]
