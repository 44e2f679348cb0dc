"""Who is behind a run, and what a run of an operator leaves in the audit."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest
from dagster import SubmitRunContext
from dagster._core.test_utils import create_run_for_test, instance_for_test
from dagster._core.workspace.context import WorkspaceRequestContext

from embed_pipeline.defs.operators import UNKNOWN, USER_TAG, UserRunCoordinator, operator_of
from embed_pipeline.domain.audit import MAX_ACTOR, OperatorAction
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.rate_window import RateLimits
from tests.defs.conftest import Deployment, SensorUnderTest
from tests.defs.test_assets_and_checks import materialized
from tests.defs.test_cutover_jobs import STEPS
from tests.support.dagster_results import figures

RUN = "5f0c7e1a-run"
DAY = timedelta(days=1)
DONE: dict[str, tuple[str, dict[str, Any], int]] = {
    "cancel": ("cancel_jobs", {"preview": False, "all_jobs": True}, 4),
    "retry": ("retry_failed_jobs", {"preview": False, "categories": ["PERMANENT"]}, 2),
    "release": ("release_leases_of_run", {"run_id": RUN}, 2),
    "recover": ("release_leases_of_run", {"run_id": RUN, "count_attempts": True}, 2),
    "pause": ("pause_queue", {}, 1),
    "resume": ("resume_queue", {"close_breaker": True}, 1),
    "purge": ("cleanup_expired_jobs", {}, 1),
    "clear_orphans": ("reconcile_embeddings", {}, 1),
    "force": ("reconcile_embeddings", {"force": True}, 8),
    "restore": ("restore_cancelled_jobs", {"preview": False, "all_jobs": True}, 1),
    "clear_limit": ("clear_limits", {}, 1),
    "change_model": ("initialise_schema", {"change_model": True}, 1),
}
"""Every action that is a job, with what it changes of the jobs below."""
CHOSEN = {"change_model": {"EMBEDDING_MODEL": "another-model"}}
"""Settings that somebody has changed since the queue was made."""
BESIDE = {"force": {"clear_orphans"}}
"""What a job does as well."""
UNRECORDED = {
    "collect_batches": "the work itself, of a batch",
    "drain_embed_queue": "the work itself",
    "recover_stale_leases": "the upkeep of the queue, whoever starts it",
    "prune_old_runs": "changes Dagster's history, and nothing of the queue",
    "cutover_status": "only looks",
    "explain_entity": "only looks",
}
"""Jobs that leave no entry, and why."""
BY_THE_WAY = {"replace_index"}
"""Actions that no job has as its purpose; the tests of the schema have them."""
LOOKED = {
    "cancel_jobs": {},
    "restore_cancelled_jobs": {"all_jobs": True},
    "retry_failed_jobs": {"categories": ["PERMANENT"]},
    "cleanup_expired_jobs": {"dry_run": True},
    "reconcile_embeddings": {"dry_run": True},
}


async def given_jobs(deployment: Deployment) -> None:
    with deployment.ago(20 * DAY) as queue:
        await queue.in_state("old", JobStatus.COMPLETED)
    await queue.run("MATCH (e:Entity {name: 'old'}) SET e.validTo = 1")
    await queue.in_state("done", JobStatus.COMPLETED)
    await queue.in_state("cancelled", JobStatus.CANCELLED)
    await queue.limiter(RateLimits()).hold(DAY, owner=RUN, said="slow down")
    for number in range(2):
        await queue.in_state(f"failed-{number}", JobStatus.FAILED)
    await queue.leased("held-0", "held-1", owner=f"{RUN}/host/1")
    await queue.given_jobs("waiting-0", "waiting-1")


@pytest.mark.parametrize("action", DONE)
async def test_every_operator_job_leaves_one_entry(
    deployment: Deployment, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, config, count = DONE[action]
    await given_jobs(deployment)
    figures(await deployment.run("initialise_schema"))
    for name, value in CHOSEN.get(action, {}).items():
        monkeypatch.setenv(name, value)

    result = await deployment.run(job, config)

    assert result.success
    entries = await deployment.queue.actions()
    [entry] = [entry for entry in entries if entry.action == action]
    assert {other.action for other in entries if other is not entry} == BESIDE.get(action, set())
    assert (entry.action, entry.count, entry.is_complete) == (action, count, True)
    assert (entry.actor, entry.run_id) == (UNKNOWN, result.run_id)


async def test_no_operator_job_and_no_action_is_forgotten(deployment: Deployment) -> None:
    recorded = {job for job, _, _ in DONE.values()} | set(STEPS)

    assert recorded.isdisjoint(UNRECORDED)
    assert {job.name for job in deployment.defs.jobs or ()} == recorded | set(UNRECORDED)
    assert set(OperatorAction) == {*DONE, "cutover", *BY_THE_WAY}


@pytest.mark.parametrize("job", LOOKED)
async def test_a_preview_leaves_none(deployment: Deployment, job: str) -> None:
    await given_jobs(deployment)

    assert (await deployment.run(job, LOOKED[job])).success

    assert await deployment.queue.actions() == []


@pytest.mark.parametrize(
    ("tags", "actor"),
    [
        ({USER_TAG: "alice"}, "alice"),
        ({USER_TAG: "alice", "dagster/schedule_name": "hourly_retry"}, "alice"),
        ({"dagster/schedule_name": "hourly_retry"}, "schedule hourly_retry"),
        ({"dagster/sensor_name": "embed_backlog"}, "sensor embed_backlog"),
        ({USER_TAG: ""}, UNKNOWN),
        ({}, UNKNOWN),
    ],
)
def test_the_tags_of_a_run_say_who_is_behind_it(tags: dict[str, str], actor: str) -> None:
    found = []

    @dg.op
    def look(context: dg.OpExecutionContext) -> None:
        found.append(operator_of(context))

    @dg.job(tags=tags)
    def job() -> None:
        look()

    result = job.execute_in_process()

    [operator] = found
    assert (operator.actor, operator.run_id) == (actor, result.run_id)


@pytest.mark.parametrize(
    ("typed", "headers", "tagged"),
    [
        ({}, {"X-Forwarded-User": "alice"}, "alice"),
        ({USER_TAG: "mallory"}, {"X-Forwarded-User": "alice"}, "alice"),
        ({USER_TAG: "mallory"}, {}, ""),
        ({}, {}, None),
        ({}, {"X-Forwarded-User": "  "}, None),
        ({}, {"X-Forwarded-User": "eve\x1b[31m" + "x" * 999}, "eve\\x1b[31m"),
    ],
)
def test_only_the_header_of_the_proxy_names_a_user(
    typed: dict[str, str], headers: dict[str, str], tagged: str | None
) -> None:
    module = UserRunCoordinator.__module__
    coordinator = {"module": module, "class": UserRunCoordinator.__name__}
    with instance_for_test(overrides={"run_coordinator": coordinator}) as instance:
        run = create_run_for_test(
            instance, job_name="pause_queue", status=dg.DagsterRunStatus.STARTED, tags=typed
        )
        # What the web server hands over: the context of a request, and the request as its source.
        workspace = object.__new__(WorkspaceRequestContext)
        workspace._source = type("Request", (), {"headers": headers})()
        submitted = instance.run_coordinator.submit_run(SubmitRunContext(run, workspace))
        found = submitted.tags.get(USER_TAG)

    assert found is None if tagged is None else found is not None and found.startswith(tagged)
    assert len(found or "") <= MAX_ACTOR


async def test_the_table_of_the_ui_is_renewed_when_somebody_has_done_something(
    deployment: Deployment, sensor: Callable[..., SensorUnderTest]
) -> None:
    metrics = sensor("queue_metrics")
    await deployment.run("pause_queue")

    def tables(tick: Any) -> list[Any]:
        events = [e for e in tick.asset_events if e.asset_key.path[-1] == "operator_actions"]
        return [event.metadata["recent_actions"].records for event in events]

    [[row]] = tables(await metrics.tick())
    unchanged = tables(await metrics.tick())
    await deployment.run("resume_queue")
    [[newer, older]] = tables(await metrics.tick())

    assert row.data["action"] == "pause"
    assert unchanged == []
    assert (newer.data["action"], older.data["action"]) == ("resume", "pause")


async def test_materializing_the_asset_reads_the_actions_now(deployment: Deployment) -> None:
    await deployment.run("pause_queue")

    metadata = await materialized(deployment, "operator_actions")

    assert metadata["actions_shown"].value == 1
    [row] = metadata["recent_actions"].records  # pyright: ignore[reportAttributeAccessIssue]
    assert (row.data["action"], row.data["actor"]) == ("pause", UNKNOWN)


async def test_a_shorter_retention_of_one_clean_up_deletes_no_younger_entry(
    deployment: Deployment,
) -> None:
    with deployment.ago(10 * DAY) as queue:
        await queue.in_state("old", JobStatus.COMPLETED)
    await deployment.run("pause_queue")
    await queue.run("MATCH (a:EmbedAudit) SET a.at = a.at - $ms", ms=10 * 86_400_000)

    found = figures(await deployment.run("cleanup_expired_jobs", {"retention_days": 7}))

    assert (found["deleted"], found["deleted_actions"]) == (1, 0)
    assert [entry.action for entry in await queue.actions()] == ["purge", "pause"]


async def test_entries_past_the_retention_are_a_reason_for_the_nightly_clean_up(
    deployment: Deployment,
) -> None:
    await deployment.run("pause_queue")
    calm = await deployment.tick_schedule("nightly_cleanup")
    await deployment.queue.run("MATCH (a:EmbedAudit) SET a.at = a.at - $ms", ms=15 * 86_400_000)

    tick = await deployment.tick_schedule("nightly_cleanup")
    found = figures(await deployment.run("cleanup_expired_jobs"))

    assert calm.run_requests == []
    assert len(tick.run_requests) == 1
    assert (found["deleted"], found["deleted_actions"]) == (0, 1)
    assert await deployment.queue.actions() == []
