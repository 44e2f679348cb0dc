"""Materializing the embeddings makes them: scan, enqueue, drain, and the coverage reached."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest
from dagster import SubmitRunContext
from dagster._core.test_utils import create_run_for_test, instance_for_test

from embed_pipeline.defs import drains, graph
from embed_pipeline.defs.operators import UserRunCoordinator
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import DRAIN_TAG, MAX_RUNTIME_TAG, WORKER_TAG
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.worker.engine import Drain
from embed_pipeline.worker.report import DrainReport, Ending
from tests.defs.conftest import A_MOMENT, Deployment, SensorUnderTest
from tests.support.dagster_results import shown
from tests.support.openai_server import OpenAIServer, failure
from tests.support.queue_harness import DIMENSIONS, MODEL

EMBEDDINGS = dg.AssetKey("entity_embeddings")
UIDS = ("ada", "bob", "cyd")


@pytest.fixture(autouse=True)
def signals_are_somebody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the main thread can have handlers, and there the loop of the tests is running."""
    for module in (drains, graph):
        monkeypatch.setattr(module, "stopped_by_signals", lambda *_: contextlib.nullcontext())


async def make(deployment: Deployment) -> dg.ExecuteInProcessResult:
    """A click on Materialize."""
    everything = deployment.defs.resolve_implicit_global_asset_job_def()
    return await asyncio.to_thread(
        everything.execute_in_process,
        instance=deployment.instance,
        asset_selection=[EMBEDDINGS],
        raise_on_error=False,
    )


