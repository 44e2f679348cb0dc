"""A drain that failed or was canceled holds nothing for long."""

import contextlib
from collections.abc import Callable
from datetime import timedelta

import dagster as dg
import pytest

from embed_pipeline.defs import drains
from embed_pipeline.defs.ended_drains import RECOVERY_IS_OFF
from embed_pipeline.defs.runs import DRAIN_JOB, DRAIN_TAG
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.operations.wiring import owner_of
from tests.defs.conftest import Deployment, SensorUnderTest
from tests.defs.test_backlog_sensor import dead_worker
from tests.support.openai_server import OpenAIServer
from tests.support.origins import origin_at

Status = dg.DagsterRunStatus
ENDINGS = pytest.mark.parametrize("ending", [Status.FAILURE, Status.CANCELED])


@pytest.fixture
def backlog(sensor: Callable[..., SensorUnderTest]) -> SensorUnderTest:
    return sensor("embed_backlog")


@pytest.fixture
def drain(deployment: Deployment) -> dg.DagsterRun:
    run = dg.DagsterRun(job_name=DRAIN_JOB, status=Status.STARTED, tags={DRAIN_TAG: "true"})
    return deployment.instance.add_run(run)


def end(deployment: Deployment, drain: dg.DagsterRun, ending: Status) -> None:
    if ending is Status.FAILURE:
        deployment.instance.report_run_failed(drain)
    else:
        deployment.instance.report_run_canceled(drain)


async def said_by(backlog: SensorUnderTest) -> str:
    return (await backlog.tick()).skip_message or ""


def said_on_its_page(deployment: Deployment, drain: dg.DagsterRun) -> list[str]:
    """The messages of Dagster's own engine that the page of a run shows."""
    records = deployment.instance.get_records_for_run(drain.run_id).records
    events = [record.event_log_entry for record in records]
    return [
        event.user_message or event.message
        for event in events
        if event.dagster_event_type is dg.DagsterEventType.ENGINE_EVENT
    ]


async def test_what_a_failed_drain_holds_is_taken_back_at_once_and_tried_alone(
    deployment: Deployment, drain: dg.DagsterRun, backlog: SensorUnderTest
) -> None:
    await deployment.queue.leased("ada", "bob", owner=owner_of(drain.run_id))
    end(deployment, drain, Status.FAILURE)

    assert f"drain {drain.run_id} failed: 2 leases taken back" in await said_by(backlog)

    for uid in ("ada", "bob"):
        job = await deployment.queue.job(uid)
        assert (job.status, job.attempts, job.is_suspect) == (JobStatus.PENDING, 1, True)
    assert (await deployment.queue.counters())["recovered"] == 2


async def test_m71_m92_the_page_of_a_dead_run_says_how_many_jobs_were_taken_back_and_what_follows(
    deployment: Deployment, drain: dg.DagsterRun, backlog: SensorUnderTest
) -> None:
    await deployment.queue.leased("ada", "bob", "cyd", owner=owner_of(drain.run_id))
    await deployment.queue.run("MATCH (j:EmbedJob {entity_uid: 'cyd'}) SET j.max_attempts = 1")
    end(deployment, drain, Status.FAILURE)

    await backlog.tick()
    await backlog.tick()

    [said] = said_on_its_page(deployment, drain)
    assert said.startswith("3 jobs that this run held were taken back. 1 had no attempt left")
    assert "2 are pending again" in said
    assert "at most 64 at once, and the last attempt of each alone" in said


