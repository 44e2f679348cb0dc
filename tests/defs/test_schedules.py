"""What happens by the clock: looks first, and starts a run only where there is work."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import dagster as dg
import pytest

from embed_pipeline.defs import schedules
from embed_pipeline.defs.site import Site
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import JobStatus, NewJob
from tests.defs.conftest import Deployment
from tests.support.dagster_results import figures
from tests.support.queue_harness import MODEL
from tests.support.sites import site_of

DAY = timedelta(days=1)
ON, OFF = dg.DefaultScheduleStatus.RUNNING, dg.DefaultScheduleStatus.STOPPED


async def fail(deployment: Deployment, uid: str, category: ErrorCategory) -> None:
    queue = deployment.queue
    await queue.put_entity(uid)
    await queue.admin.enqueue([NewJob(uid, MODEL)], max_attempts=1)
    batch = await queue.lease(limit=1)
    await queue.fail(batch.jobs[0].lease, category=category)


@pytest.mark.parametrize(
    ("make", "status", "cron"),
    [
        (schedules.cleanup_schedule, ON, "15 3 * * *"),
        (schedules.pruning_schedule, ON, "45 3 * * *"),
        (schedules.retry_schedule, OFF, "5 * * * *"),
    ],
)
def test_what_costs_money_is_off_until_somebody_turns_it_on(
    make: Callable[[Site], dg.ScheduleDefinition], status: dg.DefaultScheduleStatus, cron: str
) -> None:
    schedule = make(site_of())

    assert schedule.default_status is status
    assert schedule.cron_schedule == cron
    assert schedule.description


class TestNightlyCleanup:
    async def test_skips_when_nothing_is_old_enough(self, deployment: Deployment) -> None:
        with deployment.ago(13 * DAY) as queue:
            await queue.in_state("ada", JobStatus.COMPLETED)

        found = await deployment.tick_schedule("nightly_cleanup")

        assert found.run_requests == []
        assert found.skip_message == "no job ended more than 14 days ago"

    async def test_starts_a_run_that_deletes_what_is(self, deployment: Deployment) -> None:
        with deployment.ago(15 * DAY) as queue:
            await queue.in_state("ada", JobStatus.COMPLETED)

        [request] = (await deployment.tick_schedule("nightly_cleanup")).run_requests
        before = await queue.nodes()
        found = figures(await deployment.run("cleanup_expired_jobs"))

        assert request.tags["embed_pipeline/expired"] == "1"
        assert request.run_config == {}
        assert len(before) == 1
        assert found["deleted"] == 1


class TestHourlyRetry:
    async def test_skips_when_only_permanent_failures_are_left(
        self, deployment: Deployment
    ) -> None:
        await fail(deployment, "ada", ErrorCategory.PERMANENT)

        found = await deployment.tick_schedule("hourly_retry")

        assert found.run_requests == []
        assert found.skip_message == "no failed job is worth another try"

    async def test_starts_a_run_that_really_retries(self, deployment: Deployment) -> None:
        await fail(deployment, "hopeless", ErrorCategory.PERMANENT)
        await fail(deployment, "ada", ErrorCategory.TRANSIENT)

        [request] = (await deployment.tick_schedule("hourly_retry")).run_requests
        job = deployment.defs.resolve_job_def("retry_failed_jobs")
        result = await asyncio.to_thread(
            job.execute_in_process, instance=deployment.instance, run_config=request.run_config
        )

        assert figures(result)["retried"] == 1
        assert await deployment.queue.statuses("ada", "hopeless") == [
            JobStatus.PENDING,
            JobStatus.FAILED,
        ]
