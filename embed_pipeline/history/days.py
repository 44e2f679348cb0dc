"""Days in UTC, and the times between them."""

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

DAY: Final = timedelta(days=1)


def start_of(day: date) -> datetime:
    """The first moment of a day."""
    return datetime.combine(day, time(), UTC)


def overlaps(day: date, start: datetime | None, end: datetime | None) -> bool:
    """Whether a part of the day lies between ``start`` and ``end`` (exclusive)."""
    first = start_of(day)
    return (start is None or first + DAY > start) and (end is None or first < end)


def gaps(
    days: Iterable[date], start: datetime | None, end: datetime | None
) -> Iterator[tuple[datetime | None, datetime | None]]:
    """The times from ``start`` to before ``end`` that none of the days, in order, covers."""
    at = start
    for day in days:
        first = start_of(day)
        if at is None or at < first:
            yield at, first
        at = first + DAY
    if end is None or at is None or at < end:
        yield at, end