def told(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    [event] = result.asset_materializations_for_node("entity_embeddings")
    return {name: value.value for name, value in event.metadata.items() if hasattr(value, "value")}


def problem(result: dg.ExecuteInProcessResult) -> str:
    """The words of the failure, as the page of the run shows them."""
    [event] = [e for e in result.all_events if e.event_type is dg.DagsterEventType.STEP_FAILURE]
    assert event.step_failure_data.user_failure_data is not None
    return event.step_failure_data.user_failure_data.description or ""


async def test_m89_materialize_scans_enqueues_and_drains_until_nothing_is_due(
    deployment: Deployment, provider: OpenAIServer
) -> None:
    for uid in UIDS:
        await deployment.queue.put_entity(uid)

    result = await make(deployment)

    assert result.success
    assert await deployment.queue.statuses(*UIDS) == [JobStatus.COMPLETED] * 3
    assert all([await deployment.queue.vector(uid) for uid in UIDS])
    found = told(result)
    assert (found["coverage_percent"], found["entities_current"]) == (100.0, 3)
    assert (found["entities_enqueued"], found["entities_changed"]) == (3, 3)
    last = await deployment.queue.queue.reconciler(MODEL).last()
    assert last is not None
    assert last.percent == 100


async def test_m89_it_says_how_many_entities_have_changed_also_if_none_has(
    deployment: Deployment, provider: OpenAIServer
) -> None:
    for uid in UIDS:
        await deployment.queue.put_entity(uid)
    await make(deployment)
    await deployment.queue.put_entity("ada", "another text")

    changed, again = told(await make(deployment)), told(await make(deployment))

    assert (changed["entities_changed"], again["entities_changed"]) == (1, 0)


async def test_m89_it_is_a_drain_to_everybody_who_looks(
    deployment: Deployment, provider: OpenAIServer
) -> None:
    await deployment.queue.put_entity("ada")

    result = await make(deployment)

    run = deployment.instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.tags[DRAIN_TAG] == "true"
    assert run.tags[WORKER_TAG]
    assert int(run.tags[MAX_RUNTIME_TAG]) <= 43_200
    event = deployment.instance.get_latest_materialization_event(dg.AssetKey("embed_drains"))
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.metadata["drain_run_id"].value == result.run_id


def test_m89_it_is_bounded_with_the_drains_before_it_has_begun() -> None:
    with instance_for_test() as instance:
        coordinator = UserRunCoordinator()
        coordinator.register_instance(instance)
        selections = ([EMBEDDINGS], [dg.AssetKey(["acme", "entity_embeddings"])], [], None)
        tags = []
        for keys in selections:
            selected = None if keys is None else frozenset(keys)
            run = create_run_for_test(instance, asset_selection=selected)
            with contextlib.suppress(Exception):
                # What follows needs a workspace; the tags are set before.
                coordinator.submit_run(SubmitRunContext(run, workspace=None))  # pyright: ignore
            found = instance.get_run_by_id(run.run_id)
            assert found is not None
            tags.append(found.tags.get(DRAIN_TAG))

    assert tags == ["true", "true", None, None]


async def test_m89_a_paused_queue_makes_no_materialization_and_says_why(
    deployment: Deployment, provider: OpenAIServer
) -> None:
    await deployment.queue.put_entity("ada")
    await deployment.queue.switch.pause(by="operator")

    result = await make(deployment)

    assert not result.success
    assert problem(result).startswith("1 entities still wait for their vectors: paused")


async def test_m89_a_fault_of_the_provider_is_the_failure_of_the_run(
    deployment: Deployment, provider: OpenAIServer
) -> None:
    await deployment.queue.put_entity("ada")
    provider.answer_with = lambda _: failure(401, "no such key", "invalid_api_key")

    result = await make(deployment)

    assert "nothing can work until somebody acts" in problem(result)


async def test_m89_terminating_it_is_no_success(
    deployment: Deployment, provider: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stopped(self: Drain) -> DrainReport:
        self.report.ending = Ending.STOPPED
        return self.report

    monkeypatch.setattr(Drain, "run", stopped)

    result = await make(deployment)

    assert not result.success
    assert result.asset_materializations_for_node("entity_embeddings") == []


def test_m89_the_assets_say_what_they_are_about(deployment: Deployment) -> None:
    nodes = deployment.defs.resolve_asset_graph()

    def metadata(name: str) -> dict[str, Any]:
        return dict(nodes.get(dg.AssetKey(name)).metadata)

    entities = metadata("graph_entities")
    assert (entities["label"], entities["key"]) == ("Entity", "name")
    assert entities["text"] == "{name}, {entityType}, {observations}"
    assert metadata("entity_embeddings")["model"] == MODEL
    assert metadata("entity_vector_index")["dimensions"] == DIMENSIONS


def test_m89_a_materialization_upstream_starts_it(deployment: Deployment) -> None:
    defs, instance = deployment.defs, deployment.instance

    def wanted(cursor: Any) -> tuple[int, Any]:
        result = dg.evaluate_automation_conditions(
            defs, instance, asset_selection=dg.AssetSelection.assets(EMBEDDINGS), cursor=cursor
        )
        return result.total_requested, result.cursor

    first, cursor = wanted(None)
    instance.report_runless_asset_event(dg.AssetMaterialization("graph_entities"))
    second, cursor = wanted(cursor)
    third, _ = wanted(cursor)

    assert (first, second, third) == (0, 1, 0)


async def test_m92_a_drain_with_failed_jobs_warns_and_shows_each_with_what_to_do(
    deployment: Deployment, provider: OpenAIServer
) -> None:
    await deployment.queue.given_jobs("good", "bad")
    provider.answer_with = lambda body: (
        failure(400, "no such language", None) if "bad" in str(body["input"]) else None
    )

    result = await deployment.run("drain_embed_queue", {"linger_seconds": 0})

    job = await deployment.queue.job("bad")
    [row] = shown(result)["failed_jobs"]
    assert (row["category"], row["entity"], row["job"]) == ("PERMANENT", "bad", job.id)
    assert "no such language" in row["message"]
    assert f"job_ids: [{job.id}], categories: [PERMANENT]" in row["what to do"]
    logged = deployment.instance.all_logs(result.run_id)
    [warning] = [entry for entry in logged if entry.level == 30]
    assert "1 completed, 1 failed" in warning.user_message
    assert "The table failed_jobs of this run shows them" in warning.user_message

    provider.answer_with = None
    retried = {"preview": False, "job_ids": [job.id], "categories": ["PERMANENT"]}
    assert (await deployment.run("retry_failed_jobs", retried)).success
    await deployment.run("drain_embed_queue", {"linger_seconds": 0})
    assert await deployment.queue.statuses("bad") == [JobStatus.COMPLETED]


async def test_m92_the_log_of_a_drain_says_how_it_goes_every_minute(
    deployment: Deployment, provider: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embed_pipeline.defs.draining.PROGRESS_SECONDS", 0.2)
    await deployment.queue.given_jobs("ada")

    result = await deployment.run("drain_embed_queue", {"linger_seconds": 1})

    lines = [e.user_message for e in deployment.instance.all_logs(result.run_id)]
    last = [line for line in lines if "a second, ETA" in line][-1]
    assert last.startswith("1 done, 0 failed, 0 left; ")
    assert last.endswith("ETA 0 s; waiting for the limit: no, 0 s so far")


async def test_m92_the_tick_says_how_long_the_rest_takes(
    deployment: Deployment, sensor: Callable[..., SensorUnderTest]
) -> None:
    [done] = await deployment.queue.leased("done")
    deployment.queue.clock.now += A_MOMENT
    await deployment.queue.complete(done.lease)
    await deployment.queue.given_jobs("ada", "bob")
    run = dg.DagsterRun(
        job_name="drain_embed_queue", status=dg.DagsterRunStatus.STARTED, tags={DRAIN_TAG: "true"}
    )
    deployment.instance.add_run(run)

    said = (await sensor("embed_backlog").tick()).skip_message

    assert said == ("enough drains running: 1 of 2 (2 due); ETA 2 min for 2 jobs at 1 a minute")


async def test_m95_every_driver_of_a_drain_comes_from_the_resource(
    deployment: Deployment, provider: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    own = Neo4jResource.open_driver

    def counted(self: Any, connection: Any) -> Any:
        opened.append(connection)
        return own(self, connection)

    monkeypatch.setattr(Neo4jResource, "open_driver", counted)
    monkeypatch.setattr("embed_pipeline.operations.wiring.open_driver", None)
    await deployment.queue.given_jobs("ada")

    result = await deployment.run("drain_embed_queue", {"linger_seconds": 0})

    assert result.success
    # The one that asks which model is live, its own, and that of its heartbeat.
    assert len(opened) == 3
