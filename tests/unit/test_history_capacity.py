"""The capacity model: hand-made numbers, and the limiter that it is a model of."""

from datetime import UTC, datetime, timedelta
from math import inf, isnan
from typing import Any

import pandas as pd
import pytest

from embed_pipeline.domain.rate_window import RateLimits, Window, take
from embed_pipeline.history.capacity import (
    Capacity,
    arrivals_per_minute,
    compared,
    measured,
    sensitivity,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LIMITS = RateLimits(requests=20, interval=timedelta(minutes=1))
ROUND = 62.4
"""Seconds after which the limiter of twenty per minute lets the next twenty through."""
LIMITED = Capacity(LIMITS, jobs_per_request=100, jobs_per_second=inf)
SLOW = Capacity(LIMITS, jobs_per_request=inf, jobs_per_second=5)


def frame(*rows: dict[str, Any]) -> pd.DataFrame:
    """Rows a minute apart."""
    index = pd.DatetimeIndex([NOW + timedelta(minutes=n) for n in range(len(rows))], name="at")
    return pd.DataFrame(list(rows), index=index)


def drain(completed: int, **values: Any) -> dict[str, Any]:
    """A drain of twenty jobs per second and ten per request that neither waited nor lingered."""
    return {
        "completed": completed,
        "requests": completed / 10,
        "seconds": completed / 20,
        "seconds_waiting": 0.0,
        "seconds_idle": 0.0,
        **values,
    }


class TestMinutesToDrain:
    def test_what_the_first_burst_takes_needs_no_time(self) -> None:
        assert LIMITED.minutes_to_drain(20 * 100) == 0

    def test_the_rest_waits_for_the_limit(self) -> None:
        assert LIMITED.minutes_to_drain(50 * 100) == pytest.approx(1.5 * ROUND / 60)

    def test_a_slow_drain_is_the_limit_where_the_rate_limit_is_none(self) -> None:
        assert SLOW.minutes_to_drain(600) == pytest.approx(2)

    def test_arrivals_use_up_capacity(self) -> None:
        assert SLOW.minutes_to_drain(600, arrivals_per_minute=200) == pytest.approx(6)

    @pytest.mark.parametrize("model", [LIMITED, SLOW], ids=["rate limit", "speed"])
    def test_a_queue_that_gets_more_than_it_can_do_never_empties(self, model: Capacity) -> None:
        assert model.minutes_to_drain(1, arrivals_per_minute=model.per_minute) == inf
        assert model.minutes_to_drain(1, arrivals_per_minute=model.per_minute * 0.99) < inf

    def test_without_a_limit_the_speed_alone_counts(self) -> None:
        free = Capacity(RateLimits(requests=None), jobs_per_request=100, jobs_per_second=5)

        assert free.limited_per_minute == inf
        assert free.minutes_to_drain(600, arrivals_per_minute=200) == pytest.approx(6)
        assert set(sensitivity(free, 600)["rate_limit"]) == {2.0}

    def test_an_empty_queue_is_empty(self) -> None:
        assert LIMITED.minutes_to_drain(0, arrivals_per_minute=inf) == 0

    @pytest.mark.parametrize("seconds", [1, 60, 3_600])
    def test_says_what_the_limiter_does(self, seconds: int) -> None:
        limits = RateLimits(requests=20, interval=timedelta(seconds=seconds))
        window, now_ms, granted = Window(), 0, 0
        while granted < 200:
            window, grant = take(window, limits, now_ms=now_ms)
            granted += grant.is_granted
            now_ms += grant.wait // timedelta(milliseconds=1)

        predicted = Capacity(limits, jobs_per_request=1, jobs_per_second=inf).minutes_to_drain(200)

        # Slices begin at whole multiples of their length, so the limiter is up to one early.
        assert predicted == pytest.approx(now_ms / 60_000, rel=0.01)


class TestPerMinute:
    def test_is_what_the_slower_of_both_allows(self) -> None:
        assert LIMITED.per_minute == pytest.approx(20 * 100 * 60 / ROUND)
        assert SLOW.per_minute == 300


class TestMeasured:
    def test_long_drains_weigh_more_than_short_ones(self) -> None:
        found = measured(frame(drain(900), drain(100, requests=100, seconds=55)), limits=LIMITS)

        assert found == Capacity(LIMITS, jobs_per_request=1000 / 190, jobs_per_second=10)

    def test_waiting_and_lingering_are_no_work(self) -> None:
        waited = drain(100, seconds=5 + 60, seconds_waiting=60)
        lingered = drain(100, seconds=5 + 15, seconds_idle=15)

        found = measured(frame(waited, lingered), limits=LIMITS)

        assert found == Capacity(LIMITS, jobs_per_request=10, jobs_per_second=20)

    def test_known_texts_need_no_request(self) -> None:
        found = measured(frame(drain(100, requests=0)), limits=LIMITS)

        assert found == Capacity(LIMITS, jobs_per_request=inf, jobs_per_second=20)

    @pytest.mark.parametrize("drains", [pd.DataFrame(), frame(drain(0, seconds=3))])
    def test_says_nothing_where_nothing_was_completed(self, drains: pd.DataFrame) -> None:
        assert measured(drains, limits=LIMITS) is None


class TestArrivals:
    def test_counts_new_jobs_whatever_became_of_them(self) -> None:
        metrics = frame(
            {"jobs": 10, "deleted_completed_total": 0},
            {"jobs": 40, "deleted_completed_total": 0},
            {"jobs": 5, "deleted_completed_total": 45},
        )

        assert arrivals_per_minute(metrics) == pytest.approx((30 + 10) / 2)

    def test_counts_jobs_that_are_wanted_once_more(self) -> None:
        metrics = frame(
            {"jobs": 9, "reopened_total": 1, "revived_total": 0},
            {"jobs": 9, "reopened_total": 4, "revived_total": 2},
        )

        assert arrivals_per_minute(metrics) == 5

    def test_a_new_installation_takes_no_arrivals_back(self) -> None:
        assert arrivals_per_minute(frame({"jobs": 0}, {"jobs": 60}, {"jobs": 0})) == 30

    @pytest.mark.parametrize("metrics", [pd.DataFrame(), frame({"jobs": 7})])
    def test_are_none_without_two_readings(self, metrics: pd.DataFrame) -> None:
        assert arrivals_per_minute(metrics) == 0


class TestSensitivity:
    def test_only_the_bottleneck_makes_a_difference(self) -> None:
        model = Capacity(LIMITS, jobs_per_request=100, jobs_per_second=1_000)

        table = sensitivity(model, 50 * 100, factors=(1.0, 2.0))

        assert list(table.loc[1.0]) == [pytest.approx(1.5 * ROUND / 60)] * 4
        assert dict(table.loc[2.0]) == {
            "rate_limit": pytest.approx(0.25 * ROUND / 60),
            "jobs_per_request": pytest.approx(0.25 * ROUND / 60),
            "jobs_per_second": pytest.approx(1.5 * ROUND / 60),
            "arrivals": pytest.approx(1.5 * ROUND / 60),
        }

    def test_shows_where_arrivals_are_too_many(self) -> None:
        table = sensitivity(SLOW, 600, arrivals_per_minute=200, factors=(0.5, 1.0, 2.0))

        assert table["arrivals"].to_list() == [pytest.approx(3), pytest.approx(6), inf]
        assert table["jobs_per_second"].to_list() == [inf, pytest.approx(6), pytest.approx(1.5)]


class TestCompared:
    def test_a_drain_is_predicted_from_those_before_it(self) -> None:
        found = compared(frame(drain(100), drain(200, seconds=30)), limits=LIMITS)

        assert isnan(found["predicted_seconds"].iloc[0])
        assert found["predicted_seconds"].iloc[1] == 10
        assert found["ratio"].iloc[1] == 3

    def test_the_limit_is_part_of_the_prediction(self) -> None:
        limited = drain(500, seconds=65, seconds_waiting=40)

        found = compared(frame(drain(100), limited), limits=LIMITS)

        assert found["predicted_seconds"].iloc[1] == pytest.approx(1.5 * ROUND)

    def test_drains_without_jobs_are_left_out(self) -> None:
        found = compared(frame(drain(100), drain(0, seconds=9), drain(100)), limits=LIMITS)

        assert found["completed"].to_list() == [100, 100]
        assert found["ratio"].iloc[1] == 1

    def test_no_drains_are_an_empty_table(self) -> None:
        found = compared(pd.DataFrame(), limits=LIMITS)

        assert found.empty
        assert "ratio" in found
