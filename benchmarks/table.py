"""Lines of the result, their goals, and how they are printed."""

import statistics
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

HEAD: Final = (
    "| | what | measured | ratio, median (spread) | goal | met |\n|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class Goal:
    """Bounds of a ratio, one or both."""

    least: float | None = None
    most: float | None = None

    def is_met(self, ratio: float) -> bool:
        """Say whether the ratio is good enough."""
        is_enough = self.least is None or ratio >= self.least
        return is_enough and (self.most is None or ratio <= self.most)

    def __str__(self) -> str:
        bounds = (("≥", self.least), ("≤", self.most))
        return ", ".join(f"{sign} {_number(bound)}" for sign, bound in bounds if bound is not None)


@dataclass(frozen=True, slots=True)
class Line:
    """One measurement; without ``ratios`` it is only told."""

    item: int
    what: str
    measured: str
    ratios: Sequence[float] = ()
    goal: Goal | None = None

    @property
    def ratio(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.ratios)

    @property
    def is_met(self) -> bool | None:
        """Say whether the goal is met; ``None`` where there is none."""
        if self.goal is None:
            return None
        return bool(self.ratios) and self.goal.is_met(self.ratio)

    def __str__(self) -> str:
        spread = ""
        if self.ratios:
            low, high = _number(min(self.ratios)), _number(max(self.ratios))
            spread = _number(self.ratio) + (f" ({low}–{high})" if low != high else "")
        met = {True: "yes", False: "**no**", None: ""}[self.is_met]
        cells = (str(self.item), self.what, self.measured, spread, str(self.goal or ""), met)
        return f"| {' | '.join(cells)} |"


def at_least(bound: float) -> Goal:
    """A goal to reach."""
    return Goal(least=bound)


def at_most(bound: float) -> Goal:
    """A goal not to exceed."""
    return Goal(most=bound)


def between(least: float, most: float) -> Goal:
    """A goal to meet from both sides."""
    return Goal(least, most)


def found_by(name: str, measure: Callable[[], Iterable[Line]]) -> Iterator[Line]:
    """The lines of a part; where it fails or has none, a line more, whose goal is missed."""
    number = 0
    try:
        for line in measure():
            number += 1
            yield line
        if not number:
            yield Line(0, f"the part {name} measured nothing", "no line", goal=at_least(1))
    except Exception as error:
        sys.stderr.write(traceback.format_exc())
        # Nothing in it may look like a column.
        said = " ".join(f"{type(error).__name__}: {error}".replace("|", "/").split())
        yield Line(0, f"the part {name} could not be measured", said[:200], goal=at_least(1))


def verdict(lines: Iterable[Line]) -> tuple[int, int]:
    """How many goals are met, of how many."""
    judged = [line.is_met for line in lines if line.is_met is not None]
    return sum(judged), len(judged)


def ratios(ours: Iterable[float], theirs: Iterable[float]) -> list[float]:
    """One ratio per round."""
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def per_second(counts: Iterable[float]) -> str:
    """The median of rates, for reading."""
    return f"{_number(statistics.median(counts))}/s"


def _number(value: float) -> str:
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
