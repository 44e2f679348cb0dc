"""The sliding window by a clock that is set back again and again, against time as it passes."""

from datetime import timedelta

from hypothesis import given, strategies as st

from embed_pipeline.domain.rate_window import RateLimits, Window, followed, take

START = 1_900_000_000_000
steps = st.lists(
    st.tuples(st.integers(0, 20_000), st.sampled_from([0, 0, 0, 1, 700, 30_000, 3_600_000])),
    min_size=1,
    max_size=150,
)
"""Milliseconds that pass, and by which the clock is set back meanwhile."""


@given(steps, st.integers(1, 20), st.integers(100, 60_000))
def test_m9_no_interval_that_passes_holds_more_than_the_limit(
    steps: list[tuple[int, int]], requests: int, interval_ms: int
) -> None:
    limits = RateLimits(requests, timedelta(milliseconds=interval_ms))
    window, passed, clock, granted = Window(), 0, START, []

    for pause, back in steps:
        passed, clock = passed + pause, clock + pause - back
        window, grant = take(followed(window, limits, now_ms=clock), limits, now_ms=clock)
        if grant.is_granted:
            granted.append(passed)

    for start in granted:
        assert sum(start <= moment < start + interval_ms for moment in granted) <= requests


@given(steps, st.integers(1, 5))
def test_nobody_is_told_to_wait_much_longer_than_the_interval(
    steps: list[tuple[int, int]], requests: int
) -> None:
    limits = RateLimits(requests, timedelta(seconds=10))
    longest = limits.interval + timedelta(milliseconds=limits.slice_ms + limits.margin_ms)
    window, clock = Window(), START

    for pause, back in steps:
        clock += pause - back
        window, grant = take(followed(window, limits, now_ms=clock), limits, now_ms=clock)
        assert grant.wait <= longest
