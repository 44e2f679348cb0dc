"""What happened, as JSON lines: one file per process, read back in the order of time.

A line is written with one call and nothing is buffered, so a killed process loses at most the line
it was writing. Times are epoch milliseconds; all processes and the server share one clock.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

Event = dict[str, Any]

ASK, ANSWER, ERROR = "ask", "answer", "error"
"""Phases of a call: before it, and how it ended. A call without an end was cut short by a kill."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Log:
    """Appends to the file of one process."""

    def __init__(self, folder: Path, who: str) -> None:
        flags = os.O_APPEND | os.O_CREAT | os.O_WRONLY
        self._file = os.open(folder / f"{who}.jsonl", flags)
        self._calls = 0
        self.who = who

    def __call__(self, what: str, **facts: Any) -> None:
        line = json.dumps({"at": now_ms(), "who": self.who, "what": what, **facts})
        os.write(self._file, line.encode() + b"\n")

    def new_call(self) -> int:
        """A number that tells this call from all others of the process."""
        self._calls += 1
        return self._calls


def read_history(folder: Path) -> list[Event]:
    events = [event for path in folder.glob("*.jsonl") for event in _read(path)]
    return sorted(events, key=lambda event: event["at"])


def _read(path: Path) -> list[Event]:
    lines = path.read_text().split("\n")
    # What follows the last line break was cut off by a kill.
    return [json.loads(line) for line in lines[:-1]]
