"""``nohup make dev``: a hang-up takes nothing away from the drain that works, nor from the next."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from embed_pipeline.devserver import leftovers
from embed_pipeline.devserver.ports import free_port
from tests.conftest import TestServer
from tests.support.dagster_deployment import SETTINGS, Graph, polled
from tests.support.openai_server import openai_server
from tests.support.project import BIN, ROOT, Project, make_project
from tests.support.terminal import terminal

MAKE = f"make -f {ROOT}/Makefile -o .venv/.ready BIN={BIN} dev"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "project"
    folder.mkdir()
    yield folder
    for process in started_for(folder / ".embed_pipeline" / "dagster"):
        process.kill()


def started_for(home: Path) -> list[psutil.Process]:
    """What was started for this Dagster and has not ended."""
    return [p for p in psutil.process_iter() if leftovers.marked_home(p.pid) == str(home.resolve())]


@pytest.mark.proof
def test_m88_a_drain_under_nohup_make_dev_survives_a_hang_up_and_a_stop_ends_it(
    folder: Path, neo4j_server: TestServer, graph: Graph
) -> None:
    with openai_server() as provider:
        settings = {
            **SETTINGS,
            **neo4j_server.environment,
            "OPENAI_BASE_URL": provider.base_url,
            "EMBEDDING_PROFILE": "openai",
            "EMBED_JOB_STOP_GRACE_MS": "1000",
            "EMBED_PIPELINE_PORT": str(free_port()),
        }
        project = Project(make_project(folder).folder, settings)
        made = project.run("init", "--change-model")
        assert made.returncode == 0, made.stderr
        home, output = folder / ".embed_pipeline" / "dagster", folder / "nohup.out"
        with terminal(folder, project.variables()) as window:
            window.type(f"nohup {MAKE} &")
            polled(lambda: output.exists() and "✓ Running." in output.read_text(), "it runs")
            provider.gate.clear()
            graph.load(1)
            polled(graph.owners, "a drain has asked the provider")

            window.close()
        provider.gate.set()

        polled(lambda: graph.counts() == {"completed": 1}, "the drain has gone on")
        [job] = graph.jobs()
        assert job["attempts"] == 1

        provider.gate.clear()
        graph.load(1, skip=1)
        polled(graph.owners, "the next drain has asked the provider")
        [dev] = [p for p in psutil.process_iter(["cmdline"]) if is_dev(p, folder)]
        os.kill(dev.pid, signal.SIGTERM)

        polled(lambda: not started_for(home), "everything has ended")
        polled(lambda: "✓ Stopped" in output.read_text(), "it has said so")
        provider.gate.set()
    assert graph.counts() == {"completed": 1, "pending": 1}
    assert graph.owners() == set()


def is_dev(process: psutil.Process, folder: Path) -> bool:
    """Whether it is the ``embed-pipeline dev`` of this folder."""
    line = process.info["cmdline"] or []
    is_ours = "dev" in line and any(part.endswith("embed-pipeline") for part in line)
    return is_ours and process.cwd() == str(folder.resolve())
