"""A drain that failed or was canceled holds nothing for long."""

import asyncio
from collections.abc import Callable

import dagster as dg
import pytest

from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import DRAIN_JOB
from embed_pipeline.defs.sensors import drain_canceled, drain_failed
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.wiring import owner_of
from tests.defs.conftest import Deployment, SensorUnderTest


@pytest.fixture
def drain(deployment: Deployment) -> dg.DagsterRun:
    run = dg.DagsterRun(job_name=DRAIN_JOB, status=dg.DagsterRunStatus.STARTED)
    return deployment.instance.add_run(run)


async def told_of(
    sensor: dg.RunStatusSensorDefinition,
    deployment: Deployment,
    drain: dg.DagsterRun,
    event: dg.DagsterEvent,
) -> str | None:
    """What a sensor says when it hears of the end of a drain."""
    context = dg.build_run_status_sensor_context(
        sensor_name=sensor.name,
        dagster_event=event,
        dagster_instance=deployment.instance,
        dagster_run=drain,
    )
    neo4j = (deployment.defs.resources or {})["neo4j"]
    assert isinstance(neo4j, Neo4jResource)
    reason = await asyncio.to_thread(sensor, context, neo4j=neo4j.process_config_and_initialize())
    assert isinstance(reason, dg.SkipReason)
    return reason.skip_message


async def test_what_a_failed_drain_holds_is_taken_back_at_once_and_tried_alone(
    deployment: Deployment, drain: dg.DagsterRun
) -> None:
    await deployment.queue.leased("ada", "bob", owner=owner_of(drain.run_id))
    event = deployment.instance.report_run_failed(drain)

    said = await told_of(drain_failed, deployment, drain, event)

    assert said == f"drain {drain.run_id} failed: 2 leases taken back"
    for uid in ("ada", "bob"):
        job = await deployment.queue.job(uid)
        assert (job.status, job.attempts, job.is_suspect) == (JobStatus.PENDING, 1, True)
    assert (await deployment.queue.counters())["recovered"] == 2


def said_on_its_page(deployment: Deployment, drain: dg.DagsterRun) -> list[str]:
    """The messages of Dagster's own engine that the page of a run shows."""
    records = deployment.instance.get_records_for_run(drain.run_id).records
    events = [record.event_log_entry for record in records]
    return [
        event.user_message or event.message
        for event in events
        if event.dagster_event_type is dg.DagsterEventType.ENGINE_EVENT
    ]


async def test_m71_the_page_of_a_dead_run_says_how_many_jobs_were_taken_back_and_what_follows(
    deployment: Deployment, drain: dg.DagsterRun
) -> None:
    await deployment.queue.leased("ada", "bob", "cyd", owner=owner_of(drain.run_id))
    await deployment.queue.run("MATCH (j:EmbedJob {entity_uid: 'cyd'}) SET j.max_attempts = 1")
    event = deployment.instance.report_run_failed(drain)

    await told_of(drain_failed, deployment, drain, event)
    await told_of(drain_failed, deployment, drain, event)

    [said] = said_on_its_page(deployment, drain)
    assert said.startswith("3 jobs that this run held were taken back. 1 had no attempt left")
    assert "2 are pending again" in said
    assert "at most 64 at once, and the last attempt of each alone" in said


async def test_the_page_of_a_canceled_run_says_what_was_given_back(
    deployment: Deployment, drain: dg.DagsterRun
) -> None:
    await deployment.queue.leased("ada", owner=owner_of(drain.run_id))
    event = deployment.instance.report_run_canceled(drain)

    await told_of(drain_canceled, deployment, drain, event)

    [said] = said_on_its_page(deployment, drain)
    assert said.startswith("1 jobs that this run held were given back untried")


