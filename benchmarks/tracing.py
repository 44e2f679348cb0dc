"""Item 10: what it costs to trace a drain.

Judged by itself, the processor time of making and exporting as many spans as a drain makes, against
that of the drain: the difference of two whole drains is smaller than what two drains differ by.
"""

import os
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import trace

from benchmarks.contestants import drain
from benchmarks.crew import Crew, hired
from benchmarks.limit import OWNER
from benchmarks.plan import Plan
from benchmarks.site import Site, on_site
from benchmarks.table import Line, at_most, per_second, ratios
from embed_pipeline.store.connection import Connection
from embed_pipeline.tracing import SWITCHES, call, export_spans, trace_of
from tests.support.otlp_receiver import otlp_receiver

TRACED, PLAIN = "traced", "plain"
BURSTS: Final = 10
SHARE: Final = at_most(0.02)
ATTRIBUTES: Final = {"db.system.name": "neo4j", "db.namespace": "neo4j"}


async def traced_or_not(site: Site, owner: str) -> tuple[int, float]:
    """A drain inside a trace, which is exported where the environment of the process says so."""
    export_spans()
    began = time.process_time()
    with trace_of("drain default", {}):
        done = await drain(site, owner)
    return done, time.process_time() - began


async def only_spans(_: Site, spans: int) -> list[float]:
    """Processor seconds of as many spans, exported at once and not every five seconds."""
    provider: Any = trace.get_tracer_provider()
    provider.force_flush()
    took = []
    for _burst in range(BURSTS):
        began = time.process_time()
        with trace_of("drain default", {}):
            for _call in range(spans - 1):
                with call("transaction", ATTRIBUTES):
                    pass
        provider.force_flush()
        took.append(time.process_time() - began)
    return took


def lines(connection: Connection, plan: Plan) -> Iterator[Line]:
    """The spans alone, and for comparison whole drains with and without them."""
    rates: dict[str, list[float]] = {TRACED: [], PLAIN: []}
    costs: dict[str, list[float]] = {TRACED: [], PLAIN: []}
    on_site(connection, Site.prepare, plan.entities, has_index=False)
    with (
        otlp_receiver() as received,
        hired(1, connection) as plain,
        _environment(SWITCHES[0], received.endpoint),
        hired(1, connection) as traced,
    ):
        for number in range(-1, plan.rounds):
            crews = [(PLAIN, plain), (TRACED, traced)]
            for name, crew in crews if number % 2 else reversed(crews):
                rate, cost = _drained(crew, connection, plan)
                # A new process is slow at first.
                if number >= 0:
                    rates[name].append(rate)
                    costs[name].append(cost)
        # What was not exported yet belongs to the last drain; the first burst comes after it.
        [alone] = traced.work(only_spans, (1,)).answers
        spans = (len(received.spans) - len(alone)) // (plan.rounds + 1)
        [alone] = traced.work(only_spans, (spans,)).answers
    whole = _middle(costs[PLAIN])
    yield Line(
        10,
        f"processor time of the {spans} spans of a drain of {plan.entities:,} jobs with their"
        " export, against that of the drain",
        f"{1000 * _middle(alone):.1f} ms against {1000 * whole:.0f} ms",
        [each / whole for each in alone],
        SHARE,
    )
    yield Line(
        10,
        "a drain that is traced, against one that is not: throughput",
        f"{per_second(rates[TRACED])} against {per_second(rates[PLAIN])}",
        ratios(rates[TRACED], rates[PLAIN]),
    )
    yield Line(
        10,
        "the same: processor time of the client",
        f"{_micros(costs[TRACED], plan)} against {_micros(costs[PLAIN], plan)}",
        ratios(costs[TRACED], costs[PLAIN]),
    )


def _drained(crew: Crew, connection: Connection, plan: Plan) -> tuple[float, float]:
    on_site(connection, Site.reset, plan.entities, jobs=True)
    shift = crew.work(traced_or_not, (OWNER,))
    [(done, cpu)] = shift.answers
    return done / shift.seconds, cpu


def _micros(costs: list[float], plan: Plan) -> str:
    return f"{_middle(costs) / plan.entities * 1e6:.0f} µs per job"


def _middle(costs: list[float]) -> float:
    return sorted(costs)[len(costs) // 2]


@contextmanager
def _environment(name: str, value: Any) -> Generator[None]:
    """For the processes that are started meanwhile."""
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
