"""What Dagster itself may do wrong: two daemons, runs left queued, a storage made by several."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.dagster_deployment import Deployment
from tests.support.project import BIN, ROOT

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


def heads(home: Path) -> dict[str, int]:
    """How many versions each database of Dagster says it has; more than one breaks it."""
    found = {}
    for file in home.rglob("*.db"):
        with sqlite3.connect(file) as database:
            rows = database.execute("SELECT version_num FROM alembic_version").fetchall()
        found[file.name] = len(rows)
    return found


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
