"""From "7d" to a time."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

Moment = datetime | date | str | timedelta | None
"""A time, a day, a time in ISO 8601, or how long ago: ``"90m"``, ``"36h"``, ``"7d"``, ``"4w"``."""

_AGO: Final = re.compile(r"(\d+)\s*([mhdw])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
ALLOWED: Final = "90m, 36h, 7d, 4w, or a time such as 2026-11-16 or 2026-11-16T08:00+00:00"


def to_time(moment: Moment, *, now: datetime | None = None) -> datetime | None:
    """Read a moment; without a zone it is UTC.

    Raises:
        ValueError: says what is allowed.
    """
    if moment is None:
        return None
    try:
        return _time(moment, now or datetime.now(UTC))
    except (OverflowError, ValueError):
        raise ValueError(f"{moment!r} is no time; give {ALLOWED}") from None


def _time(moment: object, now: datetime) -> datetime:
    match moment:
        case timedelta():
            return now - moment
        case datetime():
            return _aware(moment)
        case date():
            return datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
        case str() if found := _AGO.fullmatch(moment.strip()):
            return now - timedelta(**{_UNITS[found[2]]: int(found[1])})
        case str():
            return _aware(datetime.fromisoformat(moment.strip()))
        case _:
            raise ValueError


def _aware(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