@pytest.mark.parametrize("by", ["recover_stale_leases", "drain_embed_queue"])
async def test_m92_the_page_of_a_run_says_so_too_where_its_leases_have_expired_before(
    deployment: Deployment,
    drain: dg.DagsterRun,
    provider: OpenAIServer,
    by: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Only the main thread can have handlers, and there the loop of the tests is running.
    monkeypatch.setattr(drains, "stopped_by_signals", lambda *_: contextlib.nullcontext())
    with deployment.ago(timedelta(minutes=10)) as queue:
        await queue.leased("ada", "bob", owner=owner_of(drain.run_id))
        await queue.leased("cyd", owner=f"worker-{drain.run_id}/host/1")

    await deployment.run(by, {"linger_seconds": 0} if by == "drain_embed_queue" else None)

    # Dagster still takes it for alive: its worker was lost with a machine.
    [said] = said_on_its_page(deployment, drain)
    assert said.startswith("2 jobs that this run held were taken back. 2 are pending again")


@pytest.mark.parametrize(
    ("interval", "then"),
    [("60000", "its leases are taken back."), ("0", f"{RECOVERY_IS_OFF}.")],
    ids=["on", "off"],
)
async def test_the_page_of_a_vanished_drain_promises_only_what_happens(
    deployment: Deployment,
    sensor: Callable[..., SensorUnderTest],
    interval: str,
    then: str,
) -> None:
    gone = deployment.instance.add_run(
        dg.DagsterRun(
            job_name=DRAIN_JOB, status=Status.STARTED, tags={DRAIN_TAG: "true", **dead_worker()}
        )
    )

    await sensor("embed_backlog", EMBED_JOB_RECOVERY_INTERVAL=interval).tick()

    records = deployment.instance.get_records_for_run(gone.run_id).records
    said = [record.event_log_entry.message for record in records]
    assert any(f"The process of this drain is gone; {then}" in message for message in said)


async def test_what_a_canceled_drain_holds_is_given_back_untried_and_its_page_says_so(
    deployment: Deployment, drain: dg.DagsterRun, backlog: SensorUnderTest
) -> None:
    await deployment.queue.leased("ada", "bob", owner=owner_of(drain.run_id))
    end(deployment, drain, Status.CANCELED)

    assert f"drain {drain.run_id} was canceled: 2 leases given back" in await said_by(backlog)

    for uid in ("ada", "bob"):
        job = await deployment.queue.job(uid)
        assert (job.status, job.attempts, job.is_suspect) == (JobStatus.PENDING, 0, False)
    assert (await deployment.queue.counters())["released"] == 2
    [said] = said_on_its_page(deployment, drain)
    assert said.startswith("2 jobs that this run held were given back untried")


@ENDINGS
async def test_m78_every_lease_that_is_taken_is_named_with_its_former_owner(
    deployment: Deployment,
    drain: dg.DagsterRun,
    backlog: SensorUnderTest,
    ending: Status,
    caplog: pytest.LogCaptureFixture,
) -> None:
    owner = owner_of(drain.run_id)
    leased = await deployment.queue.leased("ada", "bob", owner=owner)
    end(deployment, drain, ending)

    await backlog.tick()

    for item in leased:
        lines = [line for line in caplog.messages if f"job={item.lease.job_id} " in line]
        assert any(f"from owner={owner}" in line for line in lines)


@ENDINGS
async def test_m78_m90_with_interval_0_nothing_is_taken_and_the_tick_says_so(
    deployment: Deployment,
    drain: dg.DagsterRun,
    backlog: SensorUnderTest,
    ending: Status,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EMBED_JOB_RECOVERY_INTERVAL", "0")
    await deployment.queue.leased("ada", owner=owner_of(drain.run_id))
    before = await deployment.queue.nodes()
    end(deployment, drain, ending)

    assert "recovery is off (EMBED_JOB_RECOVERY_INTERVAL=0)" in await said_by(backlog)
    assert await deployment.queue.nodes() == before


@ENDINGS
async def test_jobs_of_other_runs_are_untouched(
    deployment: Deployment, drain: dg.DagsterRun, backlog: SensorUnderTest, ending: Status
) -> None:
    await deployment.queue.leased("ada", owner=owner_of("another-run"))
    await deployment.queue.leased("bob", owner=owner_of(f"{drain.run_id}-2"))
    before = await deployment.queue.nodes()
    end(deployment, drain, ending)

    assert await said_by(backlog) == "nothing waits, 2 in work"
    assert await deployment.queue.nodes() == before


async def test_a_drain_under_way_keeps_what_it_holds(
    deployment: Deployment, drain: dg.DagsterRun, backlog: SensorUnderTest
) -> None:
    await deployment.queue.leased("ada", owner=owner_of(drain.run_id))
    before = await deployment.queue.nodes()

    await backlog.tick()

    assert await deployment.queue.nodes() == before


async def test_m96_the_runs_of_another_code_location_are_its_own_business(
    deployment: Deployment, backlog: SensorUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = origin_at("__repository__@there", DRAIN_JOB)
    run = deployment.instance.add_run(
        dg.DagsterRun(job_name=DRAIN_JOB, status=Status.FAILURE, remote_job_origin=origin)
    )
    await deployment.queue.leased("ada", owner=owner_of(run.run_id))
    where = "embed_pipeline.defs.ticks.Tick.repository"
    monkeypatch.setattr(where, "__repository__@here")

    assert await said_by(backlog) == "nothing waits, 1 in work"
    monkeypatch.setattr(where, "__repository__@there")
    assert "1 leases taken back" in await said_by(backlog)
