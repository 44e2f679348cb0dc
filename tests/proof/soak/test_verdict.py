"""What counts as growth."""

import random

import pytest

from tests.proof.soak.verdict import Figure, Row, Rule, judge, table, theil_sen

LEVEL = Figure("memory", Rule.LEVEL, slack=1.0)
RATE = Figure("events", Rule.RATE, slack=1.0)


def measured(*values: float) -> list[tuple[float, float]]:
    return [(10.0 * number, value) for number, value in enumerate(values)]


def test_a_few_wild_values_do_not_move_the_slope() -> None:
    line = [float(number) for number in range(20)]
    line[7], line[15] = 10_000.0, -10_000.0

    slope, rising = theil_sen(measured(*line))

    assert slope == pytest.approx(0.1)
    assert rising > 0.8


NOISE = [100 + random.Random(number).uniform(-3, 3) for number in range(60)]


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([100.0] * 60, "flat"),
        (NOISE, "flat"),
        # Warms up first, then stays.
        ([min(100.0, 10.0 + 5 * number) for number in range(60)], "flat"),
        # Up and down, as a heap does.
        ([100.0 + 40 * (number % 5) for number in range(60)], "flat"),
        ([100.0 - number for number in range(60)], "flat"),
        ([100.0 + number for number in range(60)], "GROWS"),
        ([value + number for number, value in enumerate(NOISE)], "GROWS"),
        # Within the slack.
        ([0.0] * 30 + [0.01 * number for number in range(30)], "flat"),
        ([1.0, 2.0, 3.0], "too short"),
        ([], "too short"),
    ],
)
def test_a_level_stays_or_grows(values: list[float], verdict: str) -> None:
    assert judge(LEVEL, measured(*values)).verdict == verdict


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([float(number) for number in range(60)], "flat rate"),
        ([0.0] * 60, "flat rate"),
        ([float(number**2) for number in range(60)], "GROWS"),
    ],
)
def test_a_rate_may_rise_but_not_faster_and_faster(values: list[float], verdict: str) -> None:
    assert judge(RATE, measured(*values)).verdict == verdict


def test_what_is_only_noted_is_never_bad() -> None:
    row = judge(Figure("logs", Rule.NOTE), measured(*range(60)))

    assert (row.start, row.end, row.per_hour) == (0.0, 59.0, pytest.approx(360.0))
    assert not row.is_bad


def test_the_table_names_everything() -> None:
    text = table([Row("memory", 1.0, 2_000.0, 3.5, "flat"), Row("files", 1, 1, 0, "GROWS")])

    assert text.splitlines()[1:] == [
        "memory          1.0      2,000.0         +3.5  flat",
        "files           1.0          1.0         +0.0  GROWS",
    ]
