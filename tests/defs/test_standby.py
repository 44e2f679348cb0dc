"""Somebody is always there: drains on standby follow each other, and lost ones are replaced."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from dagster._core.test_utils import freeze_time

from embed_pipeline.defs import runs
from embed_pipeline.defs.runs import (
    DRAIN_JOB,
    DRAIN_TAG,
    MAX_RUNTIME_TAG,
    SLACK,
    STANDBY_TAG,
    WORKER_TAG,
    know_drains,
)
from embed_pipeline.domain.breaker import Breaker
from embed_pipeline.domain.budget import Budget
from embed_pipeline.domain.metrics import Backlog, QueueState
from embed_pipeline.domain.pacing import Start, decide
from embed_pipeline.domain.rate_window import Grant, RateLimits
from tests.defs.conftest import Deployment, SensorUnderTest
from tests.support.origins import origin_at

Status = dg.DagsterRunStatus
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
NONE = timedelta(0)
FAR_AWAY = "another-machine:1:0.0"
STAYS = {STANDBY_TAG: "true"}


@dataclass
class Timeline:
    """Runs as Dagster would have noted them, at a time that is moved."""

    instance: dg.DagsterInstance
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def drain(
        self,
        status: Status = Status.STARTED,
        *,
        longest: timedelta = 10 * MINUTE,
        tags: dict[str, str] | None = None,
    ) -> dg.DagsterRun:
        """A run that came so far at this time."""
        runtime = str(int((longest + SLACK).total_seconds()))
        run = dg.DagsterRun(
            job_name=DRAIN_JOB,
            status=Status.STARTING if status is Status.STARTED else status,
            tags={
                DRAIN_TAG: "true",
                WORKER_TAG: FAR_AWAY,
                MAX_RUNTIME_TAG: runtime,
                **(tags or {}),
            },
            # Dagster queues no run without it.
            remote_job_origin=origin_at("__repository__@here", DRAIN_JOB),
        )
        with freeze_time(self.now):
            self.instance.add_run(run)
            if status is Status.STARTED:
                started = dg.DagsterEvent(dg.DagsterEventType.RUN_START.value, DRAIN_JOB)
                self.instance.report_dagster_event(started, run.run_id)
        return run

    def end(self, run: dg.DagsterRun) -> None:
        ended = dg.DagsterEvent(dg.DagsterEventType.RUN_SUCCESS.value, DRAIN_JOB)
        with freeze_time(self.now):
            self.instance.report_dagster_event(ended, run.run_id)


@pytest.fixture
def timeline(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Timeline:
    found = Timeline(deployment.instance)
    monkeypatch.setattr(runs, "now", lambda: found.now.timestamp())
    return found


@pytest.fixture
def standby(sensor: Callable[..., SensorUnderTest]) -> SensorUnderTest:
    return sensor("embed_backlog", EMBED_STANDBY="true")


async def stays(sensor: SensorUnderTest) -> list[bool]:
    """Which of the drains that a tick starts are to stay."""
    return [STANDBY_TAG in one.tags for one in (await sensor.tick()).run_requests]


def test_one_drain_on_standby_follows_the_other_for_hours(timeline: Timeline) -> None:
    rests = Backlog(*(timeline.now, 0, False, 0, 0, None), state=QueueState(Breaker()))
    ends: dict[str, datetime] = {}
    begun: list[dg.DagsterRun] = []
    there: list[int] = []
    beginning = timeline.now
    while timeline.now < beginning + 3 * HOUR:
        for run in begun:
            if timeline.now >= ends.get(run.run_id, timeline.now + HOUR):
                timeline.end(run)
                ends.pop(run.run_id)
        drains = know_drains(timeline.instance)
        found = decide(rests, drains, most=2, limit=Grant(NONE), model="m", standby=True)
        if isinstance(found, Start):
            begun.append(timeline.drain(longest=HOUR, tags=STAYS))
            ends[begun[-1].run_id] = timeline.now + HOUR
        there.append(len(ends))
        timeline.now += 10 * SECOND

    assert len(begun) == 4
    assert set(there) == {1, 2}
    assert there.count(2) < 20


@pytest.mark.parametrize("tags", [{}, {"dagster/asset": "x"}], ids=["backlog", "materialize"])
async def test_an_ordinary_drain_is_no_successor_of_one_on_standby(
    timeline: Timeline, standby: SensorUnderTest, tags: dict[str, str]
) -> None:
    timeline.drain(longest=HOUR, tags=STAYS)
    timeline.now += HOUR - 20 * SECOND
    timeline.drain(tags=tags)

    assert await stays(standby) == [True]


async def test_an_ordinary_drain_at_work_does_not_stand_by(
    deployment: Deployment, timeline: Timeline, standby: SensorUnderTest
) -> None:
    await deployment.queue.given_jobs("ada")
    timeline.drain()

    assert await stays(standby) == [True]


async def test_a_successor_that_finds_no_place_does_not_stand_by_and_is_not_asked_for_again(
    timeline: Timeline, standby: SensorUnderTest
) -> None:
    timeline.drain(Status.QUEUED, tags=STAYS)
    soon = (await standby.tick()).skip_message
    timeline.now += 2 * MINUTE

    late = (await standby.tick()).skip_message

    assert soon == "the queue is empty; a drain stands by"
    assert late == (
        "the queue is empty; the drain that is to stand by finds no place among the runs: "
        "tag_concurrency_limits and max_concurrent_runs in dagster.yaml"
    )


@pytest.mark.parametrize("is_standby", [False, True], ids=["ordinary", "standby"])
async def test_a_lost_drain_holds_nothing_up(
    deployment: Deployment,
    timeline: Timeline,
    sensor: Callable[..., SensorUnderTest],
    is_standby: bool,
) -> None:
    backlog = sensor("embed_backlog", EMBED_STANDBY="true" if is_standby else "false")
    # The worker that had it was lost with its machine; the run stays as it is.
    timeline.drain(longest=HOUR, tags=STAYS if is_standby else {})
    timeline.now += 2 * MINUTE
    with deployment.ago(2 * MINUTE) as queue:
        await queue.given_jobs("ada")

    data = await backlog.tick()

    assert [STANDBY_TAG in request.tags for request in data.run_requests] == [is_standby]
    due = data.run_requests[0].tags["embed_pipeline/due"]
    assert due.startswith("1 due, the oldest for ")
    assert due.endswith("; drains that seem to run and take none: 1")


async def test_nobody_is_taken_for_lost_who_has_just_begun_or_while_jobs_are_in_work(
    deployment: Deployment, timeline: Timeline, sensor: Callable[..., SensorUnderTest]
) -> None:
    backlog = sensor("embed_backlog")
    with deployment.ago(2 * MINUTE) as queue:
        await queue.given_jobs("ada", "bob")
    timeline.drain()

    begun = (await backlog.tick()).skip_message
    timeline.now += 2 * MINUTE
    await deployment.queue.lease(limit=1)
    at_work = (await backlog.tick()).skip_message

    assert begun == "enough drains running: 1 of 2 (2 due)"
    assert at_work.startswith("enough drains running: 1 of 2 (1 due)")


async def test_on_standby_a_spent_budget_starts_nothing(
    deployment: Deployment, sensor: Callable[..., SensorUnderTest]
) -> None:
    standby = sensor("embed_backlog", EMBED_STANDBY="true", EMBED_BUDGET_TOKENS_PER_DAY="100")
    limits = RateLimits(budget=Budget(tokens_per_day=100))
    await deployment.queue.limiter(limits).acquire(tokens=100)

    data = await standby.tick()

    assert data.run_requests == []
    assert "budget" in data.skip_message
    assert data.skip_message.endswith("(the queue is empty)")
