"""The sliding window, against its promise and against a slow and obvious one."""

from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from embed_pipeline.domain.holds import LONGEST_HOLD
from embed_pipeline.domain.rate_window import (
    SLICES,
    RateLimits,
    Window,
    followed,
    hold,
    hold_of,
    state_of,
    take,
)

START = 1_900_000_000_000
steps = st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 500)), min_size=1, max_size=150)


@given(steps, st.integers(1, 20), st.integers(100, 60_000))
def test_no_interval_holds_more_requests_than_the_limit(
    steps: list[tuple[int, int]], requests: int, interval_ms: int
) -> None:
    limits = RateLimits(requests, timedelta(milliseconds=interval_ms))
    window, now, granted = Window(), START, []

    for pause, _ in steps:
        now += pause
        window, grant = take(window, limits, now_ms=now)
        if grant.is_granted:
            granted.append(now)
        assert len(window.slices) <= SLICES + limits.margin_ms // limits.slice_ms + 3

    for start in granted:
        assert sum(start <= moment < start + interval_ms for moment in granted) <= requests


@given(steps, st.integers(500, 2_000))
def test_no_interval_holds_more_tokens_than_the_limit(
    steps: list[tuple[int, int]], tokens: int
) -> None:
    limits = RateLimits(1_000, timedelta(seconds=30), tokens)
    window, now = Window(), START
    granted: list[tuple[int, int]] = []

    for pause, wanted in steps:
        now += pause
        window, grant = take(window, limits, now_ms=now, tokens=wanted)
        if grant.is_granted:
            granted.append((now, wanted))

    for start, _ in granted:
        inside = [n for moment, n in granted if start <= moment < start + 30_000]
        assert sum(inside) <= tokens


@given(steps, st.integers(1, 20))
def test_after_the_reported_wait_it_is_granted(steps: list[tuple[int, int]], requests: int) -> None:
    limits = RateLimits(requests, timedelta(seconds=10))
    window, now = Window(), START

    for pause, _ in steps:
        now += pause
        window, grant = take(window, limits, now_ms=now)
        if not grant.is_granted:
            wait = grant.wait // timedelta(milliseconds=1)
            assert 0 < wait <= 10_000 + limits.slice_ms + limits.margin_ms
            assert take(window, limits, now_ms=now + wait)[1].is_granted


def test_the_full_rate_is_nearly_reached() -> None:
    limits = RateLimits(20, timedelta(seconds=60))
    window, granted = Window(), 0

    for now in range(START, START + 600_000, 100):
        window, grant = take(window, limits, now_ms=now)
        granted += grant.is_granted

    assert 0.96 * 200 <= granted <= 200 + 20


def test_a_request_that_is_too_large_alone_waits_for_nobody() -> None:
    limits = RateLimits(tokens=100)

    window, first = take(Window(), limits, now_ms=START, tokens=5_000)
    _, second = take(window, limits, now_ms=START, tokens=1)

    assert (first.is_granted, second.is_granted) == (True, False)


LONGEST_MS = LONGEST_HOLD // timedelta(milliseconds=1)
LARGEST = 2**63 - 1
"""What a property of Neo4j can hold."""
any_ms = st.integers(-LARGEST, LARGEST) | st.sampled_from(
    [LARGEST, -LARGEST, 0, START, START + LONGEST_MS, START + 1_000_000_000_000]
)


@given(any_ms, st.integers(0, LONGEST_MS))
def test_no_pause_is_stored_that_is_longer_than_is_granted(pause_ms: int, later_ms: int) -> None:
    window = hold(Window(), pause_ms=pause_ms, now_ms=START)

    assert window.not_before_ms <= START + LONGEST_MS
    _, grant = take(window, RateLimits(), now_ms=START + later_ms)
    assert grant.wait <= LONGEST_HOLD


@given(any_ms, any_ms)
def test_a_pause_that_could_not_have_been_granted_is_not_believed(
    not_before_ms: int, held_at_ms: int
) -> None:
    stored = Window(not_before_ms=not_before_ms, held_at_ms=held_at_ms)

    window = followed(stored, RateLimits(), now_ms=START)
    _, grant = take(window, RateLimits(), now_ms=START)

    assert grant.wait <= LONGEST_HOLD
    assert abs(window.asked_ms) <= LARGEST
    assert followed(window, RateLimits(), now_ms=START) == window
    assert (hold_of(window, now_ms=START) is None) == grant.is_granted


def test_a_clock_that_goes_back_grants_no_more() -> None:
    limits = RateLimits(2, timedelta(seconds=10))
    window, _ = take(Window(), limits, now_ms=START)
    window, _ = take(window, limits, now_ms=START - 60_000)

    _, third = take(window, limits, now_ms=START - 59_000)

    assert not third.is_granted


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (RateLimits(), "20 requests in 1 min"),
        (RateLimits(tokens=500), "20 requests and 500 tokens in 1 min"),
        (RateLimits(requests=None, tokens=500), "500 tokens in 1 min"),
        (RateLimits(requests=None), "no limit"),
    ],
)
def test_people_read_what_is_allowed(limits: RateLimits, words: str) -> None:
    assert str(limits) == words


def test_without_a_limit_everything_is_granted_and_counted() -> None:
    window, limits = Window(), RateLimits(requests=None)
    for _ in range(50):
        window, grant = take(window, limits, now_ms=1_000, tokens=10**9)
        assert grant.is_granted

    state = state_of(window, limits, name="local", now_ms=1_000)

    assert (state.requests, state.tokens, state.wait) == (50, 50 * 10**9, timedelta(0))
