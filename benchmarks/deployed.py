"""Items 5 to 7: a whole deployment, at rest and at work."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from benchmarks import latency
from benchmarks.contestants import write
from benchmarks.crew import hired
from benchmarks.latency import LATENCY, SETTINGS
from benchmarks.plan import Plan
from benchmarks.provider import running_provider
from benchmarks.site import Site, on_site
from benchmarks.table import Line, at_least, at_most, per_second
from benchmarks.usage import Usage
from embed_pipeline.defs.jobs import recover_stale_leases
from embed_pipeline.defs.runs import DRAIN_JOB
from embed_pipeline.store.connection import Connection
from tests.conftest import TestServer
from tests.proof.soak.sampling import rows_of, size
from tests.support.dagster_deployment import (
    WORKER_TAG,
    Deployment,
    deployment,
    worker_pid,
)
from tests.support.project import ROOT, make_project

IDLE_SECONDS: Final = 60
"""That a deployment is watched doing nothing."""
JOBS: Final = 50_000
"""As many vectors are written without a queue, to compare: the index gets slower as it grows."""
WRITERS: Final = 4
MEBIBYTE: Final = 2**20
DAY: Final = 86_400
FLAT: Final = at_most(1.2)
UNATTENDED: Final = at_least(0.5)
SOME_TICKS: Final = 10
NEEDED: Final = {"EMBED_JOB_RETENTION_DAYS": "14", "EMBEDDING_PROVIDER": "mock"}
"""What the code location needs to load without a warning."""
AT_REST: Final = {
    "dagster": "processor seconds of all processes of Dagster",
    "ticks": "ticks of sensors and schedules",
    "queries": "transactions of Neo4j",
}
GOALS: Final = {"dagster": at_most(5), "ticks": at_most(16), "queries": at_most(120)}
"""Queries are many by design: a look a second keeps the way from rest short, and each is two reads
of the count store. docs/performance.md says what they cost."""


def lines(
    connection: Connection, server: TestServer, neo4j_pid: int, plan: Plan, *, draws: bool
) -> Iterator[Line]:
    """Start Dagster as its users do, and look at it."""
    yield from _imports(plan.rounds)
    with (
        tempfile.TemporaryDirectory(prefix="benchmark-dagster-") as folder,
        running_provider(latency=LATENCY) as provider,
        deployment(make_project(Path(folder)), server, provider, **SETTINGS) as dagster,
    ):
        # The run of every start costs as much as a minute at rest.
        dagster.wait_until(lambda: dagster.ui.runs(recover_stale_leases.name), "the first recovery")
        dagster.wait_until_idle()
        yield from _at_rest(dagster, neo4j_pid)
        waits = latency.without_standby(connection, dagster)
        yield from latency.lines(waits)
        yield from _ticks_and_runs(dagster)
        yield from _all_at_once(connection, dagster)
        on_site(connection, Site.prepare, 0, has_index=True)
        on_standby, cost = latency.on_standby(connection, dagster, neo4j_pid)
        yield from latency.lines({latency.ON_STANDBY: on_standby})
        yield from cost.lines()
        if draws:
            latency.draw({**waits, latency.ON_STANDBY: on_standby})


def _imports(rounds: int) -> Iterator[Line]:
    """What a new process pays before it can do anything; every run is one."""

    def seconds(module: str) -> float:
        began = time.perf_counter()
        command = [sys.executable, "-c", f"import {module}"]
        subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, **NEEDED})
        return time.perf_counter() - began

    pairs = [(seconds("embed_pipeline.definitions"), seconds("dagster")) for _ in range(rounds)]
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    yield Line(
        6,
        "import of the code location, against `import dagster` alone",
        f"{ours:.2f} s against {theirs:.2f} s",
        [one / other for one, other in pairs],
    )


def _at_rest(dagster: Deployment, neo4j_pid: int) -> Iterator[Line]:
    before = _usage(dagster, neo4j_pid)
    time.sleep(IDLE_SECONDS)
    after = _usage(dagster, neo4j_pid)
    used = {name: after[name] - before[name] for name in before}
    share = 60 / IDLE_SECONDS
    per_day = DAY / IDLE_SECONDS
    for name, what in AT_REST.items():
        each = used[name] * share
        yield Line(6, f"at rest, in a minute: {what}", f"{each:.1f}", [each], GOALS[name])
    yield Line(
        6, "at rest, in a minute: processor seconds of Neo4j", f"{used['neo4j'] * share:.1f}"
    )
    yield Line(
        6,
        "at rest, per day: growth of Dagster's storage and events, before pruning",
        f"{used['bytes'] * per_day / MEBIBYTE:.0f} MiB, {used['events'] * per_day:,.0f} events",
    )


def _usage(dagster: Deployment, neo4j_pid: int) -> dict[str, float]:
    home = dagster.home
    used = Usage.of(dagster, neo4j_pid)
    return {
        "dagster": used.dagster,
        "neo4j": used.neo4j,
        "queries": _queries(dagster),
        "ticks": rows_of(home / "schedules/schedules.db", "job_ticks"),
        "bytes": sum(size(file) for file in home.rglob("*.db*")),
        "events": rows_of(home / "history/runs/index.db", "event_logs"),
    }


def _queries(dagster: Deployment) -> int:
    """Transactions that the server has begun, by the number of the newest."""
    [row] = dagster.graph.run(
        "SHOW TRANSACTIONS YIELD transactionId RETURN max(transactionId) AS newest"
    )
    return int(row["newest"].rpartition("-")[2])


def _ticks_and_runs(dagster: Deployment) -> Iterator[Line]:
    """What the daemon needs to look, and to start a drain."""
    # Not of embed_backlog: at rest its ticks last as long as they watch.
    ticks = dagster.ui.sensor("queue_metrics", ticks=SOME_TICKS).ticks
    seconds = [tick.ended - tick.at for tick in ticks if tick.ended and not tick.run_ids]
    yield Line(6, "a tick of the sensor queue_metrics", _median(seconds))
    runs = [run for run in dagster.ui.runs(DRAIN_JOB) if run.started]
    seconds = [run.started - run.created for run in runs if run.started]
    yield Line(6, "a drain, from the request of its run to its first step", _median(seconds))


def _median(seconds: Sequence[float]) -> str:
    low, high = min(seconds), max(seconds)
    return f"median {statistics.median(seconds):.2f} s ({low:.2f}–{high:.2f})"


def _all_at_once(connection: Connection, dagster: Deployment) -> Iterator[Line]:
    """A large backlog, from the moment it may be worked on to its last completion."""
    on_site(connection, _pause)
    on_site(connection, Site.prepare, JOBS, has_index=True)
    limit = _limit(connection)
    # With an index of its own: what is taken out of one stays in its files, and takes time.
    on_site(connection, Site.prepare, JOBS, has_index=True)
    on_site(connection, Site.reset, JOBS, jobs=True)
    dagster.wait_until_idle()
    on_site(connection, _resume)
    began = time.monotonic()
    memory, looks = _MemoryOfDrains(dagster), list[tuple[float, int]]()

    def is_done() -> bool:
        done = _completed(dagster)
        looks.append((time.monotonic(), done))
        memory.look(done / JOBS)
        return done >= JOBS

    dagster.wait_until(is_done, "the backlog is done", seconds=20 * 60)
    seconds = looks[-1][0] - began
    at_work, rest = rate_at_work(looks), JOBS / limit
    runs = len([run for run in dagster.ui.runs() if run.created >= time.time() - seconds - 5])
    on_site(connection, Site.clear)
    asked = JOBS / 2048 * LATENCY
    yield Line(
        7,
        f"{JOBS:,} jobs through Dagster ({runs} runs), against plain writes by 4 processes;"
        " with a vector index",
        f"{seconds:.0f} s ({per_second([JOBS / seconds])}) against {limit:.0f} s; requests took"
        f" {asked:.1f} s in all; {max(0.0, 1 - (limit + asked) / seconds):.0%} is neither",
        [limit / seconds],
        UNATTENDED,
    )
    yield Line(
        7,
        "the same from the first completion on, without tick, queue of runs and new processes",
        f"{per_second([at_work])} against {per_second([rest])}",
        [at_work / rest],
    )
    early, late = memory.most
    yield Line(
        4,
        f"memory of a drain, in the last quarter of {JOBS:,} jobs, against the second",
        f"{late / MEBIBYTE:.0f} MiB against {early / MEBIBYTE:.0f} MiB",
        [late / early],
        FLAT,
    )


def rate_at_work(looks: Sequence[tuple[float, int]]) -> float:
    """Jobs per second from the first look that found something done to the last."""
    first, last = next(look for look in looks if look[1]), looks[-1]
    return (last[1] - first[1]) / (last[0] - first[0])


class _MemoryOfDrains:
    """The most memory that a drain has had, by how much was done."""

    def __init__(self, dagster: Deployment) -> None:
        self._dagster = dagster
        self._workers: list[int] = []
        self._seen: list[tuple[float, int]] = []

    def look(self, done: float) -> None:
        """Look at the drains that are under way; they are known as soon as something is done."""
        if done and not self._workers:
            runs = [run for run in self._dagster.ui.runs() if not run.is_over]
            self._workers = [worker_pid(run) for run in runs if WORKER_TAG in run.tags]
        for pid in self._workers:
            with suppress(psutil.Error):
                self._seen.append((done, psutil.Process(pid).memory_info().rss))

    @property
    def most(self) -> tuple[int, int]:
        """In the second and in the last quarter of the work; the first one fills the caches."""

        def between(low: float, high: float) -> int:
            return max(size for done, size in self._seen if low <= done <= high)

        return between(0.25, 0.5), between(0.75, 1.0)


async def _pause(site: Site) -> None:
    await site.queue.switch.pause(by="benchmark")


def _limit(connection: Connection) -> float:
    """Seconds that plain writes take for as many vectors as there are jobs."""
    with hired(WRITERS, connection) as crew:
        share = JOBS // WRITERS
        parts = [(n * share, (n + 1) * share) for n in range(WRITERS)]
        return crew.work(write, *parts).seconds


async def _resume(site: Site) -> None:
    await site.queue.switch.resume()


def _completed(dagster: Deployment) -> int:
    [row] = dagster.graph.run("MATCH (j:EmbedCompleted) RETURN count(j) AS jobs")
    return row["jobs"]
