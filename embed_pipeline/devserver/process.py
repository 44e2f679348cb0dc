"""Starting a process that outlives us, finding it again, and ending it."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from embed_pipeline.devserver.errors import LocalServerError

POLL_SECONDS: Final = 0.05
LAUNCH_TIMEOUT: Final = timedelta(seconds=10)
REMAINS_TIMEOUT: Final = timedelta(seconds=10)

LAUNCH: Final = """
/bin/sh -c 'printf "%s\\n" "$$" > "$0.new" && mv "$0.new" "$0" && exec "$@"' "$@" &
"""
"""Detach, note the pid, become the program.

The process writes its own pid before it turns into the program: were it written by us, a kill
between start and note would leave a server that nobody can find. It is nobody's child, so it
leaves no zombie, and we need no handle on it.
"""


def launch(
    command: Sequence[str], *, pid_file: Path, output: Path, folder: Path, env: Mapping[str, str]
) -> int:
    """Start ``command`` detached from terminal and parent; return its pid, also in ``pid_file``.

    Raises:
        LocalServerError: it did not get as far as to write its pid.
    """
    pid_file.unlink(missing_ok=True)
    with output.open("wb") as out:
        subprocess.run(
            ["/bin/sh", "-c", LAUNCH, "sh", pid_file, *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=env,
            check=False,
            # Ctrl-C in the terminal goes to its whole session; the server gets another one.
            start_new_session=True,
        )
    deadline = time.monotonic() + LAUNCH_TIMEOUT.total_seconds()
    while (pid := read_pid(pid_file)) is None:
        if time.monotonic() > deadline:
            raise LocalServerError(
                f"could not start {command[0]}: see {output}\n"
                f"Check that {pid_file.parent} is writable and not full."
            )
        time.sleep(POLL_SECONDS)
    return pid


def read_pid(pid_file: Path) -> int | None:
    """The pid in the file; None if there is none or it is no number."""
    try:
        return int(pid_file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def find(pid_file: Path, *, argument: str) -> int | None:
    """The pid of the running process that ``pid_file`` is about, or None.

    A pid says little: after a crash or a reboot it belongs to another process. The process must
    also have ``argument`` on its command line, which a stranger cannot have by accident.
    """
    pid = read_pid(pid_file)
    return pid if pid is not None and argument in command_line(pid) else None


def command_line(pid: int) -> list[str]:
    """The arguments of a process; empty if it is gone, a zombie or another user's."""
    import psutil

    try:
        return psutil.Process(pid).cmdline()
    except (psutil.Error, ValueError, OverflowError):
        return []


def wait_for_remains(pid: int) -> None:
    """Return when a process that is ending has given back its ports and files.

    A killed process has no command line at once, but its other threads, and with them its
    listening port, live on for up to a second.
    """
    deadline = time.monotonic() + REMAINS_TIMEOUT.total_seconds()
    while _is_ending(pid) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def _is_ending(pid: int) -> bool:
    import psutil

    if command_line(pid):
        return False
    try:
        remains = psutil.Process(pid)
        # A zombie of one thread holds nothing; one that is not collected stays for ever.
        return remains.status() != psutil.STATUS_ZOMBIE or remains.num_threads() > 1
    except (psutil.Error, ValueError, OverflowError):
        return False


def running_since(pid: int) -> datetime | None:
    """When the process was started; None if it is gone."""
    import psutil

    try:
        return datetime.fromtimestamp(psutil.Process(pid).create_time(), tz=UTC)
    except psutil.Error:
        return None


def end(pid: int, *, argument: str, patience: timedelta) -> bool:
    """Ask the process to end, and kill it when it has not within ``patience``.

    Returns whether it ended by itself.
    """
    if _signal_and_wait(pid, signal.SIGTERM, argument=argument, patience=patience):
        return True
    _signal_and_wait(pid, signal.SIGKILL, argument=argument, patience=timedelta(seconds=10))
    return False


def _signal_and_wait(pid: int, number: int, *, argument: str, patience: timedelta) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return True
    deadline = time.monotonic() + patience.total_seconds()
    while argument in command_line(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    wait_for_remains(pid)
    return True
