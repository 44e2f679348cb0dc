"""Jobs that change other jobs by filter: what is meant, and nothing else."""

from datetime import timedelta
from typing import Any

import pytest

from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import JobStatus, NewJob
from tests.defs.conftest import Deployment
from tests.support.dagster_results import figures, problem
from tests.support.openai_server import KEY
from tests.support.queue_harness import MODEL, Neo4jUnderTest

TRANSIENT, PERMANENT = ErrorCategory.TRANSIENT, ErrorCategory.PERMANENT
HOUR = timedelta(hours=1)
FOR_REAL = {"preview": False}


async def fail(queue: Neo4jUnderTest, uid: str, category: ErrorCategory, model: str) -> None:
    """A job that has failed for good at its only attempt."""
    await queue.put_entity(uid)
    await queue.admin.enqueue([NewJob(uid, model)], max_attempts=1)
    batch = await queue.lease(limit=1, model=model)
    await queue.fail(*(item.lease for item in batch.jobs), category=category)


@pytest.fixture
async def failed(deployment: Deployment) -> Deployment:
    """Failed jobs of two categories, ages and models."""
    with deployment.ago(5 * HOUR) as queue:
        await fail(queue, "old", TRANSIENT, MODEL)
    await fail(queue, "new", TRANSIENT, MODEL)
    await fail(queue, "other model", TRANSIENT, "another-model")
    await fail(queue, "permanent", PERMANENT, MODEL)
    return deployment


async def in_state(deployment: Deployment, status: JobStatus) -> set[str]:
    """The entities whose jobs are in this state."""
    nodes = await deployment.queue.nodes()
    return {node["entity_uid"] for node in nodes if node["status"] == status}


class TestRetryFailedJobs:
    async def test_the_first_launch_only_shows_what_it_would_do(self, failed: Deployment) -> None:
        before = await failed.queue.nodes()

        found = figures(await failed.run("retry_failed_jobs"))

        assert found["would_be_retried"] == 3
        assert found["failed"] == 3
        assert found["job_ids_shown"] == 3
        assert set(found["job_ids"]) <= {node["id"] for node in before}
        assert await failed.queue.nodes() == before

    @pytest.mark.parametrize("job", ["retry_failed_jobs", "cancel_jobs"])
    async def test_without_a_condition_it_is_refused(self, failed: Deployment, job: str) -> None:
        before = await failed.queue.nodes()

        said = problem(await failed.run(job, FOR_REAL))

        assert "which jobs? Name their ids, give a filter" in said
        assert "all_jobs in a run config. Nothing was changed" in said
        assert await failed.queue.nodes() == before

    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            ({"all_jobs": True}, {"old", "new", "other model"}),
            ({"categories": ["TRANSIENT"]}, {"old", "new", "other model"}),
            ({"categories": ["PERMANENT"]}, {"permanent"}),
            ({"older_than_hours": 4}, {"old"}),
            ({"model": MODEL}, {"old", "new"}),
            ({"entity_keys": ["new", "permanent"]}, {"new"}),
            ({"model": MODEL, "older_than_hours": 4.5, "categories": ["PERMANENT"]}, set()),
        ],
        ids=["all", "transient", "permanent", "age", "model", "entities", "all must hold"],
    )
    async def test_retries_what_is_meant(
        self, failed: Deployment, condition: dict[str, Any], expected: set[str]
    ) -> None:
        found = figures(await failed.run("retry_failed_jobs", {**FOR_REAL, **condition}))

        assert found["retried"] == len(expected)
        assert await in_state(failed, JobStatus.PENDING) == expected

    async def test_whoever_names_a_job_means_it_whatever_it_failed_of(
        self, failed: Deployment
    ) -> None:
        job = await failed.queue.job("permanent")

        found = figures(await failed.run("retry_failed_jobs", {**FOR_REAL, "job_ids": [job.id]}))

        job = await failed.queue.job("permanent")
        assert found["retried"] == 1
        assert (job.status, job.attempts, job.error) == (JobStatus.PENDING, 0, None)


@pytest.fixture
async def busy(deployment: Deployment) -> Deployment:
    """A job in every state; two are processing, for different runs."""
    queue = deployment.queue
    for status in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED):
        await queue.in_state(status.value, status)
    await queue.leased("held", owner="first-run/host/1")
    await queue.leased("held too", owner="second-run/host/1")
    await queue.given_jobs("waiting")
    return deployment


class TestCancelJobs:
    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            ({"all_jobs": True}, {"held", "held too", "waiting"}),
            ({"statuses": ["PENDING"]}, {"waiting"}),
            ({"statuses": ["PROCESSING"]}, {"held", "held too"}),
            ({"owner": "first-run"}, {"held"}),
            ({"entity_keys": ["completed", "failed", "held"]}, {"held"}),
        ],
        ids=["all", "pending", "processing", "owner", "entities"],
    )
    async def test_cancels_what_is_meant_and_leaves_ended_jobs_alone(
        self, busy: Deployment, condition: dict[str, Any], expected: set[str]
    ) -> None:
        found = figures(await busy.run("cancel_jobs", {**FOR_REAL, **condition}))

        assert found["cancelled"] == len(expected)
        assert await in_state(busy, JobStatus.CANCELLED) == {*expected, "cancelled"}
        assert await in_state(busy, JobStatus.COMPLETED) == {"completed"}
        assert await in_state(busy, JobStatus.FAILED) == {"failed"}

    async def test_a_preview_changes_nothing(self, busy: Deployment) -> None:
        before = await busy.queue.nodes()

        found = figures(await busy.run("cancel_jobs", {"statuses": ["PROCESSING"]}))

        assert found["would_be_cancelled"] == 2
        assert await busy.queue.nodes() == before

    async def test_run_and_reason_stand_on_the_job(self, busy: Deployment) -> None:
        result = await busy.run(
            "cancel_jobs", {**FOR_REAL, "entity_keys": ["waiting"], "reason": "not needed"}
        )

        job = await busy.queue.job("waiting")
        assert job.cancelled_by == f"an unknown user of Dagster, Dagster run {result.run_id}"
        assert job.error == "not needed"

    async def test_a_secret_of_anybody_pasted_as_the_reason_is_not_stored(
        self, busy: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG")
        reason = f"{KEY} was stolen, with wJalrXUtnFEMI/K7MDENG"

        figures(await busy.run("cancel_jobs", {**FOR_REAL, "all_jobs": True, "reason": reason}))

        assert (await busy.queue.job("waiting")).error == "*** was stolen, with ***"
