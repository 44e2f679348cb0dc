"""Whether another drain is wanted, and if not, why not; and how far scans are."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Final

from embed_pipeline.domain.breaker import BreakerStatus, in_utc
from embed_pipeline.domain.holds import HOW_TO_END
from embed_pipeline.domain.metrics import Backlog
from embed_pipeline.domain.rate_window import Grant
from embed_pipeline.domain.words import span

JOBS_PER_DRAIN: Final = 5_000
"""One drain uses the whole rate limit of most accounts; a second one only pays for a long queue."""
WORTH_STARTING: Final = timedelta(seconds=5)
"""A run needs seconds to start; a limit that opens sooner is no reason to wait."""
STANDBY: Final = "standing by"
UNTAKEN: Final = timedelta(minutes=1)
"""A drain takes what is due within a second. What waits for so long while nothing is in work has
nobody: those that seem to run are lost, and Dagster has not noticed."""
FIRST_PAUSE: Final = timedelta(seconds=10)
LONGEST_PAUSE: Final = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class ScanPace:
    """The progress of scans; large graphs take several steps."""

    ended: datetime | None = None
    """When the last whole scan ended."""
    moved: datetime | None = None
    """When a step of one last ended, or else the first one began."""
    took: timedelta = timedelta(0)
    """From the beginning of the last whole one to its end."""


@dataclass(frozen=True, slots=True)
class Drains:
    """What is known about drains, running and ended."""

    running: int = 0
    ending: int = 0
    """So many of those will have used their time in a moment."""
    standing: int = 0
    """So many of those are on standby, are not about to end, and have not waited long to start."""
    in_line: int = 0
    """So many are to be on standby, and have found no place among the runs for a while."""
    settled: timedelta | None = None
    """How long ago the last of the running ones began; zero while one is still to begin."""
    failed_in_a_row: int = 0
    """The last so many have failed."""
    since_failure: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Start so many drains, because of ``reason``."""

    drains: int
    reason: str
    is_standby: bool = False
    """It is to stay although nothing is due."""


@dataclass(frozen=True, slots=True)
class Wait:
    """No drain is wanted, because of ``reason``."""

    reason: str


def decide(
    backlog: Backlog, drains: Drains, *, most: int, limit: Grant, model: str, standby: bool = False
) -> Start | Wait:
    """Say how many drains to start now; ``limit`` is what a request would get.

    ``standby``: one is to be there at any time, and is followed by the next before it ends.
    """
    due = f"{backlog.due}{' or more' if backlog.is_more else ''} due"
    if refusal := _closed(backlog):
        return Wait(f"{refusal} ({backlog.pending} pending)")
    lacks_standing = standby and drains.standing == 0
    if backlog.due == 0:
        said = _nothing_due(backlog, model)
        return _to_stand_by(drains, limit, said) if lacks_standing else _at_rest(said, standby)
    staying = drains.running - (drains.ending if standby else 0)
    wanted = _wanted(backlog, most)
    is_closed = backlog.state.breaker.status is BreakerStatus.CLOSED
    if lacks_standing and is_closed and drains.in_line == 0:
        wanted = max(wanted, min(most, staying + 1))
    lost = _lost(backlog, drains, limit) if is_closed and drains.running < most else None
    if lost:
        wanted = max(wanted, staying + 1)
    if staying >= wanted:
        return Wait(f"enough drains running: {drains.running} of {most} ({due})")
    if limit.budget is not None:
        return Wait(f"{limit.budget} ({due})")
    if limit.wait > WORTH_STARTING:
        if limit.hold is not None:
            return Wait(f"{limit.hold}; {HOW_TO_END} ({due})")
        return Wait(f"waiting for the rate limit: {_left(limit.wait)} ({due})")
    if wait := _after_failures(drains, due):
        return wait
    is_standby = standby and (lacks_standing or lost is not None)
    return Start(wanted - staying, f"{due}{lost or ''}", is_standby=is_standby)


def _at_rest(said: str, standby: bool) -> Wait:
    return Wait(f"{said}; a drain stands by" if standby else said)


def _to_stand_by(drains: Drains, limit: Grant, said: str) -> Start | Wait:
    if drains.in_line:
        return Wait(
            f"{said}; the drain that is to stand by finds no place among the runs: "
            "tag_concurrency_limits and max_concurrent_runs in dagster.yaml"
        )
    # It would end as soon as it has begun, and so would the next.
    if limit.budget is not None:
        return Wait(f"{limit.budget} ({said})")
    return _after_failures(drains, said) or Start(1, f"{STANDBY}: {said}", is_standby=True)


def _lost(backlog: Backlog, drains: Drains, limit: Grant) -> str | None:
    """Why the drains that seem to run do not count: nobody takes what is due."""
    waits, settled = backlog.oldest_due, drains.settled
    if backlog.processing or limit.wait or waits is None or settled is None:
        return None
    if min(waits, settled) < UNTAKEN:
        return None
    seem = f"drains that seem to run and take none: {drains.running}"
    return f", the oldest for {_left(waits)}; {seem}"


def _after_failures(drains: Drains, due: str) -> Wait | None:
    pause = pause_after(drains.failed_in_a_row)
    # A failure in the future: the clock was set back; do not wait for it to catch up.
    if drains.since_failure is None or not timedelta(0) <= drains.since_failure < pause:
        return None
    left = _left(pause - drains.since_failure)
    times = f" {drains.failed_in_a_row} times in a row" if drains.failed_in_a_row > 1 else ""
    return Wait(f"the last drain failed{times}; the next one starts in {left} ({due})")


def pause_after(failures: int) -> timedelta:
    """How long to wait after so many failed drains in a row."""
    if failures == 0:
        return timedelta(0)
    return min(FIRST_PAUSE * 2 ** min(failures - 1, 10), LONGEST_PAUSE)


def _wanted(backlog: Backlog, most: int) -> int:
    if backlog.state.breaker.status is not BreakerStatus.CLOSED:
        return 1
    return most if backlog.is_more else min(most, ceil(backlog.due / JOBS_PER_DRAIN))


def _closed(backlog: Backlog) -> str | None:
    state = backlog.state
    if state.is_paused:
        return state.closed
    breaker = state.breaker
    if breaker.status is BreakerStatus.CLOSED or breaker.is_probe_due(backlog.at):
        return None
    if breaker.is_outage:
        return str(breaker)
    if breaker.status is BreakerStatus.HALF_OPEN:
        trial = "one job is being tried"
    else:
        trial = f"one job may be tried at {in_utc(breaker.probe_at)}"
    return f"breaker open since {in_utc(breaker.since)}: {breaker.reason}; {trial}"


def _nothing_due(backlog: Backlog, model: str) -> str:
    if backlog.pending == 0:
        in_work = f"nothing waits, {backlog.processing} in work"
        return in_work if backlog.processing else "the queue is empty"
    if backlog.next_due is not None:
        return f"nothing due before {in_utc(backlog.next_due)} ({backlog.pending} pending)"
    return f"no pending job is for the model {model} ({backlog.pending} pending for others)"


def _left(duration: timedelta) -> str:
    """Rounded up: what is still to come is never 0 s away."""
    return span(ceil(duration.total_seconds()))
