"""Whether something grows: a robust line through the second half of what was measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from statistics import median

Series = Sequence[tuple[float, float]]
"""Seconds since the start, and a value."""

MOST_GROWTH = 0.10
"""Of the level, over the second half."""
MOST_ACCELERATION = 1.5
"""Slope of the second half by that of the first."""
RISING = 0.65
"""With at least this share of all pairs rising it is no noise."""
FEWEST = 8
"""Samples, below which nothing is said."""


class Rule(StrEnum):
    """What is expected of a figure."""

    LEVEL = "level"
    """Goes up and down, and stays where it is."""
    RATE = "rate"
    """Rises by design, but not faster and faster."""
    NOTE = "note"
    """Shown, not judged."""


@dataclass(frozen=True)
class Figure:
    """What is measured, how it is judged, and what is too little to count as growth."""

    name: str
    rule: Rule
    slack: float = 0.0


@dataclass(frozen=True)
class Row:
    """One line of the result; the slope is that of the second half."""

    name: str
    start: float
    end: float
    per_hour: float
    verdict: str

    @property
    def is_bad(self) -> bool:
        return self.verdict == "GROWS"


def theil_sen(series: Series) -> tuple[float, float]:
    """The median slope over all pairs, and the share of pairs that rise.

    A few wild values, such as a collection of garbage, move neither.
    """
    slopes = [
        (later - earlier) / (t2 - t1)
        for (t1, earlier), (t2, later) in combinations(series, 2)
        if t2 > t1
    ]
    if not slopes:
        return 0.0, 0.0
    return median(slopes), sum(slope > 0 for slope in slopes) / len(slopes)


def judge(figure: Figure, series: Series) -> Row:
    """Say whether the figure does what its rule expects."""
    middle = len(series) // 2
    first, second = series[:middle], series[middle:]
    slope, rising = theil_sen(second)
    verdict = _verdict(figure, first, second, slope, rising)
    start, end = (series[0][1], series[-1][1]) if series else (0.0, 0.0)
    return Row(figure.name, start, end, slope * 3600, verdict)


def _verdict(figure: Figure, first: Series, second: Series, slope: float, rising: float) -> str:
    if figure.rule is Rule.NOTE:
        return "not judged"
    if len(first) + len(second) < FEWEST:
        return "too short"
    growth = slope * (second[-1][0] - second[0][0])
    if figure.rule is Rule.RATE:
        before, _ = theil_sen(first)
        is_faster = slope > MOST_ACCELERATION * before and growth > figure.slack
        return "GROWS" if is_faster else "flat rate"
    allowed = max(figure.slack, MOST_GROWTH * median(value for _, value in second))
    return "GROWS" if growth > allowed and rising >= RISING else "flat"


def table(rows: Sequence[Row]) -> str:
    """The result as text."""
    width = max(len(row.name) for row in rows)
    lines = [f"{'':{width}} {'start':>12} {'end':>12} {'per hour':>12}  verdict"]
    lines += [
        f"{row.name:{width}} {row.start:>12,.1f} {row.end:>12,.1f} {row.per_hour:>+12,.1f}  "
        f"{row.verdict}"
        for row in rows
    ]
    return "\n".join(lines)
