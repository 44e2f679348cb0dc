"""However ``embed-pipeline dev`` ends, nothing that it started goes on."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from embed_pipeline.devserver import leftovers
from embed_pipeline.devserver.ports import answers, free_port
from tests.conftest import TestServer
from tests.support.dagster_deployment import polled, processes_of
from tests.support.dagster_stand_in import FAREWELL, NOISY, STUBBORN
from tests.support.project import BIN, ROOT, Project, make_project
from tests.support.queue_harness import DIMENSIONS
from tests.support.terminal import Terminal, terminal


@dataclass(frozen=True)
class Dev:
    """A project, and what ``embed-pipeline dev`` has running for it."""

    project: Project
    port: int

    @property
    def command(self) -> str:
        """With a cheap program in the place of Dagster, but otherwise the real thing."""
        parts = [
            sys.executable,
            "-m",
            "tests.support.dev_stand_in",
            "dev",
            "--port",
            str(self.port),
        ]
        return shlex.join(parts)

    @property
    def home(self) -> Path:
        return self.project.folder / ".embed_pipeline" / "dagster"

    def started(self) -> list[psutil.Process]:
        """All processes that were started for Dagster and have not ended."""
        marked = (p for p in psutil.process_iter() if leftovers.marked_home(p.pid))
        return [p for p in marked if leftovers.marked_home(p.pid) == str(self.home.resolve())]

    def pids(self) -> list[int]:
        """The processes of ``dev`` itself."""
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            line = process.info["cmdline"] or []
            if "dev" in line and str(self.port) in line:
                found.append(process.pid)
        return found

    def start(self, **environment: str) -> tuple[subprocess.Popen[str], str]:
        """Start it without a terminal, as a script would; return what it has said, too."""
        process = subprocess.Popen(
            shlex.split(self.command),
            cwd=self.project.folder,
            env=self.project.variables(**environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        said = ""
        while "✓ Running." not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        self.wait_until_running()
        return process, said

    def wait_until_running(self) -> None:
        polled(lambda: answers(self.port), "it listens")
        polled(lambda: len(self.started()) >= 2, "the daemon has started")

    def wait_for_looks(self, pid: int, looks: int = 3) -> None:
        """Wait until ``dev`` has woken up so many times; it looks around every second."""
        process = psutil.Process(pid)
        before = process.num_ctx_switches().voluntary
        polled(
            lambda: process.num_ctx_switches().voluntary >= before + looks,
            "it has looked around since",
        )

    def assert_ended(self, *, in_order: bool = True) -> None:
        polled(lambda: not self.started() and not self.pids(), "everything has ended")
        assert not answers(self.port)
        assert (self.home / FAREWELL).exists() is in_order


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    folder = tmp_path / "project"
    folder.mkdir()
    environment = {
        "NEO4J_URI": "bolt://127.0.0.1:9",
        "NEO4J_PASSWORD": "never-asked-for",
        "EMBEDDING_PROVIDER": "mock",
        "PYTHONPATH": str(ROOT),
    }
    made = Dev(Project(make_project(folder).folder, environment), free_port())
    yield made
    for process in (*map(psutil.Process, made.pids()), *made.started()):
        process.kill()


@pytest.fixture
def window(dev: Dev) -> Iterator[Terminal]:
    with terminal(dev.project.folder, dev.project.variables()) as opened:
        yield opened


def wait_for(window: Terminal, words: str) -> None:
    try:
        polled(lambda: words in window.screen(), words)
    except TimeoutError as error:
        raise TimeoutError(f"{error}; on the screen:\n{window.screen().rstrip()}") from None


@pytest.mark.parametrize("pipe", ["", "2>&1 | tee log"], ids=["alone", "into tee"])
def test_m88_ctrl_c_in_a_terminal_ends_everything(dev: Dev, window: Terminal, pipe: str) -> None:
    window.type(f"{dev.command} {pipe}")
    dev.wait_until_running()
    wait_for(window, "✓ Running.")

    window.press("C-c")

    dev.assert_ended()


@pytest.mark.parametrize("pipe", ["", "2>&1 | tee log"], ids=["alone", "into tee"])
def test_m88_a_closed_terminal_ends_everything(dev: Dev, window: Terminal, pipe: str) -> None:
    window.type(f"{dev.command} {pipe}")
    dev.wait_until_running()
    wait_for(window, "✓ Running.")

    window.close()

    dev.assert_ended()


def test_m88_a_reader_that_has_read_enough_ends_everything(dev: Dev, window: Terminal) -> None:
    window.type(f"{dev.command} | grep --max-count=1 Running")

    wait_for(window, "✓ Running.")

    dev.assert_ended()


def test_m88_a_terminal_closed_during_the_start_leaves_nothing(dev: Dev, window: Terminal) -> None:
    window.type(dev.command)
    polled(lambda: (dev.home / "dagster.yaml").exists(), "Dagster is about to start")

    window.close()

    polled(lambda: not dev.started() and not dev.pids(), "everything has ended")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_m88_a_signal_ends_everything_that_a_script_started_in_the_background(
    dev: Dev, number: signal.Signals
) -> None:
    # A shell without job control lets what it starts in the background ignore SIGINT.
    script = f"{dev.command} > log 2>&1 & echo $!"
    shell = dev.project.run_program("/bin/sh", "-c", script)
    dev.wait_until_running()

    os.kill(int(shell.stdout), number)

    dev.assert_ended()


def test_nohup_outlives_a_closed_terminal_and_ends_when_told_to(dev: Dev, window: Terminal) -> None:
    window.type(f"nohup {dev.command} &")
    dev.wait_until_running()
    output = dev.project.folder / "nohup.out"
    polled(lambda: "✓ Running." in output.read_text(), "it runs")
    [pid] = dev.pids()

    window.close()
    os.kill(pid, signal.SIGHUP)
    dev.wait_for_looks(pid)
    assert "Stopping" not in output.read_text()
    assert not (dev.home / FAREWELL).exists()
    assert answers(dev.port)
    os.kill(pid, signal.SIGTERM)

    dev.assert_ended()
    assert "✓ Stopped" in output.read_text()


def test_a_second_ctrl_c_does_not_wait_for_what_does_not_end(dev: Dev, window: Terminal) -> None:
    window.type(f"{STUBBORN}=1 {dev.command} 2>&1 | cat")
    dev.wait_until_running()
    wait_for(window, "✓ Running.")
    [pid] = dev.pids()

    os.kill(pid, signal.SIGINT)
    wait_for(window, "▸ Stopping")
    assert dev.started()
    os.kill(pid, signal.SIGINT)

    dev.assert_ended(in_order=False)


def test_a_reader_that_stands_still_holds_up_neither_dagster_nor_its_end(dev: Dev) -> None:
    process, _ = dev.start(**{NOISY: "1"})
    log = dev.home / "dagster.log"
    # The pipe takes 64 kB, and a thousand lines wait for it.
    polled(lambda: log.stat().st_size > 1_000_000, "Dagster goes on although nobody reads")

    process.send_signal(signal.SIGTERM)

    polled(lambda: not dev.started(), "everything has ended")
    process.communicate()


@pytest.mark.parametrize("is_headless", [False, True], ids=["whole", "without its leader"])
def test_what_a_killed_start_has_left_is_stopped_by_the_next(dev: Dev, is_headless: bool) -> None:
    killed, _ = dev.start()
    [group] = {os.getpgid(process.pid) for process in dev.started()}
    killed.kill()
    killed.communicate()
    if is_headless:
        os.kill(group, signal.SIGKILL)
    assert dev.started()

    second, said = dev.start()
    assert processes_of(group) == []
    second.terminate()
    second.communicate()

    assert "▸ Stopped the Dagster of an earlier start" in said
    dev.assert_ended()


def test_the_dagster_of_another_project_is_not_touched(dev: Dev, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    running, _ = dev.start()
    [web, *_] = sorted(process.pid for process in dev.started())

    refused = Dev(Project(make_project(other).folder, dev.project.environment), dev.port)
    result = refused.project.run_program(*shlex.split(refused.command))

    assert result.returncode == 1
    assert f"port {dev.port} is taken: python" in result.stderr
    assert f"(pid {web}) listens there" in result.stderr
    assert f"'make dev' of another project started ({dev.home.resolve()})" in result.stderr
    assert len(dev.started()) == 2
    running.terminate()
    running.communicate()
    dev.assert_ended()


@pytest.mark.proof
def test_m88_ctrl_c_under_make_dev_into_tee_ends_the_real_dagster(
    dev: Dev, neo4j_server: TestServer
) -> None:
    settings = {**neo4j_server.environment, "EMBEDDING_DIMENSIONS": str(DIMENSIONS)}
    environment = {**dev.project.variables(**settings), "EMBED_PIPELINE_PORT": str(dev.port)}
    # The server is shared: the queue of an earlier test may be one of another model.
    made = dev.project.run("init", "--change-model", **settings)
    assert made.returncode == 0, made.stderr
    with terminal(dev.project.folder, environment) as window:
        make = f"make -f {ROOT}/Makefile -o .venv/.ready BIN={BIN} dev"
        window.type(f"{make} 2>&1 | tee log")
        wait_for(window, "✓ Running.")
        assert len(dev.started()) >= 3, "dg, the web server, the daemon and the code server"

        window.press("C-c")

        polled(lambda: not dev.started(), "everything has ended")
    assert not answers(dev.port)
