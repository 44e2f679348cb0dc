"""What is measured of a running deployment."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.proof.soak.verdict import Figure, Rule
from tests.support.dagster_deployment import Deployment, processes_of

MEBIBYTE = 1024 * 1024
LABELS = ("Entity", "EmbedJob", "EmbedProcessing", "EmbedPending")
PARTS = {
    "daemon": "dagster._daemon",
    "web server": "dagster_webserver",
    "code server": "--lazy-load-user-code",
}
"""The processes of Dagster that live as long as it does, by a word of their command line."""
SLACK = {"MB": 8.0, "files": 8.0, "threads": 4.0}
"""Less than this is no leak: a buffer, a pool that fills."""


@dataclass(frozen=True)
class Sampler:
    """Reads all figures of a deployment and of the processes beside it."""

    dagster: Deployment
    processes: dict[str, psutil.Process]
    data: Path | None
    """The data folder of Neo4j, where it is known."""

    def read(self) -> dict[str, float]:
        return dict(
            [*self._processes(), *self._database(), *self._files(), *self._dagster_storage()]
        )

    def _processes(self) -> Iterator[tuple[str, float]]:
        for name, process in {**self.processes, **self._parts()}.items():
            # One that has ended is missing in the table, and that is said there.
            with suppress(psutil.Error), process.oneshot():
                yield f"{name}: MB", process.memory_info().rss / MEBIBYTE
                yield f"{name}: files", process.num_fds()
                yield f"{name}: threads", process.num_threads()

    def _parts(self) -> dict[str, psutil.Process]:
        found = {}
        for pid in processes_of(self.dagster.dagster.group):
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                words = process.cmdline()
                for name, word in PARTS.items():
                    if word in words:
                        found[name] = process
        return found

    def _database(self) -> Iterator[tuple[str, float]]:
        graph = self.dagster.graph
        [row] = graph.run("CALL dbms.listConnections() YIELD connectionId RETURN count(*) AS n")
        yield "neo4j: connections", row["n"]
        rows = graph.run("SHOW TRANSACTIONS YIELD transactionId RETURN count(*) AS n")
        yield "neo4j: transactions", rows[0]["n"]
        for label in LABELS:
            [row] = graph.run(
                "MATCH (n) WHERE $label IN labels(n) RETURN count(n) AS n", label=label
            )
            yield f"nodes: {label}", row["n"]

    def _files(self) -> Iterator[tuple[str, float]]:
        if self.data is not None:
            yield "neo4j: store MB", size(self.data / "databases") / MEBIBYTE
            yield "neo4j: transaction logs MB", size(self.data / "transactions") / MEBIBYTE

    def _dagster_storage(self) -> Iterator[tuple[str, float]]:
        home = self.dagster.home
        yield "dagster: storage MB", sum(size(file) for file in home.rglob("*.db*")) / MEBIBYTE
        yield "dagster: events", rows_of(home / "history/runs/index.db", "event_logs")
        yield "dagster: ticks", rows_of(home / "schedules/schedules.db", "job_ticks")


def size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; those that vanish meanwhile do not count."""
    total = 0
    for file in [path, *path.rglob("*")] if path.is_dir() else [path]:
        with suppress(FileNotFoundError):
            total += file.stat().st_size if file.is_file() else 0
    return total


def rows_of(file: Path, table: str) -> int:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        [(count,)] = database.execute(f"SELECT count(*) FROM {table}")
    return count


def figure_of(name: str) -> Figure:
    """How a figure is judged."""
    unit = name.rpartition(": ")[2]
    if name.startswith("dagster: "):
        return Figure(name, Rule.RATE, slack=1.0 if unit == "storage MB" else 100.0)
    if unit == "transaction logs MB":
        # Grow to 256 MB, then the oldest goes.
        return Figure(name, Rule.NOTE)
    if unit == "store MB":
        return Figure(name, Rule.LEVEL, slack=32.0)
    if name.startswith("nodes: "):
        return Figure(name, Rule.LEVEL, slack=100.0)
    if unit in ("connections", "transactions"):
        return Figure(name, Rule.LEVEL, slack=8.0)
    return Figure(name, Rule.LEVEL, slack=SLACK[unit])
