"""A cut-over through Dagster: the sensors serve both sides, the gates are checks."""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import dagster as dg
import pytest

from embed_pipeline.defs import drains
from embed_pipeline.defs.operators import UNKNOWN
from tests.acceptance.cutover.conftest import forget_cutovers
from tests.defs.conftest import Deployment, SensorUnderTest
from tests.support.dagster_results import figures, problem
from tests.support.openai_server import OpenAIServer
from tests.support.queue_harness import DIMENSIONS, MODEL

GO = {"preview": False, "model": "other-model", "dimensions": DIMENSIONS + 1, "provider": "openai"}


STEPS: dict[str, dict[str, Any]] = {
    "cutover_start": GO,
    "cutover_go": {},
    "cutover_rollback": {},
    "cutover_finish": {"force": True},
}
"""Every step that changes something, in the order of a cut-over that was given up."""


@pytest.fixture(autouse=True)
def _signals_are_somebody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drains, "stopped_by_signals", lambda *_: contextlib.nullcontext())


@pytest.fixture
async def embedded(deployment: Deployment, provider: OpenAIServer) -> AsyncIterator[Deployment]:
    """Two entities, embedded with the model of the settings."""
    for uid in ("ada", "bob"):
        await deployment.queue.put_entity(uid)
    for job in ("initialise_schema", "reconcile_embeddings"):
        figures(await deployment.run(job))
    figures(await deployment.run("drain_embed_queue", {"linger_seconds": 0}))
    yield deployment
    await forget_cutovers(deployment.queue)


def gate_reports(instance: dg.DagsterInstance, name: str) -> list[Any]:
    """What was reported about a gate, the newest first."""
    key = dg.AssetCheckKey(dg.AssetKey("embed_cutover"), name)
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=10)
    return [record.event.asset_check_evaluation for record in records]  # pyright: ignore


def checks_of(instance: dg.DagsterInstance, name: str) -> list[bool]:
    return [report.passed for report in gate_reports(instance, name)]


async def test_m99_m100_m102_the_steps_of_a_cutover_are_jobs(
    embedded: Deployment, sensor: Callable[..., SensorUnderTest]
) -> None:
    preview = figures(await embedded.run("cutover_start", {**GO, "preview": True}))
    assert (preview["planned_texts"], preview["planned_requests"]) == (2, 1)
    assert "no cut-over is under way" in problem(await embedded.run("cutover_go"))

    started = figures(await embedded.run("cutover_start", GO))
    refused = problem(await embedded.run("cutover_go"))
    tick = await sensor("embed_backlog").tick()

    assert "1 of 5 gates are red: cutover_coverage: 0.00 % of 2 entities" in refused
    assert checks_of(embedded.instance, "cutover_coverage") == [False]
    [asked] = gate_reports(embedded.instance, "cutover_questions")
    assert asked.description == "nothing is asked: the project has no questions.yaml"
    [request] = tick.run_requests
    assert request.tags["embed_pipeline/queue"] == started["queue"]
    assert request.run_config == {"ops": {"drain": {"config": {"queue": started["queue"]}}}}

    config = {"queue": started["queue"], "linger_seconds": 0}
    drained = figures(await embedded.run("drain_embed_queue", config))
    assert drained["completed"] == 2
    went = figures(await embedded.run("cutover_go"))
    assert went["live"] == f"openai other-model with {DIMENSIONS + 1} dimensions"
    assert checks_of(embedded.instance, "cutover_coverage") == [True, False]
    back = figures(await embedded.run("cutover_rollback"))
    assert back["live"] == f"openai {MODEL} with {DIMENSIONS} dimensions"
    assert "was live" in problem(await embedded.run("cutover_finish"))
    assert figures(await embedded.run("cutover_finish", {"force": True}))["entities"] == 2
    assert figures(await embedded.run("cutover_status"))["phase"] == "none"
    latest = gate_reports(embedded.instance, "cutover_coverage")[0]
    assert latest.description == "no cut-over is under way"


async def test_every_step_leaves_one_entry(embedded: Deployment) -> None:
    for step, config in STEPS.items():
        result = await embedded.run(step, config)
        shown = figures(result)
        entries = await embedded.queue.run(
            "MATCH (a) WHERE any(l IN labels(a) WHERE l STARTS WITH 'EmbedAudit')"
            " AND a.run_id = $run RETURN a.action AS action, a.actor AS actor, a.filter AS said",
            run=result.run_id,
        )
        assert [(entry["action"], entry["actor"]) for entry in entries] == [("cutover", UNKNOWN)]
        assert entries[0]["said"].startswith(step.removeprefix("cutover_"))
        if step == "cutover_start":
            drain = {"queue": shown["queue"], "linger_seconds": 0}
            figures(await embedded.run("drain_embed_queue", drain))


async def test_a_drain_of_a_queue_that_is_no_side_is_refused(embedded: Deployment) -> None:
    refused = problem(await embedded.run("drain_embed_queue", {"queue": "somebody_elses"}))

    assert "is not part of this deployment; it has default" in refused


async def test_m103_the_sensors_scan_and_recover_both_sides(
    embedded: Deployment, sensor: Callable[..., SensorUnderTest]
) -> None:
    started = figures(await embedded.run("cutover_start", GO))
    await embedded.queue.put_entity("eve")

    await sensor("reconcile_entities").tick()

    label = f"EmbedJob_{started['queue']}"
    rows = await embedded.queue.run(
        "MATCH (j) WHERE $label IN labels(j) RETURN j.entity_uid AS uid", label=label
    )
    assert sorted(row["uid"] for row in rows) == ["ada", "bob", "eve"]
