"""Measures everything and judges it.

``python -m benchmarks`` takes about a quarter of an hour, ``--quick`` three minutes, ``--all`` ten
minutes more. ``--only limit,peers`` measures a part, ``--write`` puts the table into
``benchmarks/results.md``, ``--write-costs`` what the steps cost into
``benchmarks/simulation/costs.toml``. Ends with 1 if a goal is missed, or if a part could not be
measured; the other parts are measured all the same.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks import (
    commands,
    deployed,
    instead,
    limit,
    long_texts,
    machine,
    memory,
    peers,
    requirements,
    rivals,
    rounds,
    scaling,
    tracing,
    where,
)
from benchmarks.plan import FULL, QUICK, Plan
from benchmarks.simulation import compare
from benchmarks.simulation.costs import FILE
from benchmarks.simulation.measuring import cost_of_index, costs_of
from benchmarks.table import HEAD, Line, found_by, verdict
from embed_pipeline.devserver.config import Memory
from embed_pipeline.devserver.neo4j_server import Neo4jServer
from embed_pipeline.devserver.temporary import temporary_server
from embed_pipeline.store.connection import Connection
from tests.conftest import TestServer

RESULTS: Final = Path(__file__).with_name("results.md")
MEMORY: Final = Memory(heap="3g", pagecache="3g")
FURTHER: Final = frozenset({"long_texts", "rivals", "tracing"})
"""Measured when somebody asks for it: the rest takes a quarter of an hour."""


def main() -> int:
    arguments = _parser().parse_args()
    plan = QUICK if arguments.quick else FULL
    began = time.monotonic()
    with temporary_server(memory=MEMORY) as server:
        limit.warm_up(_connection(server), plan)
        parts = _parts(server, plan, write_costs=arguments.write_costs)
        about = machine.describe(server.status().version or "")
        took = {"start and warm up": time.monotonic() - began}
        usual = [name for name in parts if arguments.all or name not in FURTHER]
        lines = list(_measured(parts, arguments.only or usual, about, took))
        lines.sort(key=lambda line: line.item)
    met, goals = verdict(lines)
    minutes = (time.monotonic() - began) / 60
    each = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in took.items())
    ending = f"measured in {minutes:.1f} minutes ({each})\n\n{met} of {goals} goals met"
    say(f"\n{ending}")
    if arguments.write:
        RESULTS.write_text(_document(about, lines, ending), encoding="utf-8")
    return 0 if met == goals else 1


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _parts(
    server: Neo4jServer, plan: Plan, *, write_costs: bool
) -> dict[str, Callable[[], Iterable[Line]]]:
    connection = _connection(server)
    known = TestServer(server.uri, server.username, server.password, server.database)
    pid = server.status().pid or 0
    return {
        "requirements": lambda: requirements.lines(connection, plan),
        "instead": lambda: instead.lines(connection, plan),
        "peers": lambda: peers.lines(connection, plan),
        "drains": lambda: _drains(connection, pid, plan, write_costs=write_costs),
        "limit": lambda: limit.lines(connection, plan),
        "memory": lambda: memory.lines(connection, plan),
        "long_texts": lambda: long_texts.lines(connection),
        "tracing": lambda: tracing.lines(connection, plan),
        "commands": lambda: commands.lines(plan),
        "rivals": lambda: rivals.lines(connection),
        "deployed": lambda: deployed.lines(connection, known, pid, plan),
        # Last, because it leaves a million jobs, and deleting them takes longer than measuring.
        "scaling": lambda: scaling.lines(connection, plan),
    }


def _connection(server: Neo4jServer) -> Connection:
    return Connection(server.uri, server.username, server.password, server.database)


def _drains(connection: Connection, pid: int, plan: Plan, *, write_costs: bool) -> Iterable[Line]:
    """What a drain costs and reaches, and whether the one foretells the other."""
    found = rounds.measure(connection, pid, plan)
    large = where.mean([each.large for each in found])
    small = where.mean([each.small for each in found])
    start = sum((each.start for each in found), where.Spent()) * (1 / len(found))
    costs = costs_of(large, small, start)
    yield from rounds.lines(found)
    yield from where.lines(large)
    yield from compare.lines(costs, found, plan.entities)
    if write_costs:
        index = cost_of_index(connection, pid, plan, large)
        FILE.write_text(replace(costs, index=index).written(), encoding="utf-8")


def _measured(
    parts: dict[str, Callable[[], Iterable[Line]]],
    wanted: list[str],
    about: str,
    took: dict[str, float],
) -> Iterable[Line]:
    say(f"{about}\n\n{HEAD}")
    if unknown := set(wanted) - set(parts):
        raise SystemExit(f"--only knows {', '.join(parts)}; not {', '.join(sorted(unknown))}")
    for name, measure in parts.items():
        if name not in wanted:
            continue
        began = time.monotonic()
        for line in found_by(name, measure):
            say(str(line))
            yield line
        took[name] = time.monotonic() - began


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", type=lambda text: text.split(","))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--write-costs", action="store_true")
    return parser


def _document(about: str, lines: list[Line], ending: str) -> str:
    day = datetime.now(tz=UTC).date()
    rows = "\n".join(map(str, lines))
    return (
        "# Results\n\nWritten by `make bench`; docs/performance.md says what they mean.\n\n"
        f"{day}, {about}.\n\n{HEAD}\n{rows}\n\n{ending}\n"
    )


if __name__ == "__main__":
    raise SystemExit(main())
