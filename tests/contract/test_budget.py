"""What everybody who shares a budget may rely on, whatever holds it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from embed_pipeline.domain.budget import Budget, Period, Unit
from embed_pipeline.domain.prices import Price
from embed_pipeline.domain.rate_window import RateLimits
from tests.support.queue_harness import QueueUnderTest

DOLLAR_PER_TOKEN = Price(1_000_000.0)
EVENING = datetime(2026, 11, 30, 23, tzinfo=UTC)
MIDNIGHT = datetime(2026, 12, 1, tzinfo=UTC)
PLENTY = RateLimits(requests=1_000, interval=timedelta(minutes=1))


def limits(**budget: Any) -> RateLimits:
    return replace(PLENTY, budget=Budget(DOLLAR_PER_TOKEN, **budget))


def at(queue: QueueUnderTest, moment: datetime) -> Any:
    queue.clock.now = moment
    return queue


async def test_m109_one_request_crosses_the_budget_and_none_comes_after_it(
    queue: QueueUnderTest,
) -> None:
    limiter = at(queue, EVENING).limiter(limits(tokens_per_day=100))

    grants = [await limiter.acquire(tokens=60) for _ in range(3)]

    assert [grant.is_granted for grant in grants] == [True, True, False]
    spent = grants[2].budget
    assert (spent.period, spent.unit, spent.used, spent.allowed) == (
        Period.DAY,
        Unit.TOKENS,
        120,
        100,
    )
    assert (spent.until, grants[2].wait) == (MIDNIGHT, timedelta(hours=1))


async def test_m110_a_spent_day_ends_at_midnight_utc_of_the_server(queue: QueueUnderTest) -> None:
    limiter = at(queue, EVENING).limiter(limits(usd_per_day=5))
    await limiter.acquire(tokens=5)
    before = await limiter.peek()
    at(queue, MIDNIGHT - timedelta(milliseconds=1))
    late = await limiter.peek()
    at(queue, MIDNIGHT)

    assert not before.is_granted
    assert (late.is_granted, late.wait) == (False, timedelta(milliseconds=1))
    assert (await limiter.acquire(tokens=5)).is_granted


async def test_m110_a_spent_month_outlasts_its_days(queue: QueueUnderTest) -> None:
    limiter = at(queue, EVENING - timedelta(days=9)).limiter(limits(usd_per_month=5, usd_per_day=9))
    await limiter.acquire(tokens=5)
    at(queue, EVENING)

    spent = (await limiter.peek()).budget

    assert (spent.period, spent.unit, spent.until) == (Period.MONTH, Unit.USD, MIDNIGHT)
    at(queue, MIDNIGHT)
    assert (await limiter.peek()).is_granted


async def test_the_budget_follows_what_the_provider_charges(queue: QueueUnderTest) -> None:
    limiter = at(queue, EVENING).limiter(limits(tokens_per_day=100, usd_per_month=1_000))
    await limiter.acquire(tokens=90)

    await limiter.correct(counted=90, charged=30)
    cheaper = (await limiter.read()).budget
    await limiter.correct(counted=30, charged=110)

    assert [use.used for use in cheaper] == [30, 30]
    assert [use.used for use in (await limiter.read()).budget] == [110, 110]
    assert not (await limiter.peek()).is_granted


async def test_a_correction_after_midnight_takes_nothing_below_zero(queue: QueueUnderTest) -> None:
    limiter = at(queue, EVENING).limiter(limits(tokens_per_day=100))
    await limiter.acquire(tokens=90)
    at(queue, MIDNIGHT)

    await limiter.correct(counted=90, charged=0)

    assert [use.used for use in (await limiter.read()).budget] == [0]


async def test_a_raised_budget_takes_effect_at_once(queue: QueueUnderTest) -> None:
    limiter = at(queue, EVENING).limiter(limits(tokens_per_day=100))
    await limiter.acquire(tokens=100)

    raised = replace(limiter, limits=limits(tokens_per_day=200))

    assert not (await limiter.peek()).is_granted
    assert (await raised.acquire(tokens=1)).is_granted


async def test_a_clock_that_is_set_back_forgets_nothing_that_was_spent(
    queue: QueueUnderTest,
) -> None:
    limiter = at(queue, MIDNIGHT).limiter(limits(tokens_per_day=100))
    await limiter.acquire(tokens=100)
    at(queue, EVENING)

    grant = await limiter.peek()

    assert (grant.is_granted, grant.wait) == (False, timedelta(hours=1))


async def test_without_a_budget_nothing_is_limited_by_one(queue: QueueUnderTest) -> None:
    limiter = at(queue, EVENING).limiter(PLENTY)

    grants = [await limiter.acquire(tokens=10**9) for _ in range(3)]

    assert all(grant.is_granted for grant in grants)
    assert (await limiter.read()).budget == ()
