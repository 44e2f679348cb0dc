"""A small deployment at work for a while, watched."""

import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psutil

from tests.conftest import TestServer
from tests.proof.soak.sampling import Sampler, figure_of
from tests.proof.soak.verdict import Row, judge
from tests.proof.soak.writer import Writer, clean_up
from tests.support.dagster_deployment import Deployment, deployment
from tests.support.openai_server import openai_server
from tests.support.project import ROOT, make_project


@dataclass(frozen=True)
class Plan:
    """How long, how often, how much."""

    duration: timedelta
    every: timedelta = timedelta(seconds=10)
    per_second: float = 2.0
    keep: timedelta = timedelta(minutes=2)
    """How long ended jobs stay."""


@dataclass(frozen=True)
class Result:
    """What came of it."""

    rows: list[Row]
    written: int
    deleted: int
    restarts: int
    """Of the long drain."""

    @property
    def is_flat(self) -> bool:
        return not any(row.is_bad for row in self.rows)


def soak(
    plan: Plan,
    server: TestServer,
    folder: Path,
    *,
    neo4j: tuple[int, Path] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Result:
    """Let a deployment work; ``neo4j`` is the process of the server and its data folder."""
    with (
        openai_server() as provider,
        deployment(make_project(folder), server, provider) as dagster,
        LongDrain(dagster) as drain,
        Writer(dagster.graph, plan.per_second) as writer,
    ):
        pid, data = neo4j or (None, None)
        server_process = {} if pid is None else {"neo4j": psutil.Process(pid)}
        series: dict[str, list[tuple[float, float]]] = defaultdict(list)
        started, deleted = time.monotonic(), 0
        while (now := time.monotonic() - started) < plan.duration.total_seconds():
            restarts, worker = drain.restarts, drain.ensure()
            if drain.restarts != restarts:
                for name in [name for name in series if name.startswith("drain: ")]:
                    series[name].clear()
            sampler = Sampler(dagster, {"drain": worker, **server_process}, data)
            for name, value in sampler.read().items():
                series[name].append((now, value))
            deleted += clean_up(server.connection, keep=plan.keep)
            say(f"{now:6.0f} s, {writer.written} written, jobs {dagster.graph.counts()}")
            provider.requests.clear()
            provider.times.clear()
            due = started + now + plan.every.total_seconds()
            time.sleep(max(0.0, due - time.monotonic()))
        if writer.errors:
            raise writer.errors[0]
        rows = [judge(figure_of(name), series[name]) for name in sorted(series)]
        return Result(rows, writer.written, deleted, drain.restarts)


@dataclass
class LongDrain:
    """A drain that does not end when it is done, beside those that Dagster starts and ends.

    It ends when the database is out of reach for long, as on a busy machine; then there is a new
    one, and what was measured of the old one does not count.
    """

    dagster: Deployment
    restarts: int = -1
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "LongDrain":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def ensure(self) -> psutil.Process:
        """Start it if it is not there."""
        if self._process is None or self._process.poll() is not None:
            self.restarts += 1
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.support.drain_main",
                    json.dumps({"until_empty": False}),
                ],
                cwd=ROOT,
                env=self.dagster.project.variables(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        return psutil.Process(self._process.pid)
