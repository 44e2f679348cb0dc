"""Item 10: what it costs to trace a drain, against the same drain without an SDK, in turn."""

import os
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.contestants import drain
from benchmarks.crew import Crew, hired
from benchmarks.limit import OWNER
from benchmarks.plan import Plan
from benchmarks.site import Site, on_site
from benchmarks.table import Line, at_least, at_most, per_second, ratios
from embed_pipeline.store.connection import Connection
from embed_pipeline.tracing import SWITCHES, export_spans, trace_of
from tests.support.otlp_receiver import otlp_receiver

ROUNDS: Final = 15
"""More than of other things: what is to be seen is small."""
TRACED, PLAIN = "traced", "plain"


async def traced_or_not(site: Site, owner: str) -> tuple[int, float]:
    """A drain inside a trace, which is exported where the environment of the process says so."""
    export_spans()
    began = time.process_time()
    with trace_of("drain default", {}):
        done = await drain(site, owner)
    return done, time.process_time() - began


def lines(connection: Connection, plan: Plan) -> Iterator[Line]:
    """Throughput, and the processor time of the client."""
    rates: dict[str, list[float]] = {TRACED: [], PLAIN: []}
    costs: dict[str, list[float]] = {TRACED: [], PLAIN: []}
    on_site(connection, Site.prepare, plan.entities, has_index=False)
    with (
        otlp_receiver() as received,
        hired(1, connection) as plain,
        _environment(SWITCHES[0], received.endpoint),
        hired(1, connection) as traced,
    ):
        for number in range(-1, ROUNDS):
            crews = [(PLAIN, plain), (TRACED, traced)]
            for name, crew in crews if number % 2 else reversed(crews):
                rate, cost = _drained(crew, connection, plan)
                # A new process is slow at first.
                if number >= 0:
                    rates[name].append(rate)
                    costs[name].append(cost)
    spans = len(received.spans) // (ROUNDS + 1)
    yield Line(
        10,
        f"a drain that is traced ({spans} spans for {plan.entities:,} jobs), against one that is "
        "not: throughput",
        f"{per_second(rates[TRACED])} against {per_second(rates[PLAIN])}",
        ratios(rates[TRACED], rates[PLAIN]),
        at_least(0.98),
    )
    yield Line(
        10,
        "the same: processor time of the client",
        f"{_micros(costs[TRACED], plan)} against {_micros(costs[PLAIN], plan)}",
        ratios(costs[TRACED], costs[PLAIN]),
        at_most(1.02),
    )


def _drained(crew: Crew, connection: Connection, plan: Plan) -> tuple[float, float]:
    on_site(connection, Site.reset, plan.entities, jobs=True)
    shift = crew.work(traced_or_not, (OWNER,))
    [(done, cpu)] = shift.answers
    return done / shift.seconds, cpu


def _micros(costs: list[float], plan: Plan) -> str:
    middle = sorted(costs)[len(costs) // 2]
    return f"{middle / plan.entities * 1e6:.0f} µs per job"


@contextmanager
def _environment(name: str, value: Any) -> Generator[None]:
    """For the processes that are started meanwhile."""
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
