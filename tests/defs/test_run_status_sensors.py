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
