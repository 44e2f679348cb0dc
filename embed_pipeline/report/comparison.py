"""A comparison of models as a picture: an SVG file that needs nothing beside it."""

from collections.abc import Sequence
from html import escape
from typing import Final

from embed_pipeline.domain.budget import Unit
from embed_pipeline.domain.comparison import Standing
from embed_pipeline.report.words import plain

WIDTH: Final = 760
ROW: Final = 44
TOP: Final = 34
LEFT: Final = 16
RIGHT: Final = 190
LONGEST_NAME: Final = 90
CHANCE: Final = 0.5
STYLE: Final = """
:root { --ink:#1b1f24; --soft:#5d6673; --line:#dde1e6; --back:#ffffff; --bar:#2f6fde;
  --best:#1d7f4a }
@media (prefers-color-scheme: dark) { :root { --ink:#e6e9ed; --soft:#9aa4b2; --line:#313842;
  --back:#14171b; --bar:#7aa7ff; --best:#54c98a } }
text { font:13px system-ui,sans-serif; fill:var(--ink) } .soft { fill:var(--soft); font-size:11px }
.back { fill:var(--back) } .bar { fill:var(--bar) } .best { fill:var(--best) }
line { stroke:var(--line) } .range { stroke:var(--ink); stroke-width:2 }
"""


def drawn(standings: Sequence[Standing], best: Standing) -> str:
    """A bar for each contender from chance to its quality, with its interval and price."""
    height = TOP + ROW * len(standings) + 8
    ticks = "".join(
        f'<line x1="{_x(at):.0f}" x2="{_x(at):.0f}" y1="{TOP - 6}" y2="{height - 8}"/>'
        f'<text class="soft" x="{_x(at):.0f}" y="{TOP - 12}" text-anchor="middle">{at:g}</text>'
        for at in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    )
    rows = "".join(
        _row(each, TOP + ROW * number, is_best=each is best)
        for number, each in enumerate(standings)
    )
    label = "Quality of each model, and what it costs for the whole graph"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{label}"><style>{STYLE}</style>'
        f'<rect class="back" width="{WIDTH}" height="{height}"/>{ticks}{rows}</svg>\n'
    )


def _row(standing: Standing, top: int, *, is_best: bool) -> str:
    value, margin = standing.quality, standing.margin
    name = plain(str(standing.contender))[:LONGEST_NAME]
    cost = "price unknown" if standing.usd is None else Unit.USD.shown(standing.usd)
    middle = top + 28
    return (
        f'<text x="{LEFT}" y="{top + 14}">{escape(name)}</text>'
        f'<rect class="{"best" if is_best else "bar"}" x="{LEFT}" y="{middle - 6}" height="12" '
        f'width="{max(1.0, _x(value) - LEFT):.1f}"/>'
        f'<line class="range" x1="{_x(value - margin):.1f}" x2="{_x(value + margin):.1f}" '
        f'y1="{middle}" y2="{middle}"/>'
        f'<text x="{WIDTH - RIGHT + 14}" y="{middle + 5}">{value:.3f} · {escape(cost)}</text>'
    )


def _x(value: float) -> float:
    share = (min(1.0, max(CHANCE, value)) - CHANCE) / (1 - CHANCE)
    return LEFT + share * (WIDTH - LEFT - RIGHT)
