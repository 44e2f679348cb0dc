"""Deployments that are started in a special way: after a power loss, and without recovery."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.conftest import TestServer
from tests.dagster_deployment import Deployment, deployment
from tests.openai_server import openai_server
from tests.project import make_project

Start = Callable[..., Deployment]


@pytest.fixture
def start(neo4j_server: TestServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts a deployment with these settings."""
    with ExitStack() as stack:

        def start(**environment: str) -> Deployment:
            project = make_project(tmp_path_factory.mktemp("project"))
            provider = stack.enter_context(openai_server())
            return stack.enter_context(deployment(project, neo4j_server, provider, **environment))

        yield start


def test_after_a_power_loss_the_run_that_looks_alive_blocks_nothing(start: Start) -> None:
    dagster = start(EMBED_DRAINS_AT_ONCE="1")
    with dagster.provider.holding():
        dagster.graph.load(30)
        run = dagster.wait_for_holder()
        dagster.kill()

    dagster.start()
    dagster.wait_until_completed(30)

    assert dagster.graph.embedded() == 30
    assert dagster.wait_for_run(run.id).status == "FAILURE"


def test_m4_without_recovery_its_sensor_is_off_and_the_rest_works(start: Start) -> None:
    dagster = start(EMBED_JOB_RECOVERY_INTERVAL="0")

    dagster.graph.load(10)
    dagster.wait_until_completed(10)

    assert dagster.ui.sensor("stale_leases").status == "STOPPED"
    assert dagster.ui.sensor("stale_leases").ticks == []
    assert dagster.ui.sensor("embed_backlog").status == "RUNNING"
