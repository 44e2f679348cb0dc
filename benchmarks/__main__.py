"""Measures everything and judges it.

``python -m benchmarks`` takes about a quarter of an hour, ``--quick`` three minutes, ``--all`` half
an hour. ``--only limit,peers`` measures parts, whichever they are. ``--write`` puts the table into
``benchmarks/results.md`` and draws docs/images/latency.svg, ``--write-costs`` puts what the steps
cost into ``benchmarks/simulation/costs.toml``. Ends with 1 if a goal is missed, or if a part could
not be measured; the other parts are measured all the same.
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
from benchmarks.simulation.measuring import cost_of_index, costs_now, costs_of
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
SLOW: Final = frozenset({"deployed", "instead", "memory"})
"""The same where it is to be quick."""


def main() -> int:
    arguments = parser().parse_args()
    plan = QUICK if arguments.quick else FULL
    began = time.monotonic()
    with temporary_server(memory=MEMORY) as server:
        limit.warm_up(_connection(server), plan)
        parts = _parts(server, plan, arguments)
        wanted = chosen(arguments, parts)
        about = machine.describe(server.status().version or "")
        took = {"start and warm up": time.monotonic() - began}
        lines = list(_measured(parts, wanted, about, took))
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


def chosen(arguments: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """The parts to measure.

    Raises:
        SystemExit: a name that is no part.
    """
    known = list(names)
    if arguments.only:
        if unknown := sorted(set(arguments.only) - set(known)):
            raise SystemExit(f"--only knows {', '.join(known)}; not {', '.join(unknown)}")
        return arguments.only
    left_out = FURTHER | SLOW if arguments.quick else FURTHER
    return [name for name in known if arguments.all or name not in left_out]


def _parts(
    server: Neo4jServer, plan: Plan, arguments: argparse.Namespace
) -> dict[str, Callable[[], Iterable[Line]]]:
    connection = _connection(server)
    known = TestServer(server.uri, server.username, server.password, server.database)
    pid = server.status().pid or 0
    nodes = instead.MANY_NODES if arguments.all else instead.NODES
    return {
        "requirements": lambda: requirements.lines(connection, plan),
        "instead": lambda: instead.lines(connection, plan, nodes=nodes),
        "peers": lambda: peers.lines(connection, plan),
        "drains": lambda: _drains(connection, pid, plan, write_costs=arguments.write_costs),
        "limit": lambda: limit.lines(connection, plan),
        "memory": lambda: memory.lines(connection),
        "long_texts": lambda: long_texts.lines(connection),
        "tracing": lambda: tracing.lines(connection, plan),
        "commands": lambda: commands.lines(connection, known, plan),
        "rivals": lambda: _rivals(connection, pid, plan),
        "deployed": lambda: deployed.lines(connection, known, pid, plan, draws=arguments.write),
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


def _rivals(connection: Connection, pid: int, plan: Plan) -> Iterable[Line]:
    """Leases that many want, and whether the steps of a drain foretell them."""
    costs, rates = costs_now(connection, pid, plan), dict[int, float]()
    for number, rate, line in rivals.measure(connection):
        rates[number] = rate
        yield line
    yield from compare.lines_of_leases(costs, rates)


def _measured(
    parts: dict[str, Callable[[], Iterable[Line]]],
    wanted: list[str],
    about: str,
    took: dict[str, float],
) -> Iterable[Line]:
    say(f"{about}\n\n{HEAD}")
    for name, measure in parts.items():
        if name not in wanted:
            continue
        began = time.monotonic()
        for line in found_by(name, measure):
            say(str(line))
            yield line
        took[name] = time.monotonic() - began


def parser() -> argparse.ArgumentParser:
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
