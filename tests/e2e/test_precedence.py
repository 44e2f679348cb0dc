"""The environment wins over ``.env``, whichever command starts Dagster."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from embed_pipeline.devserver.ports import free_port
from tests.conftest import TestServer
from tests.support.dagster_deployment import polled
from tests.support.dagster_graphql import LOCATION, DagsterGraphQL
from tests.support.patience import PATIENCE_SECONDS
from tests.support.project import BIN, Project, make_project
from tests.support.queue_harness import DIMENSIONS, Neo4jUnderTest

SENSOR = """
query($sensor: SensorSelector!) { sensorOrError(sensorSelector: $sensor) {
    ... on Sensor { minIntervalSeconds } } }
"""
SECRET = "sk-hunter2-hunter2-hunter2"
IN_FILE = {
    "EMBED_METRICS_INTERVAL": "90000",
    "EMBED_RECONCILE_INTERVAL": "70000",
    "OPENAI_API_KEY": SECRET,
}
IN_ENVIRONMENT = {
    "EMBED_METRICS_INTERVAL": "30000",
    "OPENAI_API_KEY": f"{SECRET}-too",
    "EMBEDDING_PROVIDER": "mock",
    "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
}
ROUNDED_OFF = 2
"""Seconds that the sensors take off their intervals."""


@dataclass(frozen=True)
class Started:
    """A Dagster that somebody has started, and what it has said."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def interval(self, sensor: str) -> int | None:
        """Seconds between two ticks, as the loaded definitions have it; None before that."""
        try:
            selector = {**LOCATION, "sensorName": sensor}
            answer = DagsterGraphQL(self.url).ask(SENSOR, sensor=selector)
        except (OSError, ValueError):
            assert self.process.poll() is None, self.log.read_text()
            return None
        return answer["sensorOrError"].get("minIntervalSeconds")


@contextmanager
def started(project: Project, name: str, *command: str, **environment: str) -> Iterator[Started]:
    port, log = free_port(), project.folder / f"{name.replace(' ', '-')}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--port", str(port)],
            cwd=project.folder,
            env=project.variables(**environment),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Started(f"http://127.0.0.1:{port}", process, log)
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=PATIENCE_SECONDS)


WAYS = {
    "dg dev": ("dg", "dev", "-w", "workspace.yaml"),
    "dagster dev": ("dagster", "dev", "-w", "workspace.yaml"),
    "embed-pipeline dev": ("embed-pipeline", "dev"),
}


@pytest.mark.parametrize(
    "names", [["dg dev"], pytest.param(list(WAYS), marks=pytest.mark.proof)], ids=["dg dev", "all"]
)
async def test_m142_the_environment_wins_over_env_under_every_way_to_start(
    queue: Neo4jUnderTest, neo4j_server: TestServer, tmp_path: Path, names: list[str]
) -> None:
    project = make_project(tmp_path)
    with (tmp_path / ".env").open("a") as file:
        file.writelines(f"{name}={value}\n" for name, value in IN_FILE.items())
    environment = {**neo4j_server.environment, **IN_ENVIRONMENT}
    ways = {name: (str(BIN / WAYS[name][0]), *WAYS[name][1:]) for name in names}

    with ExitStack() as stack:
        running = {
            name: stack.enter_context(started(project, name, *command, **environment))
            for name, command in ways.items()
        }
        found = {
            name: polled(lambda way=way: way.interval("queue_metrics"), f"{name} is loaded")
            for name, way in running.items()
        }
        only_in_file = {name: way.interval("reconcile_entities") for name, way in running.items()}

    assert found == dict.fromkeys(ways, 30 - ROUNDED_OFF)
    assert only_in_file == dict.fromkeys(ways, 70 - ROUNDED_OFF)
    for way in running.values():
        said = way.log.read_text()
        for name in ("EMBED_METRICS_INTERVAL", "OPENAI_API_KEY"):
            assert f"{name} is set in the environment and, to another value, in .env" in said
        assert "EMBED_RECONCILE_INTERVAL is set" not in said
        assert SECRET not in said
