"""The whole deployment at work: nothing is done by hand but what an operator would do."""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.conftest import TestServer
from tests.dagster_deployment import Deployment, deployment, worker_pid
from tests.dagster_graphql import Check
from tests.openai_server import OpenAIServer, openai_server
from tests.project import make_project

DRAIN = "drain_embed_queue"
METRICS = "embed_queue_metrics"
TICKS = 10


@pytest.fixture(scope="module")
def running(
    neo4j_server: TestServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    project = make_project(tmp_path_factory.mktemp("project"))
    with openai_server() as provider, deployment(project, neo4j_server, provider) as started:
        yield started


@pytest.fixture
def dagster(running: Deployment) -> Deployment:
    """A deployment with nothing to do."""
    running.graph.wipe()
    running.wait_until_idle()
    return running


@pytest.fixture
def provider(dagster: Deployment) -> OpenAIServer:
    return dagster.provider


def test_a_graph_written_by_others_is_embedded_and_everything_is_seen(dagster: Deployment) -> None:
    since = time.time()

    def measured() -> list[int]:
        """How many were completed, from the first measurement to the last."""
        points = dagster.ui.materializations(METRICS)
        return [point.metadata["completed"] for point in reversed(points) if point.at > since]

    dagster.graph.load(30)
    dagster.wait_until(lambda: measured()[-1:] == [30], "the metrics say 30 completed")
    dagster.graph.load(10, skip=30)
    dagster.wait_until(lambda: measured()[-1:] == [40], "the metrics say 40 completed")

    assert dagster.graph.counts() == {"completed": 40}
    assert dagster.graph.embedded() == 40
    assert len(measured()) >= 3
    assert measured() == sorted(measured())
    drains = [run for run in dagster.ui.runs(DRAIN) if run.created > since]
    assert {run.tags.get("dagster/sensor_name") for run in drains} == {"embed_backlog"}


def test_all_checks_pass_when_all_is_well(dagster: Deployment) -> None:
    dagster.graph.load(5)
    dagster.wait_until_completed(5)

    def checks() -> dict[str, Check]:
        found = [dagster.ui.checks(asset) for asset in dagster.ui.assets()]
        return {name: check for checks in found for name, check in checks.items()}

    dagster.wait_until(
        lambda: all(check.passed for check in checks().values()), "all checks pass"
    )
    assert {"queue_open", "recoveries_ran", "coverage_above_floor"} <= checks().keys()


def test_an_idle_deployment_starts_no_drains_and_still_measures(dagster: Deployment) -> None:
    dagster.graph.load(5)
    dagster.wait_until_completed(5)
    dagster.wait_until_idle()
    drains = dagster.ui.runs(DRAIN)
    since = dagster.ui.sensor("embed_backlog").ticks[0].at
    measured = len(dagster.ui.materializations(METRICS))

    def later_ticks() -> list:
        ticks = dagster.ui.sensor("embed_backlog", ticks=TICKS, after=since).ticks
        return ticks if len(ticks) == TICKS else []

    ticks = dagster.wait_until(later_ticks, f"the sensor has ticked {TICKS} times")

    assert {tick.status for tick in ticks} == {"SKIPPED"}
    assert dagster.ui.runs(DRAIN) == drains
    assert len(dagster.ui.materializations(METRICS)) >= measured + 3


def test_jobs_of_a_killed_run_worker_complete_with_nothing_done_by_hand(
    dagster: Deployment, provider: OpenAIServer
) -> None:
    with provider.holding():
        dagster.graph.load(40)
        run = dagster.wait_for_holder()
        os.kill(worker_pid(run), signal.SIGKILL)

    dagster.wait_until_completed(40)

    assert dagster.graph.embedded() == 40
    assert dagster.wait_for_run(run.id).status == "FAILURE"


def test_m49_a_terminated_drain_leaves_nothing_owned_and_the_next_one_goes_on(
    dagster: Deployment, provider: OpenAIServer
) -> None:
    slow = {"jobs_per_request": 5, "requests_at_once": 2, "linger_seconds": 120}
    with provider.holding():
        run_id = dagster.ui.launch(DRAIN, {"ops": {"drain": {"config": slow}}})
        dagster.wait_for_run(run_id, "STARTED")
        dagster.graph.load(40)
        assert dagster.wait_for_holder().id == run_id
        dagster.work("pause_queue")
        dagster.ui.terminate(run_id)
        dagster.wait_until(
            lambda: dagster.graph.counts() == {"processing": 10, "pending": 30},
            "all but the requests in flight is given back",
        )
    ended = dagster.wait_for_run(run_id)

    assert ended.status == "CANCELED"
    assert dagster.graph.owners() == set()
    assert dagster.graph.counts() == {"completed": 10, "pending": 30}
    given_back = [job for job in dagster.graph.jobs() if job["status"] == "pending"]
    assert {job["attempts"] for job in given_back} == {0}

    dagster.work("resume_queue")
    dagster.wait_until_completed(40)
    assert dagster.graph.embedded() == 40


def test_a_refused_key_fails_no_job_and_work_goes_on_when_it_is_mended(
    dagster: Deployment, provider: OpenAIServer
) -> None:
    known = {run.id for run in dagster.ui.runs(DRAIN)}
    right, provider.key = provider.key, "another-key"
    try:
        dagster.graph.load(20)
        dagster.wait_until(lambda: dagster.graph.breaker() == "open", "the breaker is open")
        drains = [run for run in dagster.ui.runs(DRAIN) if run.id not in known]
        failed = dagster.wait_for_run(drains[-1].id)
        dagster.wait_until(
            lambda: "breaker open since" in dagster.latest_skip_reason("embed_backlog"),
            "the sensor says why nothing is started",
        )
    finally:
        provider.key = right

    assert dagster.graph.counts() == {"pending": 20}
    assert failed.status == "FAILURE"
    [error] = dagster.ui.errors(failed.id)
    assert "invalid_api_key" in error
    assert right not in error

    dagster.work("resume_queue", {"ops": {"resume_queue": {"config": {"close_breaker": True}}}})
    dagster.wait_until_completed(20)
    assert dagster.graph.embedded() == 20
