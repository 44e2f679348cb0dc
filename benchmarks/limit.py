"""Item 1: how near the queue comes to writing the same without a queue."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from benchmarks.contestants import drain, lease_beat_complete, write
from benchmarks.crew import Crew, Work, hired
from benchmarks.plan import Plan
from benchmarks.site import Site, on_site
from benchmarks.table import Goal, Line, at_least, per_second, ratios
from embed_pipeline.store.connection import Connection

AT_ONCE: Final = 4
"""Batches that a drain has under way, unless told otherwise."""
GOALS: Final = {False: at_least(0.6), True: at_least(0.85)}
DRAIN_GOALS: Final = {False: at_least(0.5), True: at_least(0.75)}
"""What was never missed where nothing else runs, so that a miss means something."""
OWNER: Final = "6f1c9d5e-8d3c-4c8e-9f60-1b2a3c4d5e6f/some-host"
"""As long as a real one."""

Rates = dict[str, list[float]]


def lines(connection: Connection, plan: Plan) -> Iterator[Line]:
    """Measure without and with a vector index."""
    for has_index in (False, True):
        rates = measure(connection, plan, has_index=has_index)
        yield from _judge(rates, has_index=has_index)


def measure(connection: Connection, plan: Plan, *, has_index: bool) -> Rates:
    """Jobs per second of every contestant in every round, in turn."""
    rates: Rates = defaultdict(list)
    entities = plan.indexed_entities if has_index else plan.limit_entities
    on_site(connection, Site.prepare, entities, has_index=has_index)
    with hired(1, connection) as crew:
        # A new process is slow at first, and so is a new index.
        for number in range(1 + plan.rounds):
            for name, seconds in _round(crew, connection, entities, has_time=plan.has_time):
                if number:
                    rates[name].append(entities / seconds)
    return rates


def warm_up(connection: Connection, plan: Plan) -> None:
    """Let the server compile: a fresh one needs three times as long for each statement."""
    on_site(connection, Site.prepare, plan.entities, has_index=False)
    with hired(1, connection) as crew:
        for number in range(plan.warm_up):
            on_site(connection, Site.reset, plan.entities, jobs=True)
            work = (drain, (OWNER,)) if number % 2 else (lease_beat_complete, (OWNER, AT_ONCE))
            crew.work(*work)


def _round(
    crew: Crew, connection: Connection, entities: int, *, has_time: bool
) -> Iterator[tuple[str, float]]:
    def timed(work: Work, share: tuple[Any, ...], *, jobs: bool) -> float:
        on_site(connection, Site.reset, entities, jobs=jobs)
        seconds = crew.work(work, share).seconds
        on_site(connection, Site.check, entities)
        return seconds

    yield "write", timed(write, (0, entities), jobs=False)
    yield "queue", timed(lease_beat_complete, (OWNER, AT_ONCE), jobs=True)
    if not has_time:
        return
    yield "drain", timed(drain, (OWNER,), jobs=True)


def _judge(rates: Rates, *, has_index: bool) -> Iterator[Line]:
    where = "with" if has_index else "without"

    def line(what: str, ours: str, theirs: str, goal: Goal | None = None) -> Line:
        return Line(
            1,
            f"{what}; {where} a vector index",
            f"{per_second(rates[ours])} against {per_second(rates[theirs])}",
            ratios(rates[ours], rates[theirs]),
            goal,
        )

    queue = "lease, heartbeat and fenced completion, 4 batches under way"
    yield line(f"{queue}, against plain writes; 1 process", "queue", "write", goal=GOALS[has_index])
    if "drain" in rates:
        what = "a whole drain, against plain writes; 1 process"
        yield line(what, "drain", "write", DRAIN_GOALS[has_index])
