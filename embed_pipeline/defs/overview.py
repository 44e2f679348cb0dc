"""The first look at a queue: what waits, how old it is and how fast it goes, as one picture.

Dagster draws every figure in a plot of its own, in alphabetical order: sixty of them bury the three
that matter.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import dagster as dg

from embed_pipeline.defs.metadata import picture

READINGS: Final = 60
"""An hour of them, as the settings come."""
STEP: Final = 2
"""The highest of so many is drawn: each event carries the picture, so it has to be small."""
FIGURES: Final = {
    "pending": "jobs that wait",
    "oldest_pending_seconds": "oldest waits, seconds",
    "throughput_per_minute": "done per minute",
    "budget_used_percent": "budget used, percent",
}
BUDGET: Final = "budget_used_percent"
"""Only drawn where a budget is used."""
WIDTH: Final = 220
HEIGHT: Final = 70
GAP: Final = 20
TOP: Final = 24
COLOUR: Final = "#4f43dd"


@dataclass(frozen=True, slots=True)
class Point:
    """The values of one reading that are drawn."""

    at: float
    figures: dict[str, float]


def recent(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[Point]:
    """The latest readings, the oldest first."""
    records = instance.fetch_materializations(key, limit=READINGS).records
    return [
        point(record.timestamp, event.metadata)
        for record in reversed(records)
        if (event := record.asset_materialization) is not None
    ]


def point(at: float, metadata: Any) -> Point:
    """Take the drawn values from a reading's metadata, fresh or as Dagster stores it."""
    values = {name: getattr(metadata.get(name), "value", metadata.get(name)) for name in FIGURES}
    return Point(at, {n: float(v) for n, v in values.items() if isinstance(v, (int, float))})


def drawn(points: Sequence[Point]) -> dict[str, Any]:
    """The picture, as the first entry of the metadata."""
    names = [n for n in FIGURES if n != BUDGET or any(each.figures.get(n) for each in points)]
    panels = "".join(_panel(index, name, points) for index, name in enumerate(names))
    first, last = (_time(each.at) for each in (points[0], points[-1]))
    width, height = len(names) * (WIDTH + GAP), TOP + HEIGHT + GAP
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12" fill="#8a8f98">{panels}</svg>'
    )
    return {"chart": picture(f"{first} to {last} UTC", svg)}


def _panel(index: int, name: str, points: Sequence[Point]) -> str:
    left = index * (WIDTH + GAP)
    known = [(each.at, each.figures[name]) for each in points if name in each.figures]
    title = f'<text x="{left}" y="12">{FIGURES[name]}'
    if not known:
        return f"{title}: nothing</text>"
    most = max(value for _, value in known)
    begin, span = points[0].at, max(points[-1].at - points[0].at, 1.0)
    line = _line(
        (left + WIDTH * (at - begin) / span, TOP + HEIGHT * (1 - value / (most or 1)))
        for at, value in _thinned(known)
    )
    bottom, first, last = TOP + HEIGHT, _time(points[0].at), _time(points[-1].at)
    times = (
        f'<text x="{left}" y="{bottom + 14}">{first}</text>'
        f'<text x="{left + WIDTH}" y="{bottom + 14}" text-anchor="end">{last}</text>'
    )
    return (
        f"{title}: {known[-1][1]:,.0f}, at most {most:,.0f}</text>"
        f'<path d="M{left} {bottom}h{WIDTH}" stroke="#c9ced6"/>'
        f'<path d="{line}" fill="none" stroke="{COLOUR}" stroke-width="2"/>{times}'
    )


def _thinned(known: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Thin out points, keeping the peaks and the last one."""
    *earlier, last = known
    parts = (earlier[i : i + STEP] for i in range(0, len(earlier), STEP))
    return [*(max(part, key=lambda each: each[1]) for part in parts), last]


def _line(places: Iterable[tuple[float, float]]) -> str:
    """An SVG path on whole coordinates, relative to save space."""
    whole = [(round(x), round(y)) for x, y in places]
    steps = (f"{x - u} {y - v}" for (u, v), (x, y) in pairwise(whole))
    return f"M{whole[0][0]} {whole[0][1]}l{' '.join(steps) or '0 0'}".replace(" -", "-")


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, tz=UTC):%H:%M}"
