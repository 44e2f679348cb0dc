"""Small charts as SVG whose colours come from the page, so that they fit light and dark."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from math import floor, log10
from typing import Final

import pandas as pd

from embed_pipeline.history.frames import how

WIDTH: Final = 640
HEIGHT: Final = 200
LEFT: Final = 56
RIGHT: Final = 8
TOP: Final = 10
BOTTOM: Final = 24
MOST_POINTS: Final = 400
"""More than the picture has pixels for are summed up, each figure by what it means."""
LINES: Final = 4
GAP: Final = 5
"""Where so many readings are missing in a row, the line is broken: its course is unknown."""


def line_chart(series: Mapping[str, pd.Series], *, label: str) -> str:
    """Lines over time; the series names are the legend, ``label`` is for screen readers."""
    drawn = {name: _thinned(values.dropna()) for name, values in series.items()}
    drawn = {name: values for name, values in drawn.items() if len(values)}
    if not drawn:
        return '<p class="none">No readings in this time.</p>'
    first = min(values.index[0] for values in drawn.values())
    last = max(values.index[-1] for values in drawn.values())
    top = _ceiling(max(float(values.max()) for values in drawn.values()))
    span = max((last - first).total_seconds(), 1.0)
    paths = [
        f'<path class="line c{index}" d="{_path(values, first, span, top)}"/>'
        for index, values in enumerate(drawn.values())
    ]
    legend = "".join(
        f'<span class="key c{index}">{escape(name)}</span>' for index, name in enumerate(drawn)
    )
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"{_grid(top)}{_times(first, last)}{''.join(paths)}</svg>"
        f"<figcaption>{legend}</figcaption></figure>"
    )


def bars(rows: Sequence[tuple[str, float]]) -> str:
    """A list with a bar per row, the longest for the largest; readable without the bars."""
    most = max(value for _, value in rows)
    items = "".join(
        f'<li><span class="name">{escape(name)}</span>'
        f'<span class="bar"><i style="width:{100 * value / most:.1f}%"></i></span>'
        f'<span class="number">{value:,.0f}</span></li>'
        for name, value in rows
    )
    return f'<ul class="bars">{items}</ul>'


def _thinned(values: pd.Series) -> pd.Series:
    if len(values) <= MOST_POINTS:
        return values
    span = values.index[-1] - values.index[0]
    return values.resample(span / MOST_POINTS).agg(how(str(values.name))).dropna()


def _path(values: pd.Series, first: datetime, span: float, top: float) -> str:
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    steps = values.index.to_series().diff()
    is_start = (steps.isna() | (steps > GAP * steps.median())).to_numpy()
    points = []
    for at, value, begins in zip(values.index, values, is_start, strict=True):
        x = LEFT + width * (at - first).total_seconds() / span
        y = TOP + height * (1 - float(value) / top)
        # Without a length of 0 a reading on its own would not be drawn at all.
        points.append(f"M{x:.1f},{y:.1f}h0" if begins else f"L{x:.1f},{y:.1f}")
    return "".join(points)


def _grid(top: float) -> str:
    height = HEIGHT - TOP - BOTTOM
    lines = []
    for step in range(LINES + 1):
        y = TOP + height * (1 - step / LINES)
        lines.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
            f"{_short(top * step / LINES)}</text>"
        )
    return "".join(lines)


def _times(first: datetime, last: datetime) -> str:
    shape = "%H:%M" if (last - first).total_seconds() < 2 * 86_400 else "%b %d"
    width = WIDTH - LEFT - RIGHT
    texts = []
    for step, anchor in ((0, "start"), (1, "middle"), (2, "end")):
        at = first + (last - first) * step / 2
        texts.append(
            f'<text class="tick" x="{LEFT + width * step / 2:.0f}" y="{HEIGHT - 6}" '
            f'text-anchor="{anchor}">{at.strftime(shape)}</text>'
        )
    return "".join(texts)


def _ceiling(value: float) -> float:
    """The next round number, so that the labels of the grid are readable."""
    if value <= 0:
        return 1.0
    size = 10.0 ** floor(log10(value))
    return next(size * step for step in (1, 2, 4, 5, 8, 10) if value <= size * step)


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
