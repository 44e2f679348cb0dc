"""Items 1, 8 and 9: the steps of a drain one by one, and whole drains, in turn on one server.

The simulation foretells the second from the first. Both are measured in every round, now the one
first and now the other: a server that has worked for ten minutes needs a third less than it needed
after one. The drains begin: of them the median is taken, of the steps the mean, which feels a cold
start.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from benchmarks.contestants import drain
from benchmarks.crew import Crew, hired
from benchmarks.limit import OWNER
from benchmarks.plan import Plan
from benchmarks.site import BATCH, Site, on_site, opened
from benchmarks.table import Line, at_least, per_second, ratios
from benchmarks.where import Spent, start, steps
from embed_pipeline.store.connection import Connection

CREW: Final = 4
SLOW: Final = (timedelta(milliseconds=500), 100)
"""A provider that takes so long for a request of so many texts."""
SMALL: Final = 50
"""Batches of a second size tell what a transaction costs by itself."""
FOUR_PROCESSES: Final = at_least(1.5)


@dataclass(frozen=True, slots=True)
class Setup:
    """Drains on the machine of Neo4j, without a vector index."""

    drains: int
    latency: timedelta
    texts: int
    """In each lease and request."""
    share: int
    """One of so many parts of the plan's entities."""

    def __str__(self) -> str:
        name = "a drain" if self.drains == 1 else f"{self.drains} drains"
        if not self.latency:
            return name
        return f"{name}; the provider takes {self.latency.total_seconds()} s for {self.texts} texts"


ONE_SLOW: Final = Setup(1, *SLOW, share=2)
FOUR_SLOW: Final = Setup(CREW, *SLOW, share=2)
SLOW_PROVIDER: Final = (ONE_SLOW, FOUR_SLOW)
SETUPS: Final = (
    Setup(1, timedelta(0), BATCH, share=1),
    Setup(CREW, timedelta(0), BATCH, share=1),
    *SLOW_PROVIDER,
)


@dataclass(frozen=True, slots=True)
class Round:
    """What was measured within a minute."""

    large: dict[str, Spent]
    """The steps for each job, in batches of ``BATCH``, and in batches of ``SMALL``."""
    small: dict[str, Spent]
    start: Spent
    """Of a drain, and its end."""
    rates: dict[Setup, float]
    """Jobs per second."""


def measure(connection: Connection, neo4j_pid: int, plan: Plan) -> list[Round]:
    """Some rounds."""
    on_site(connection, Site.prepare, plan.entities, has_index=False)
    with hired(CREW, connection) as crew:
        # A new process is slow at first.
        _rate(crew, connection, FOUR_SLOW, plan)
        return [_round(number, crew, connection, neo4j_pid, plan) for number in range(plan.rounds)]


def _round(number: int, crew: Crew, connection: Connection, neo4j_pid: int, plan: Plan) -> Round:
    async def one_by_one() -> tuple[dict[str, Spent], dict[str, Spent], Spent]:
        async with opened(connection) as site:
            return (
                await steps(site, neo4j_pid, plan.entities, batch=BATCH),
                await steps(site, neo4j_pid, plan.entities, batch=SMALL),
                await start(site, neo4j_pid),
            )

    def whole_drains() -> dict[Setup, float]:
        # Without a provider to wait for, a drain is as fast as the server, which must be warm.
        setups = SETUPS if plan.has_time else SLOW_PROVIDER
        return {setup: _rate(crew, connection, setup, plan) for setup in setups}

    if number % 2:
        parts = asyncio.run(one_by_one())
        return Round(*parts, whole_drains())
    rates = whole_drains()
    return Round(*asyncio.run(one_by_one()), rates)


def _rate(crew: Crew, connection: Connection, setup: Setup, plan: Plan) -> float:
    jobs = plan.entities // setup.share
    on_site(connection, Site.reset, jobs, jobs=True)
    owners: list[tuple[Any, ...]] = [
        (f"{OWNER}/{n}", setup.latency, setup.texts) for n in range(setup.drains)
    ]
    return jobs / crew.work(drain, *owners).seconds


def lines(rounds: Sequence[Round]) -> Iterator[Line]:
    """What more processes gain while the server has time to spare."""
    one, four = ([each.rates[setup] for each in rounds] for setup in (ONE_SLOW, FOUR_SLOW))
    yield Line(
        1,
        f"{CREW} drains, against one; the provider takes 0.5 s for 100 texts",
        f"{per_second(four)} against {per_second(one)}",
        ratios(four, one),
        FOUR_PROCESSES,
    )