async def test_what_a_canceled_drain_holds_is_given_back_untried(
    deployment: Deployment, drain: dg.DagsterRun
) -> None:
    await deployment.queue.leased("ada", "bob", owner=owner_of(drain.run_id))
    event = deployment.instance.report_run_canceled(drain)

    said = await told_of(drain_canceled, deployment, drain, event)

    assert said == f"drain {drain.run_id} was canceled: 2 leases given back"
    for uid in ("ada", "bob"):
        job = await deployment.queue.job(uid)
        assert (job.status, job.attempts, job.is_suspect) == (JobStatus.PENDING, 0, False)
    assert (await deployment.queue.counters())["released"] == 2


@pytest.mark.parametrize("sensor", [drain_failed, drain_canceled], ids=lambda sensor: sensor.name)
async def test_m78_every_lease_that_is_taken_is_named_with_its_former_owner(
    deployment: Deployment,
    drain: dg.DagsterRun,
    sensor: dg.RunStatusSensorDefinition,
    caplog: pytest.LogCaptureFixture,
) -> None:
    owner = owner_of(drain.run_id)
    leased = await deployment.queue.leased("ada", "bob", owner=owner)
    event = deployment.instance.report_run_failed(drain)

    await told_of(sensor, deployment, drain, event)

    for item in leased:
        lines = [line for line in caplog.messages if f"job={item.lease.job_id} " in line]
        assert any(f"from owner={owner}" in line for line in lines)


@pytest.mark.parametrize("sensor", [drain_failed, drain_canceled], ids=lambda sensor: sensor.name)
async def test_m78_with_interval_0_nothing_is_taken(
    deployment: Deployment,
    drain: dg.DagsterRun,
    sensor: dg.RunStatusSensorDefinition,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EMBED_JOB_RECOVERY_INTERVAL", "0")
    await deployment.queue.leased("ada", owner=owner_of(drain.run_id))
    before = await deployment.queue.nodes()
    event = deployment.instance.report_run_failed(drain)

    said = await told_of(sensor, deployment, drain, event)

    assert "recovery is off (EMBED_JOB_RECOVERY_INTERVAL=0)" in (said or "")
    assert await deployment.queue.nodes() == before


@pytest.mark.parametrize("sensor", [drain_failed, drain_canceled], ids=lambda sensor: sensor.name)
async def test_jobs_of_other_runs_are_untouched(
    deployment: Deployment, drain: dg.DagsterRun, sensor: dg.RunStatusSensorDefinition
) -> None:
    await deployment.queue.leased("ada", owner=owner_of("another-run"))
    await deployment.queue.leased("bob", owner=owner_of(f"{drain.run_id}-2"))
    before = await deployment.queue.nodes()
    event = deployment.instance.report_run_failed(drain)

    said = await told_of(sensor, deployment, drain, event)

    assert said is not None
    assert ": 0 leases " in said
    assert await deployment.queue.nodes() == before


@pytest.mark.parametrize("sensor", [drain_failed, drain_canceled], ids=lambda sensor: sensor.name)
async def test_hearing_of_it_twice_changes_nothing_more(
    deployment: Deployment, drain: dg.DagsterRun, sensor: dg.RunStatusSensorDefinition
) -> None:
    await deployment.queue.leased("ada", owner=owner_of(drain.run_id))
    event = deployment.instance.report_run_failed(drain)
    await told_of(sensor, deployment, drain, event)
    before = await deployment.queue.nodes()

    await told_of(sensor, deployment, drain, event)

    assert await deployment.queue.nodes() == before


async def test_a_failure_is_heard_of_through_the_event_log(
    deployment: Deployment, drain: dg.DagsterRun, sensor: Callable[..., SensorUnderTest]
) -> None:
    listener = sensor("drain_failed")
    await listener.tick()
    await deployment.queue.leased("ada", owner=owner_of(drain.run_id))
    deployment.instance.report_run_failed(drain)

    await listener.tick()

    assert await deployment.queue.statuses("ada") == [JobStatus.PENDING]


@pytest.mark.parametrize("sensor", [drain_failed, drain_canceled], ids=lambda sensor: sensor.name)
def test_both_are_on_by_default(sensor: dg.RunStatusSensorDefinition) -> None:
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
