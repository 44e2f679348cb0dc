"""A real terminal with a shell in it, for what only happens there: Ctrl-C, a closed window."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Terminal:
    """A window of tmux, with a server of its own."""

    socket: Path

    def type(self, line: str) -> None:
        """Type a line and press Enter."""
        self._tmux("send-keys", "-t", "window", "-l", line)
        self._tmux("send-keys", "-t", "window", "Enter")

    def press(self, key: str) -> None:
        """Press a key, such as ``C-c``."""
        self._tmux("send-keys", "-t", "window", key)

    def screen(self) -> str:
        """What can be seen."""
        return self._tmux("capture-pane", "-t", "window", "-p", "-J")

    def close(self) -> None:
        """Close the window; whoever runs in it is hung up."""
        self._tmux("kill-session", "-t", "window")

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", str(self.socket), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@contextmanager
def terminal(folder: Path, environment: Mapping[str, str]) -> Iterator[Terminal]:
    """Open a terminal with a shell in ``folder``; skips the test where there is no tmux."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    # The path of a socket may have a hundred characters; pytest's folders have more.
    with tempfile.TemporaryDirectory() as place:
        socket = Path(place) / "tmux"
        server = ["tmux", "-S", str(socket), "-f", "/dev/null"]
        shell = ["bash", "--norc", "--noprofile", "-i"]
        subprocess.run(
            [*server, "new-session", "-d", "-s", "window", "-x", "200", "-y", "50", *shell],
            cwd=folder,
            env={**environment, "TERM": "screen"},
            check=True,
        )
        try:
            yield Terminal(socket)
        finally:
            subprocess.run([*server, "kill-server"], capture_output=True, check=False)
