"""How long a provider may stop everybody: never longer than is granted, and said in words."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from embed_pipeline.domain.errors import RateLimitedError
from embed_pipeline.domain.holds import LONGEST_HOLD, Hold, Origin, clamped, pause_of

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
NONE = timedelta(0)
ORIGIN = Origin("acme", "run-1/a/7", "RateLimitError: slow down")


@given(st.floats())
def test_any_number_of_seconds_is_a_pause_or_none(seconds: float) -> None:
    pause = pause_of(seconds)

    if seconds >= 0:
        assert pause is not None
        assert NONE <= clamped(pause) <= LONGEST_HOLD
    else:
        assert pause is None


@given(st.timedeltas())
def test_no_error_grants_more_than_is_allowed_whoever_raises_it(asked: timedelta) -> None:
    error = RateLimitedError("slow down", retry_after=asked)

    assert error.asked == asked
    assert error.retry_after is not None
    assert NONE <= error.retry_after <= LONGEST_HOLD
    assert error.retry_after == asked or not NONE <= asked <= LONGEST_HOLD


@pytest.mark.parametrize(
    ("asked", "origin", "words"),
    [
        (
            timedelta(minutes=2),
            ORIGIN,
            (
                "the provider told run-1/a/7 of queue acme to wait until 2030-01-01 12:15:00 UTC: "
                '"RateLimitError: slow down"'
            ),
        ),
        (
            timedelta(seconds=1_000_000_000),
            Origin("acme", "run-1", ""),
            (
                "the provider told run-1 of queue acme to wait until 2030-01-01 12:15:00 UTC "
                "(it wanted 11574 d 1 h, cut to 15 min)"
            ),
        ),
        (
            timedelta.max,
            None,
            (
                "the provider is not asked before 2030-01-01 12:15:00 UTC; the reason was not "
                "noted (it wanted for ever, cut to 15 min)"
            ),
        ),
    ],
    ids=["asked for", "cut", "of an older version"],
)
def test_a_pause_says_its_end_its_origin_and_whether_it_was_cut(
    asked: timedelta, origin: Origin | None, words: str
) -> None:
    assert str(Hold(NOW, NOW + LONGEST_HOLD, asked, origin)) == words
