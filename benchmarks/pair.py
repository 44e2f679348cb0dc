"""Two versions side by side: ``python -m benchmarks.pair /path/to/another/checkout``.

Each drains the same entities through its own command, in turn, from a server of its own that is
started anew for every drain; both ask the same provider, which answers at once. Ratios of one run
say whether a change has cost throughput or memory. The other checkout must have been set up.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neo4j import GraphDatabase

from benchmarks.memory import MEBIBYTE, environment
from benchmarks.provider import running_provider
from embed_pipeline.devserver.config import Memory
from embed_pipeline.devserver.temporary import temporary_server
from embed_pipeline.store.connection import Connection
from tests.support.project import ROOT

ROUNDS: Final = 3
PAGE: Final = 2_000
MEMORY: Final = Memory(heap="3g", pagecache="3g")


@dataclass(frozen=True, slots=True)
class Drained:
    """What one drain took."""

    seconds: float
    cpu: float
    peak: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--dimensions", type=int, default=3_072)
    asked = parser.parse_args()
    ratios = []
    with running_provider(latency=0) as provider:
        for number in range(ROUNDS):
            found = {}
            # Whoever is second must not always be the same.
            trees = [asked.other, ROOT] if number % 2 == 0 else [ROOT, asked.other]
            for tree in trees:
                found[tree] = measure(tree, provider.base_url, asked.jobs, asked.dimensions)
                _say(tree, found[tree], asked.jobs)
            ratios.append(found[asked.other].seconds / found[ROOT].seconds)
    sys.stdout.write(f"this version against the other, jobs/s: {_spread(ratios)}\n")
    return 0


def measure(tree: Path, provider: str, jobs: int, dimensions: int) -> Drained:
    """Drain once with the command of a checkout."""
    command = str(tree / ".venv" / "bin" / "embed-pipeline")
    with temporary_server(memory=MEMORY) as server:
        connection = Connection(server.uri, server.username, server.password, "neo4j")
        env = environment(connection, provider, dimensions)
        subprocess.run([command, "init"], cwd=tree, env=env, check=True, capture_output=True)
        auth = (server.username, server.password)
        with GraphDatabase.driver(server.uri, auth=auth) as driver:
            for first in range(0, jobs, PAGE):
                driver.execute_query(
                    "UNWIND range($first, $last) AS n CREATE (:Entity {name: 'e' + n, "
                    "entityType: 'thing', observations: ['text ' + n], version: 1})",
                    first=first,
                    last=min(first + PAGE, jobs) - 1,
                )
        subprocess.run([command, "reconcile"], cwd=tree, env=env, check=True, capture_output=True)
        return _drain([command, "drain"], tree, env)


def _drain(command: list[str], tree: Path, env: dict[str, str]) -> Drained:
    began = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=tree, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{command} ended with {status}")
    return Drained(time.perf_counter() - began, _cpu(used), used.ru_maxrss * 1_024)


def _cpu(used: resource.struct_rusage) -> float:
    return used.ru_utime + used.ru_stime


def _say(tree: Path, drained: Drained, jobs: int) -> None:
    name = "this version" if tree == ROOT else "the other"
    sys.stdout.write(
        f"{name:<13} {jobs / drained.seconds:6.0f} jobs/s with the start of the process, "
        f"{drained.cpu:5.1f} CPU s, at most {drained.peak / MEBIBYTE:4.0f} MiB\n"
    )
    sys.stdout.flush()


def _spread(ratios: list[float]) -> str:
    middle = sorted(ratios)[len(ratios) // 2]
    return f"{middle:.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


if __name__ == "__main__":
    sys.exit(main())
