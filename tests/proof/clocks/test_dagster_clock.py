"""The clock of the machine that Dagster runs on is set back an hour while it works."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from neo4j import GraphDatabase

from embed_pipeline.devserver.ports import free_port
from tests.conftest import TestServer
from tests.proof.clocks.stepped_clock import HOUR, SteppedClock
from tests.support.dagster_deployment import SETTINGS, Graph
from tests.support.openai_server import OpenAIServer
from tests.support.patience import PATIENCE_SECONDS
from tests.support.project import Project, make_project

pytestmark = pytest.mark.proof
NOTICED = "the clock was set back by 3600 s"


@pytest.fixture
def machine_clock(tmp_path: Path) -> SteppedClock:
    return SteppedClock(tmp_path / "machine")


@pytest.fixture
def graph(neo4j_server: TestServer) -> Iterator[Graph]:
    auth = (neo4j_server.username, neo4j_server.password)
    with GraphDatabase.driver(neo4j_server.uri, auth=auth) as driver:
        graph = Graph(driver, neo4j_server.database)
        graph.run("MATCH (n) DETACH DELETE n")
        yield graph


@pytest.fixture
def dev(
    neo4j_server: TestServer,
    graph: Graph,
    provider: OpenAIServer,
    machine_clock: SteppedClock,
    tmp_path: Path,
) -> Iterator[Path]:
    """``embed-pipeline dev`` on a machine whose clock the test sets; the log of Dagster."""
    (tmp_path / "project").mkdir()
    project = make_project(tmp_path / "project")
    settings = {
        **SETTINGS,
        **neo4j_server.environment,
        "OPENAI_BASE_URL": provider.base_url,
        "EMBEDDING_PROFILE": "openai",
        **machine_clock.environment,
    }
    configured = Project(project.folder, settings)
    made = Project(project.folder, {**SETTINGS, **neo4j_server.environment})
    assert made.run("init", "--change-model").returncode == 0
    with (tmp_path / "dev.log").open("w") as output:
        process = subprocess.Popen(
            configured.command("dev", "--port", str(free_port())),
            cwd=configured.folder,
            env=configured.variables(),
            stdout=output,
            stderr=output,
        )
    yield configured.folder / ".embed_pipeline/dagster/dagster.log"
    process.send_signal(signal.SIGINT)
    process.wait()
    graph.run("MATCH (n) DETACH DELETE n")


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


def wait_until_completed(graph: Graph, jobs: int) -> None:
    wait_until(lambda: graph.counts() == {"completed": jobs}, f"{jobs} jobs are completed")


def test_sensors_do_not_wait_for_the_clock_to_catch_up(
    dev: Path, graph: Graph, machine_clock: SteppedClock
) -> None:
    graph.load(5)
    wait_until_completed(graph, 5)

    machine_clock.set(-HOUR)
    # Before, a tick by the old time could still do the work.
    wait_until(lambda: NOTICED in dev.read_text(), "the step was noticed")
    graph.load(5, skip=5)

    wait_until_completed(graph, 10)
