"""What the benchmarks make of their measurements."""

from collections.abc import Iterator

import pytest

from benchmarks.table import Line, at_least, at_most, between, found_by, verdict


def line(*ratios: float, goal: object = None) -> Line:
    return Line(1, "what", "measured", ratios, goal)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("goal", "ratios", "met"),
    [
        (at_least(0.7), (0.6, 0.7, 0.9), True),
        (at_least(0.7), (0.6, 0.69, 0.9), False),
        (at_most(2), (1.0, 2.0, 9.0), True),
        (at_most(2), (1.0, 2.1, 9.0), False),
        (at_most(0), (0.0,), True),
        (between(0.8, 1.2), (0.1, 0.8, 9.0), True),
        (between(0.8, 1.2), (0.1, 0.79, 9.0), False),
        (between(0.8, 1.2), (0.1, 1.21, 9.0), False),
        (None, (1.0,), None),
    ],
)
def test_the_median_decides_about_a_goal(
    goal: object, ratios: tuple[float, ...], met: bool | None
) -> None:
    assert line(*ratios, goal=goal).is_met is met


def test_a_goal_that_was_not_measured_is_missed() -> None:
    assert line(goal=at_least(1)).is_met is False


def test_a_part_that_fails_keeps_its_lines_and_misses_a_goal() -> None:
    def broken() -> Iterator[Line]:
        yield line(2.0, goal=at_least(1))
        raise RuntimeError("1 | 2\nlines")

    lines = list(found_by("peers", broken))

    assert verdict(lines) == (1, 2)
    assert "| the part peers could not be measured | RuntimeError: 1 / 2 lines |" in str(lines[1])


def test_only_lines_with_a_goal_are_counted() -> None:
    lines = [line(2.0, goal=at_least(1)), line(0.5, goal=at_least(1)), line(3.0)]

    assert verdict(lines) == (1, 2)


def test_a_line_shows_median_spread_goal_and_verdict() -> None:
    shown = str(line(0.5, 0.25, 1234.0, goal=at_least(0.7)))

    assert shown == "| 1 | what | measured | 0.50 (0.25–1,234) | ≥ 0.70 | **no** |"


def test_a_goal_with_two_sides_shows_both() -> None:
    assert str(between(0.8, 1.2)) == "≥ 0.80, ≤ 1.20"
