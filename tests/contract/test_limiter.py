"""What everybody who shares a rate limit may rely on, whatever holds it."""

from datetime import timedelta

from embed_pipeline.domain.holds import LONGEST_HOLD, Allowance, Left
from embed_pipeline.domain.rate_window import RateLimits
from tests.support.queue_harness import QueueUnderTest

MINUTE = timedelta(minutes=1)
MOMENT = timedelta(milliseconds=1)
YEARS = timedelta(seconds=1_000_000_000)
LIMITS = RateLimits(requests=3, interval=MINUTE)


async def test_no_pause_is_longer_than_is_granted_and_the_cut_is_told(
    queue: QueueUnderTest,
) -> None:
    limiter = queue.limiter(LIMITS)

    told = await limiter.hold(YEARS, owner="run-1", said="go away")
    queue.clock.advance(LONGEST_HOLD - MOMENT)
    before = await limiter.peek()
    queue.clock.advance(MOMENT)

    assert told.wait == LONGEST_HOLD
    assert told.hold is not None
    assert (told.hold.asked, told.hold.is_clamped) == (YEARS, True)
    assert not before.is_granted
    assert (await limiter.acquire()).is_granted


async def test_the_longest_pause_that_is_granted_is_not_cut(queue: QueueUnderTest) -> None:
    told = await queue.limiter(LIMITS).hold(LONGEST_HOLD, owner="run-1", said="slow down")

    assert told.hold is not None
    assert (told.wait, told.hold.is_clamped) == (LONGEST_HOLD, False)


async def test_a_pause_has_an_end_and_an_origin_that_everybody_is_told(
    queue: QueueUnderTest,
) -> None:
    limiter, now = queue.limiter(LIMITS), queue.clock.now
    await limiter.hold(MINUTE, owner="run-1/host/7", said="slow down")
    queue.clock.advance(MINUTE / 2)

    for hold in ((await limiter.acquire()).hold, (await limiter.read()).hold):
        assert hold is not None
        assert hold.origin is not None
        assert (hold.since, hold.until, hold.asked) == (now, now + MINUTE, MINUTE)
        assert (hold.origin.owner, hold.origin.said) == ("run-1/host/7", "slow down")


async def test_a_shorter_pause_changes_neither_end_nor_origin(queue: QueueUnderTest) -> None:
    limiter = queue.limiter(LIMITS)
    first = await limiter.hold(MINUTE, owner="run-1", said="slow down")

    assert await limiter.hold(MINUTE / 2, owner="run-2", said="a bit") == first
    longer = (await limiter.hold(2 * MINUTE, owner="run-3", said="more")).hold
    assert longer is not None
    assert longer.origin is not None
    assert longer.origin.owner == "run-3"


async def test_a_limiter_says_how_much_is_used_and_when_it_goes_on(queue: QueueUnderTest) -> None:
    limiter = queue.limiter(LIMITS)
    await limiter.acquire(tokens=5)
    some = await limiter.read()
    for _ in range(2):
        await limiter.acquire(tokens=10)

    full = await limiter.read()

    assert (some.requests, some.tokens, some.wait) == (1, 5, timedelta(0))
    assert (full.requests, full.tokens, full.hold) == (3, 25, None)
    assert (full.name, full.limits, full.at) == ("default", LIMITS, queue.clock.now)
    queue.clock.advance(full.wait)
    assert (await limiter.acquire()).is_granted


async def test_clearing_ends_the_pause_and_forgets_no_request(queue: QueueUnderTest) -> None:
    limiter = queue.limiter(LIMITS)
    for _ in range(2):
        await limiter.acquire()
    held = await limiter.hold(YEARS, owner="run-1", said="go away")

    assert await limiter.clear() == held.hold
    assert await limiter.clear() is None
    grants = [(await limiter.acquire()).is_granted for _ in range(2)]

    assert grants == [True, False]
    assert (await limiter.read()).hold is None


async def test_after_a_clear_the_provider_may_ask_again(queue: QueueUnderTest) -> None:
    limiter = queue.limiter(LIMITS)
    await limiter.hold(10 * MINUTE, owner="run-1", said="slow down")
    await limiter.clear()

    told = await limiter.hold(MINUTE, owner="run-2", said="still")

    assert told.hold is not None
    assert told.hold.origin is not None
    assert (told.wait, told.hold.origin.owner) == (MINUTE, "run-2")


def said(requests: int | None = None, tokens: int | None = None) -> Allowance:
    """What is left, for half a minute."""
    return Allowance(
        *(None if amount is None else Left(amount, MINUTE / 2) for amount in (requests, tokens))
    )


async def test_m87_no_interval_holds_more_tokens_than_the_limit(queue: QueueUnderTest) -> None:
    limiter = queue.limiter(RateLimits(requests=100, interval=MINUTE, tokens=100))

    grants = [(await limiter.acquire(tokens=40)).is_granted for _ in range(3)]
    waiting = await limiter.acquire(tokens=40)
    queue.clock.advance(waiting.wait)

    assert grants == [True, True, False]
    assert waiting.wait > MINUTE
    assert (await limiter.acquire(tokens=40)).is_granted


async def test_m87_nobody_gets_more_requests_than_the_provider_says_are_left(
    queue: QueueUnderTest,
) -> None:
    limiter = queue.limiter(RateLimits(requests=100, interval=MINUTE))

    await limiter.learn(said(requests=2))
    grants = [await limiter.acquire() for _ in range(3)]
    queue.clock.advance(MINUTE / 2)

    assert [grant.is_granted for grant in grants] == [True, True, False]
    assert grants[2].wait == MINUTE / 2
    assert (await limiter.acquire()).is_granted


async def test_m87_nobody_gets_more_tokens_than_the_provider_says_are_left(
    queue: QueueUnderTest,
) -> None:
    limiter = queue.limiter(RateLimits(requests=100, interval=MINUTE))

    await limiter.learn(said(tokens=100))
    grants = [(await limiter.acquire(tokens=tokens)).is_granted for tokens in (70, 70, 30, 1)]

    assert grants == [True, False, True, False]


async def test_an_answer_that_comes_late_gives_nothing_back(queue: QueueUnderTest) -> None:
    limiter = queue.limiter(RateLimits(requests=100, interval=MINUTE))

    await limiter.learn(said(requests=1))
    await limiter.acquire()
    await limiter.learn(said(requests=5))

    assert not (await limiter.acquire()).is_granted


async def test_what_is_left_is_believed_no_longer_than_a_pause_and_can_be_cleared(
    queue: QueueUnderTest,
) -> None:
    limiter = queue.limiter(RateLimits(requests=100, interval=MINUTE))
    await limiter.learn(Allowance(Left(0, YEARS)))
    held = await limiter.acquire()

    await limiter.clear()

    assert held.wait == LONGEST_HOLD
    assert (await limiter.acquire()).is_granted
