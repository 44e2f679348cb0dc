"""What a command costs before it does anything: help, what asks nobody, a look at the queue."""

import os
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from benchmarks.plan import Plan
from benchmarks.site import DIMENSIONS, MODEL, Site, on_site
from benchmarks.table import Line, at_most
from embed_pipeline.store.connection import Connection
from tests.conftest import TestServer

COMMANDS: Final = {
    ("--help",): at_most(0.35),
    ("jobs", "cancel", "--help"): at_most(0.35),
    ("doctor", "--settings-only"): at_most(0.7),
    ("status",): at_most(0.6),
}
PROGRAM: Final = Path(sys.executable).with_name("embed-pipeline")
SETTINGS: Final = {
    "EMBED_JOB_RETENTION_DAYS": "14",
    "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
    "EMBEDDING_MODEL": MODEL,
    "EMBEDDING_PROVIDER": "mock",
}


def lines(connection: Connection, server: TestServer, plan: Plan) -> Iterable[Line]:
    """Of an empty queue: what there is to read does not grow with it (item 4)."""
    environment = {**os.environ, **SETTINGS, **server.environment}
    on_site(connection, Site.clear)
    _seconds(("init", "--change-model"), environment)
    for command, goal in COMMANDS.items():
        _seconds(command, environment)  # compiles what is not compiled yet
        seconds = [_seconds(command, environment) for _ in range(plan.rounds)]
        yield Line(
            6,
            f"`embed-pipeline {' '.join(command)}`: processor seconds",
            f"{statistics.median(seconds):.2f} s",
            seconds,
            goal,
        )


def _seconds(command: tuple[str, ...], environment: Mapping[str, str]) -> float:
    before = os.times()
    subprocess.run([PROGRAM, *command], env=environment, check=True, capture_output=True)
    after = os.times()
    spent = after.children_user + after.children_system
    return spent - before.children_user - before.children_system
