"""Days, and the times between them."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from embed_pipeline.history.days import DAY, gaps, overlaps, start_of

FIRST = date(2026, 11, 1)
NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)


def day(number: int) -> datetime:
    return datetime(2026, 11, number, tzinfo=UTC)


@pytest.mark.parametrize(
    ("days", "start", "end", "expected"),
    [
        ([], None, None, [(None, None)]),
        ([], day(1), day(2), [(day(1), day(2))]),
        ([2], None, None, [(None, day(2)), (day(3), None)]),
        ([2, 3, 5], day(1), day(7), [(day(1), day(2)), (day(4), day(5)), (day(6), day(7))]),
        ([2], NOON, None, [(day(3), None)]),
        ([2], NOON, NOON + timedelta(hours=1), []),
        ([2], day(2), day(3), []),
    ],
)
def test_gaps_are_the_times_that_no_day_covers(
    days: list[int],
    start: datetime | None,
    end: datetime | None,
    expected: list[tuple[datetime | None, datetime | None]],
) -> None:
    assert [*gaps([date(2026, 11, number) for number in days], start, end)] == expected


@given(
    exported=st.sets(st.integers(0, 9)),
    start=st.integers(0, 240),
    hours=st.integers(1, 240),
)
def test_every_hour_is_read_from_exactly_one_place(
    exported: set[int], start: int, hours: int
) -> None:
    first = start_of(FIRST) + timedelta(hours=start)
    last = first + timedelta(hours=hours)
    days = sorted(FIRST + DAY * number for number in exported)
    chosen = [d for d in days if overlaps(d, first, last)]
    between = [*gaps(chosen, first, last)]

    for hour in range(hours):
        at = first + timedelta(hours=hour)
        in_files = at.date() in chosen
        in_log = [1 for a, b in between if a is not None and b is not None and a <= at < b]
        assert in_files + len(in_log) == 1
