"""What a command costs before it does anything: help, and what asks nobody."""

import os
import statistics
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from benchmarks.plan import Plan
from benchmarks.table import Line, at_most

COMMANDS: Final = {
    ("--help",): at_most(0.4),
    ("jobs", "cancel", "--help"): at_most(0.4),
    ("doctor", "--settings-only"): at_most(0.7),
}
PROGRAM: Final = Path(sys.executable).with_name("embed-pipeline")


def lines(plan: Plan) -> Iterable[Line]:
    for command, goal in COMMANDS.items():
        _seconds(command)  # compiles what is not compiled yet
        seconds = [_seconds(command) for _ in range(plan.rounds)]
        yield Line(
            6,
            f"`embed-pipeline {' '.join(command)}`: processor seconds",
            f"{statistics.median(seconds):.2f} s",
            seconds,
            goal,
        )


def _seconds(command: tuple[str, ...]) -> float:
    before = os.times()
    environment = {**os.environ, "EMBED_JOB_RETENTION_DAYS": "14"}
    subprocess.run([PROGRAM, *command], env=environment, check=True, capture_output=True)
    after = os.times()
    spent = after.children_user + after.children_system
    return spent - before.children_user - before.children_system
