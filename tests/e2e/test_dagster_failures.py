"""What Dagster itself may do wrong: two daemons, runs left queued, a storage made by several."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
import yaml

from tests.conftest import TestServer
from tests.support.dagster_deployment import Deployment, deployment, processes_of, worker_pid
from tests.support.openai_server import openai_server
from tests.support.project import BIN, ROOT, make_project

DRAIN = "drain_embed_queue"
WATCH = "watch_orphans"
TWO_DAEMONS = "Another SENSOR daemon is still sending heartbeats"

PREPARE_AND_USE = """
import os, sys
from pathlib import Path
import dagster as dg
from embed_pipeline.devserver.dagster_process import prepare_storage

prepare_storage(Path(os.environ["DAGSTER_HOME"]), environment=os.environ, log=sys.stderr)
with dg.DagsterInstance.get() as instance:
    instance.get_runs_count()
    instance.all_instigator_state()
    instance.report_runless_asset_event(dg.AssetMaterialization("readings"))
"""


@pytest.fixture(scope="module")
def running(
    neo4j_server: TestServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    project = make_project(tmp_path_factory.mktemp("project"))
    with openai_server() as provider, deployment(project, neo4j_server, provider) as started:
        yield started


@pytest.fixture
def dagster(running: Deployment) -> Deployment:
    """A deployment with an empty graph."""
    running.graph.wipe()
    return running


@pytest.fixture
def second_daemon(dagster: Deployment) -> Iterator[Path]:
    """Somebody starts the daemon once more, on the same instance; its log."""
    log, workspace = dagster.home / "second.log", dagster.project.folder / "workspace.yaml"
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(BIN / "dagster-daemon"), "run", "-w", str(workspace)],
            cwd=dagster.home,
            env=dagster.project.variables(DAGSTER_HOME=str(dagster.home)),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    yield log
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def daemon_of(dagster: Deployment) -> psutil.Process:
    """The process that ticks sensors and starts queued runs."""
    group = [psutil.Process(pid) for pid in processes_of(dagster.dagster.group)]
    [daemon] = [one for one in group if "dagster._daemon" in one.cmdline()]
    return daemon


def suspend_daemon(dagster: Deployment) -> None:
    """Stop it where it stands, but not inside a write: Dagster's SQLite would stay locked."""
    daemon = daemon_of(dagster)
    daemon.suspend()
    while is_locked(dagster.home):
        daemon.resume()
        time.sleep(0.05)
        daemon.suspend()


def is_locked(home: Path) -> bool:
    """Say whether somebody is writing to a database of Dagster."""
    for file in home.rglob("*.db"):
        with closing(sqlite3.connect(file, timeout=0)) as database:
            try:
                database.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            database.rollback()
    return False


def heads(home: Path) -> dict[str, int]:
    """How many versions each database of Dagster says it has; more than one breaks it."""
    found = {}
    for file in home.rglob("*.db"):
        with sqlite3.connect(file) as database:
            rows = database.execute("SELECT version_num FROM alembic_version").fetchall()
        found[file.name] = len(rows)
    return found


def test_a_drain_is_one_process_so_there_is_no_step_to_kill_apart_from_it(
    dagster: Deployment,
) -> None:
    with dagster.provider.holding():
        dagster.graph.load(5)
        worker = psutil.Process(worker_pid(dagster.wait_for_holder()))
        children = [" ".join(child.cmdline()) for child in worker.children(recursive=True)]

    # Only those that copy its output, and look whether it is still there.
    assert [line for line in children if "compute_logs" not in line and WATCH not in line] == []

    dagster.wait_until_completed(5)


@pytest.mark.proof
def test_m45_with_two_daemons_each_job_is_still_done_once(
    dagster: Deployment, second_daemon: Path
) -> None:
    dagster.wait_until(
        lambda: TWO_DAEMONS in second_daemon.read_text(), "Dagster has noticed two daemons"
    )

    dagster.graph.load(40)
    dagster.wait_until_completed(40)
    # What the second one has started must not die with it.
    dagster.wait_until_idle()

    assert dagster.graph.embedded() == 40
    assert {job["attempts"] for job in dagster.graph.jobs()} == {1}
    assert {job["fence"] for job in dagster.graph.jobs()} == {1}


def test_i15_a_drain_that_a_power_loss_left_queued_is_started_afterwards(
    dagster: Deployment,
) -> None:
    dagster.wait_until_idle()
    suspend_daemon(dagster)
    queued = dagster.ui.launch(DRAIN)
    dagster.graph.load(20)
    assert dagster.ui.run(queued).status == "QUEUED"

    dagster.kill()
    dagster.start(EMBED_DRAINS_AT_ONCE="1")
    dagster.wait_until_completed(20)

    assert dagster.wait_for_run(queued).status == "SUCCESS"


def test_i15_every_run_ends_some_day_and_gives_its_place_back() -> None:
    monitoring = yaml.safe_load((ROOT / "dagster.yaml").read_text())["run_monitoring"]

    assert monitoring["enabled"]
    assert monitoring["max_runtime_seconds"] > 0
    assert monitoring["start_timeout_seconds"] > 0
    assert monitoring["cancel_timeout_seconds"] > 0


def test_a_storage_that_three_processes_want_at_once_is_made_once(tmp_path: Path) -> None:
    shutil.copy(ROOT / "dagster.yaml", tmp_path)
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path)}
    command = [sys.executable, "-c", PREPARE_AND_USE]

    users = [
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    errors = [user.communicate()[1] for user in users]

    assert [user.returncode for user in users] == [0, 0, 0], errors
    assert set(heads(tmp_path).values()) == {1}
