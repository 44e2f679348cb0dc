"""Dagster's web server, daemon and code location as one child that ends when it is told to."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Final, Protocol

from dotenv import dotenv_values

from embed_pipeline.devserver.config import HOST
from embed_pipeline.devserver.errors import LocalServerError
from embed_pipeline.devserver.files import exclusive
from embed_pipeline.devserver.leftovers import mark_of, marked_home
from embed_pipeline.devserver.ports import check_port, listener_on
from embed_pipeline.devserver.process_group import stop_group
from embed_pipeline.devserver.rotating_log import RotatingLog
from embed_pipeline.paths import ENV_FILE

START_SECONDS: Final = 180
POLL_SECONDS: Final = 0.25
LOOK_SECONDS: Final = 1
"""Between two looks at the clock and at the reader of our output."""
STEP_SECONDS: Final = 5
"""By which a clock is set back before anybody is disturbed."""
LOG_TAIL_LINES: Final = 15
LONGEST_LINE: Final = 100_000
"""A line is copied in parts of so many characters; no longer one is kept in memory."""
ALARMING: Final = re.compile(r"\b(WARNING|ERROR|CRITICAL)\b")

LOCATIONS: Final = """
{ workspaceOrError { ... on Workspace { locationEntries {
    loadStatus locationOrLoadError {
        __typename ... on PythonError { message causes { message } } } } } } }
"""


class Writable(Protocol):
    """A sink for text: a log, or a stream."""

    def write(self, text: str, /) -> object: ...


def check_ui_port(port: int) -> None:
    """Refuse to start beside another program on the same port."""
    listener = listener_on(port)
    home = marked_home(listener.pid) if listener else None
    whose = f"It is the Dagster that 'make dev' of another project started ({home}). "
    check_port(
        port,
        advice=f"{whose if home else ''}The Dagster UI wants it. Stop the other program (another "
        f"'make dev'?), or choose another port: EMBED_PIPELINE_PORT={port + 1} make dev "
        f"(or --port {port + 1}).",
    )


class DagsterProcess:
    """``dg dev`` in a process group of its own, with its output in a log file.

    A group of its own, because Ctrl-C must reach it in our order: Neo4j has to be there until
    the last run has given its leases back.
    """

    def __init__(
        self, *, project: Path, home: Path, port: int, on_alarm: Callable[[str], None]
    ) -> None:
        """Start it; warnings and errors of its log go to ``on_alarm`` too.

        Args:
            project: the folder with ``dagster.yaml`` and ``workspace.yaml``.
            home: where Dagster keeps everything it writes.
            port: of the web server.
            on_alarm: is given a line of the log; it must neither raise nor wait.
        """
        self.url = f"http://{HOST}:{port}"
        self.home = home
        self.log_file = home / "dagster.log"
        _link_configuration(project, home)
        self._environment = {**_environment(project), "DAGSTER_HOME": str(home), **mark_of(home)}
        is_ahead = _is_ahead(self.log_file)
        self._log = RotatingLog(self.log_file, on_trouble=on_alarm)
        prepare_storage(home, environment=self._environment, log=self._log, again=is_ahead)
        self._process = subprocess.Popen(
            dagster_command(project, port),
            # Not the project's folder: whatever Dagster writes stays in one place.
            cwd=home,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=_listen_to_signals,
        )
        threading.Thread(
            target=_copy, args=(self._process.stdout, self._log, on_alarm), daemon=True
        ).start()

    def wait_until_loaded(self) -> None:
        """Wait for the web server and for the code location.

        Raises:
            LocalServerError: Dagster ended, took too long, or refuses the code location.
        """
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise LocalServerError(f"Dagster ended at once.\n{self._log_tail()}")
            for location in self._locations():
                if location["loadStatus"] == "LOADED":
                    _check_loaded(location["locationOrLoadError"])
                    return
            time.sleep(POLL_SECONDS)
        raise LocalServerError(
            f"Dagster did not answer within {START_SECONDS} seconds.\n{self._log_tail()}"
        )

    def wait(self, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Wait until ``is_over`` or Dagster ends by itself; say whether it still runs.

        Meanwhile its sensors are helped over a clock that is set back.
        """
        offset = time.time() - time.monotonic()
        while self._is_running_after(LOOK_SECONDS):
            if is_over():
                return True
            before, offset = offset, time.time() - time.monotonic()
            if offset < before - STEP_SECONDS:
                self._log.write(f"the clock was set back by {before - offset:.0f} s\n")
                prepare_storage(self.home, environment=self._environment, log=self._log, again=True)
        return False

    @property
    def group(self) -> int:
        """The process group of everything that Dagster starts."""
        return self._process.pid

    def stop(self) -> None:
        """End everything that belongs to it."""
        try:
            stop_group(self.group, reap=self._process.poll)
        finally:
            self._process.wait()

    def _is_running_after(self, seconds: float) -> bool:
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def _locations(self) -> list[dict[str, Any]]:
        question = json.dumps({"query": LOCATIONS}).encode()
        request = urllib.request.Request(  # noqa: S310  an address of our own, on loopback
            f"{self.url}/graphql", data=question, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
                workspace = json.load(answer)["data"]["workspaceOrError"]
        except (OSError, ValueError):
            return []
        return workspace.get("locationEntries", [])

    def _log_tail(self) -> str:
        lines = self.log_file.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "\n".join([*lines, f"The whole log: {self.log_file}"])


def prepare_storage(
    home: Path, *, environment: Mapping[str, str], log: Writable, again: bool = False
) -> None:
    """Run ``embed_pipeline.defs.preparing`` once, however many processes ask for it.

    Where several create Dagster's storage at the same moment, its migrations may leave one that
    never opens again. ``again`` is for a clock that was set back.
    """
    with exclusive(home / "storage.lock"):
        if again or not (home / "history").exists():
            prepare = [sys.executable, "-m", "embed_pipeline.defs.preparing"]
            done = subprocess.run(
                prepare,
                cwd=home,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
            )
            log.write(done.stdout)


def dagster_command(project: Path, port: int) -> list[str]:
    """The program that starts web server, daemon and code location."""
    dg = Path(sys.executable).with_name("dg")
    return [str(dg), "dev", "-w", str(project / "workspace.yaml"), "-h", HOST, "-p", str(port)]


def _is_ahead(file: Path) -> bool:
    """Whether a file is dated in the future: the clock has been set back since."""
    return file.exists() and file.stat().st_mtime > time.time() + STEP_SECONDS


def _link_configuration(project: Path, home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    link = home / "dagster.yaml"
    link.unlink(missing_ok=True)
    link.symlink_to(project / link.name)


def _environment(project: Path) -> dict[str, str]:
    from_file = dotenv_values(project / ENV_FILE)
    return {**{name: value for name, value in from_file.items() if value}, **os.environ}


def _copy(output: IO[str], log: RotatingLog, on_alarm: Callable[[str], None]) -> None:
    with output:
        while line := output.readline(LONGEST_LINE):
            log.write(line)
            if ALARMING.search(line):
                on_alarm(line.rstrip())
    log.close()


def _listen_to_signals() -> None:
    # Started from a script in the background, we inherit "ignore" for Ctrl-C.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _check_loaded(result: dict[str, Any]) -> None:
    if result["__typename"] == "PythonError":
        causes = [cause["message"].strip() for cause in result["causes"]]
        reason = (causes or [result["message"].strip()])[-1]
        raise LocalServerError(f"Dagster cannot load the code location.\n{reason}")
