"""From "7d" to a time."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from embed_pipeline.history.moments import Moment, to_time

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
EASTERN = timezone(timedelta(hours=-5))


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (None, None),
        ("90m", NOW - timedelta(minutes=90)),
        ("36h", NOW - timedelta(hours=36)),
        ("7d", NOW - timedelta(days=7)),
        (" 4 w ", NOW - timedelta(weeks=4)),
        (timedelta(seconds=5), NOW - timedelta(seconds=5)),
        ("2026-11-15", datetime(2026, 11, 15, tzinfo=UTC)),
        ("2026-11-15T08:00", datetime(2026, 11, 15, 8, tzinfo=UTC)),
        ("2026-11-15T08:00-05:00", datetime(2026, 11, 15, 13, tzinfo=UTC)),
        (date(2026, 11, 15), datetime(2026, 11, 15, tzinfo=UTC)),
        (datetime(2026, 11, 15, 8), datetime(2026, 11, 15, 8, tzinfo=UTC)),
        (datetime(2026, 11, 15, 8, tzinfo=EASTERN), datetime(2026, 11, 15, 13, tzinfo=UTC)),
    ],
)
def test_a_moment_is_a_time_in_utc(moment: Moment, expected: datetime | None) -> None:
    found = to_time(moment, now=NOW)

    assert found == expected
    assert found is None or found.tzinfo is UTC


@pytest.mark.parametrize("moment", ["", "yesterday", "7", "7y", "-7d", "1.5h", 7, "9" * 30 + "d"])
def test_anything_else_is_refused_with_what_is_allowed(moment: Moment) -> None:
    with pytest.raises(ValueError, match=r"is no time; give 90m, 36h, 7d, 4w, or a time such as"):
        to_time(moment, now=NOW)
