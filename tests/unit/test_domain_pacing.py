"""Whether another drain is wanted: every reason, and never too many."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from embed_pipeline.domain.breaker import Breaker, BreakerStatus
from embed_pipeline.domain.budget import BudgetUse, Period, Unit
from embed_pipeline.domain.holds import Hold, Origin
from embed_pipeline.domain.metrics import Backlog, QueueState
from embed_pipeline.domain.pacing import (
    FIRST_PAUSE,
    JOBS_PER_DRAIN,
    LONGEST_PAUSE,
    UNTAKEN,
    WORTH_STARTING,
    Drains,
    Start,
    Wait,
    decide,
    pause_after,
)
from embed_pipeline.domain.rate_window import Grant

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
EARLIER, LATER = NOW - timedelta(minutes=3), NOW + timedelta(minutes=2)
NONE = timedelta(0)
BIT = timedelta(milliseconds=1)
CLOSED = QueueState(Breaker())
EMPTY = Backlog(at=NOW, due=0, is_more=False, pending=0, processing=0, next_due=None, state=CLOSED)
PAUSED = QueueState(Breaker(), is_paused=True, paused_by="ada", paused_since=EARLIER)


def waiting(due: int, **more: object) -> Backlog:
    return replace(EMPTY, due=due, pending=due, **more)


def broken(status: BreakerStatus, probe_at: datetime) -> QueueState:
    breaker = Breaker(status, reason="no credit", since=EARLIER, probe_at=probe_at, failures=1)
    return QueueState(breaker)


def decided(
    backlog: Backlog,
    drains: Drains | None = None,
    *,
    most: int = 2,
    limit: timedelta = NONE,
    hold: Hold | None = None,
    standby: bool = False,
) -> Start | Wait:
    grant = Grant(limit, hold=hold)
    found = drains or Drains()
    return decide(backlog, found, most=most, limit=grant, model="m", standby=standby)


OPEN, HALF_OPEN = BreakerStatus.OPEN, BreakerStatus.HALF_OPEN
SAID = "breaker open since 2030-01-01 11:57:00 UTC: no credit"


@pytest.mark.parametrize(
    ("backlog", "reason"),
    [
        (EMPTY, "the queue is empty"),
        (replace(EMPTY, processing=7), "nothing waits, 7 in work"),
        (
            replace(EMPTY, pending=3, next_due=LATER),
            "nothing due before 2030-01-01 12:02:00 UTC (3 pending)",
        ),
        (replace(EMPTY, pending=3), "no pending job is for the model m (3 pending for others)"),
        (
            waiting(5, state=PAUSED),
            "the queue is paused since 2030-01-01 11:57:00 UTC by ada (5 pending)",
        ),
        (
            waiting(5, state=broken(OPEN, LATER)),
            f"{SAID}; one job may be tried at 2030-01-01 12:02:00 UTC (5 pending)",
        ),
        (
            waiting(5, state=broken(HALF_OPEN, LATER)),
            f"{SAID}; one job is being tried (5 pending)",
        ),
    ],
    ids=["empty", "in work", "not due", "other model", "paused", "breaker open", "half-open"],
)
def test_no_drain_is_started_and_the_reason_is_said(backlog: Backlog, reason: str) -> None:
    assert decided(backlog) == Wait(reason)


@pytest.mark.parametrize(
    ("due", "is_more", "running", "drains"),
    [
        (1, False, 0, 1),
        (JOBS_PER_DRAIN, False, 0, 1),
        (JOBS_PER_DRAIN + 1, False, 0, 2),
        (JOBS_PER_DRAIN + 1, False, 1, 1),
        (2 * JOBS_PER_DRAIN + 1, False, 0, 3),
        (9 * JOBS_PER_DRAIN, False, 0, 3),
        (1, True, 0, 3),
        (1, True, 2, 1),
    ],
)
def test_a_long_queue_gets_more_drains(due: int, is_more: bool, running: int, drains: int) -> None:
    found = decided(waiting(due, is_more=is_more), Drains(running=running), most=3)

    assert found == Start(drains, f"{due}{' or more' if is_more else ''} due")


@pytest.mark.parametrize(
    ("drains", "decision"),
    [
        (Drains(), Start(1, "standing by: the queue is empty", is_standby=True)),
        (Drains(running=1, standing=1), Wait("the queue is empty; a drain stands by")),
        (
            Drains(running=1),
            Start(1, "standing by: the queue is empty", is_standby=True),
        ),
        (
            Drains(running=1, ending=1),
            Start(1, "standing by: the queue is empty", is_standby=True),
        ),
        (Drains(running=2, ending=1, standing=1), Wait("the queue is empty; a drain stands by")),
        (
            Drains(running=2, ending=1, in_line=1),
            Wait(
                "the queue is empty; the drain that is to stand by finds no place among the runs: "
                "tag_concurrency_limits and max_concurrent_runs in dagster.yaml"
            ),
        ),
        (
            Drains(failed_in_a_row=1, since_failure=NONE),
            Wait("the last drain failed; the next one starts in 10 s (the queue is empty)"),
        ),
    ],
    ids=["none", "one", "ordinary", "one ends", "its successor", "no place", "one that failed"],
)
def test_a_drain_stands_by_and_is_followed_before_it_ends(
    drains: Drains, decision: Start | Wait
) -> None:
    assert decided(EMPTY, drains, standby=True) == decision


def test_with_work_the_one_that_ends_is_followed_too() -> None:
    ends = Drains(running=1, ending=1)

    assert decided(waiting(1), ends, standby=True) == Start(1, "1 due", is_standby=True)
    assert decided(waiting(1), ends) == Wait("enough drains running: 1 of 2 (1 due)")


def test_with_work_an_ordinary_drain_does_not_stand_by() -> None:
    ordinary = Drains(running=1)

    assert decided(waiting(1), ordinary, standby=True) == Start(1, "1 due", is_standby=True)
    full = decided(waiting(1), Drains(running=2), standby=True)
    assert full == Wait("enough drains running: 2 of 2 (1 due)")


LOST = Drains(running=1, standing=1, settled=UNTAKEN)
LONG_DUE = waiting(1, oldest_due=UNTAKEN)


@pytest.mark.parametrize("standby", [False, True])
def test_when_nobody_takes_what_is_due_one_more_drain_is_started(standby: bool) -> None:
    found = decided(LONG_DUE, LOST, standby=standby)

    said = "1 due, the oldest for 1 min; drains that seem to run and take none: 1"
    assert found == Start(1, said, is_standby=standby)


@pytest.mark.parametrize(
    ("backlog", "drains", "limit"),
    [
        (replace(LONG_DUE, oldest_due=UNTAKEN - BIT), LOST, NONE),
        (replace(LONG_DUE, processing=1), LOST, NONE),
        (LONG_DUE, replace(LOST, settled=UNTAKEN - BIT), NONE),
        (LONG_DUE, replace(LOST, running=2), NONE),
        (LONG_DUE, LOST, BIT),
        (replace(LONG_DUE, state=broken(HALF_OPEN, NOW)), LOST, NONE),
    ],
    ids=["not for long", "in work", "just begun", "no place", "rate limit", "breaker"],
)
def test_a_drain_is_not_taken_for_lost(backlog: Backlog, drains: Drains, limit: timedelta) -> None:
    found = decided(backlog, drains, limit=limit)

    assert found == Wait(f"enough drains running: {drains.running} of 2 (1 due)")


def test_on_standby_nobody_is_started_who_could_spend_nothing() -> None:
    spent = BudgetUse(Period.DAY, Unit.TOKENS, used=5, allowed=5, until=LATER)

    found = decide(
        EMPTY, Drains(), most=2, limit=Grant(NONE, budget=spent), model="m", standby=True
    )

    assert found == Wait(f"{spent} (the queue is empty)")


def test_nobody_stands_by_at_a_paused_queue() -> None:
    found = decided(replace(EMPTY, state=PAUSED), standby=True)

    assert isinstance(found, Wait)
    assert found.reason.startswith("the queue is paused")


@pytest.mark.parametrize(("due", "running", "most"), [(1, 1, 2), (JOBS_PER_DRAIN, 1, 2), (1, 3, 3)])
def test_enough_drains_are_enough(due: int, running: int, most: int) -> None:
    found = decided(waiting(due), Drains(running=running), most=most)

    assert found == Wait(f"enough drains running: {running} of {most} ({due} due)")


@pytest.mark.parametrize(
    ("status", "then"),
    [(OPEN, "next try at 2030-01-01 12:02:00 UTC"), (HALF_OPEN, "being tried now")],
)
def test_m72_the_tick_says_that_the_provider_is_down(status: BreakerStatus, then: str) -> None:
    breaker = replace(broken(status, LATER).breaker, is_outage=True, reason="503")
    backlog = waiting(5, state=QueueState(breaker))

    since = "provider down since 2030-01-01 11:57:00 UTC"
    assert decided(backlog) == Wait(f"{since}, {then}: 503 (5 pending)")


@pytest.mark.parametrize("status", [OPEN, HALF_OPEN])
def test_a_breaker_whose_probe_is_due_gets_one_drain_only(status: BreakerStatus) -> None:
    backlog = waiting(JOBS_PER_DRAIN, is_more=True, state=broken(status, NOW))

    assert decided(backlog, most=9) == Start(1, f"{JOBS_PER_DRAIN} or more due")
    assert decided(backlog, Drains(running=1), most=9) == Wait(
        f"enough drains running: 1 of 9 ({JOBS_PER_DRAIN} or more due)"
    )


def test_a_limit_that_opens_while_a_run_starts_is_no_reason_to_wait() -> None:
    assert decided(waiting(1), limit=WORTH_STARTING) == Start(1, "1 due")


def test_a_longer_limit_is() -> None:
    found = decided(waiting(1), limit=WORTH_STARTING + BIT)

    assert found == Wait("waiting for the rate limit: 6 s (1 due)")


def test_a_limit_that_the_provider_asked_for_is_said_with_its_end_and_origin() -> None:
    hold = Hold(NOW, LATER, asked=LATER - NOW, origin=Origin("acme", "run-1", "slow down"))

    found = decided(waiting(1), limit=LATER - NOW, hold=hold)

    assert found == Wait(
        "the provider told run-1 of queue acme to wait until 2030-01-01 12:02:00 UTC: "
        "\"slow down\"; 'embed-pipeline limits clear' or the job clear_limits ends it (1 due)"
    )


@pytest.mark.parametrize(
    ("failed", "since", "said"),
    [
        (1, NONE, "the last drain failed; the next one starts in 10 s"),
        (1, FIRST_PAUSE - BIT, "the last drain failed; the next one starts in 1 s"),
        (3, NONE, "the last drain failed 3 times in a row; the next one starts in 40 s"),
        (6, NONE, "the last drain failed 6 times in a row; the next one starts in 2 min"),
    ],
)
def test_failed_drains_are_followed_by_a_pause(failed: int, since: timedelta, said: str) -> None:
    drains = Drains(failed_in_a_row=failed, since_failure=since)

    assert decided(waiting(1), drains) == Wait(f"{said} (1 due)")


def test_a_drain_starts_when_the_pause_is_over() -> None:
    drains = Drains(failed_in_a_row=1, since_failure=FIRST_PAUSE)

    assert decided(waiting(1), drains) == Start(1, "1 due")


def test_a_failure_still_to_come_delays_nothing_because_the_clock_was_set_back() -> None:
    drains = Drains(failed_in_a_row=3, since_failure=-timedelta(hours=1))

    assert decided(waiting(1), drains) == Start(1, "1 due")


def test_the_pause_doubles_up_to_its_bound() -> None:
    pauses = [pause_after(failures).total_seconds() for failures in range(7)]

    assert pauses == [0, 10, 20, 40, 80, 120, 120]
    assert pause_after(10**6) == LONGEST_PAUSE


durations = st.timedeltas(NONE, timedelta(hours=1))
breakers = st.builds(
    Breaker,
    status=st.sampled_from(BreakerStatus),
    reason=st.just("no credit"),
    since=st.none() | st.just(EARLIER),
    probe_at=st.sampled_from([None, EARLIER, NOW, LATER]),
)
backlogs = st.builds(
    Backlog,
    at=st.just(NOW),
    due=st.integers(0, 10 * JOBS_PER_DRAIN),
    is_more=st.booleans(),
    pending=st.integers(0, 10**6),
    processing=st.integers(0, 10**6),
    next_due=st.sampled_from([None, EARLIER, LATER]),
    state=st.builds(QueueState, breaker=breakers, is_paused=st.booleans()),
)
known = st.builds(
    Drains,
    running=st.integers(0, 20),
    failed_in_a_row=st.integers(0, 6),
    since_failure=st.none() | durations,
)


@given(backlogs, known, st.integers(1, 10), durations)
def test_never_more_drains_than_allowed_and_always_a_reason(
    backlog: Backlog, drains: Drains, most: int, limit: timedelta
) -> None:
    found = decided(backlog, drains, most=most, limit=limit)

    assert found.reason
    if isinstance(found, Start):
        assert 1 <= found.drains <= most - drains.running
        assert backlog.due > 0
        assert not backlog.state.is_paused
