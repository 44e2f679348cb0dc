"""Item 12: the mutex of the leases, with more and more drains that want it.

Each rival leases as a drain does, gives back and leases again, for as long as the round lasts. They
live in four processes, so that the interpreter is not what they wait for. What waits for more than
ten seconds is ended by the server and repeated by the store; after thirty seconds it is given up.
"""

import asyncio
import logging
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from neo4j.exceptions import Neo4jError

from benchmarks.contestants import LEASE
from benchmarks.crew import Crew, Shift, hired
from benchmarks.scaling import PENDING, copy_jobs, patterns
from benchmarks.site import MODEL, Site, on_site
from benchmarks.table import Line, at_least
from embed_pipeline.domain.errors import TooMuchAtOnceError
from embed_pipeline.store import database
from embed_pipeline.store.connection import Connection
from embed_pipeline.store.queue import open_queue
from embed_pipeline.worker.options import MOST_PER_LEASE

RIVALS: Final = (2, 8, 32, 64)
PROCESSES: Final = 4
ROUND: Final = timedelta(seconds=12)
WAITING: Final = (max(RIVALS) + 2) * MOST_PER_LEASE
"""So that nobody finds nothing: each gives back before it leases again."""


@dataclass
class Tally:
    """What one rival has done."""

    jobs: int = 0
    seconds: list[float] = field(default_factory=list)
    """That its leases took, from the wish to the jobs."""
    given_up: Counter[str] = field(default_factory=Counter)


@dataclass
class Competition:
    """What the rivals of one process have done."""

    tallies: list[Tally]
    repeated: int
    """Transactions that were ended and begun anew."""


class Repeats(logging.Handler):
    """Counts what the store says of transactions that it repeats."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.seen = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.seen += record.getMessage().startswith(database.REPEATING)

    @classmethod
    @contextmanager
    def counted(cls) -> Iterator["Repeats"]:
        """Count until the block ends."""
        logger, counting = database.logger, cls()
        level = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(counting)
        try:
            yield counting
        finally:
            logger.removeHandler(counting)
            logger.setLevel(level)


def measure(connection: Connection) -> Iterator[tuple[int, float, Line]]:
    """One round for each number of rivals: how many, their jobs per second, and what to say."""
    on_site(connection, _prepare)
    rates: dict[int, float] = {}
    with hired(PROCESSES, connection) as crew:
        for rivals in RIVALS:
            shift = _round(crew, rivals)
            found: tuple[Competition, ...] = shift.answers
            tallies = [tally for each in found for tally in each.tallies]
            # Until the last has what it asked for before the end.
            rates[rivals] = sum(tally.jobs for tally in tallies) / shift.seconds
            took = sorted(second for tally in tallies for second in tally.seconds)
            given_up = sum((tally.given_up for tally in tallies), Counter())
            line = Line(
                12,
                f"leases of {MOST_PER_LEASE:,} jobs, given back at once; {rivals} at a time",
                f"{rates[rivals]:,.0f} jobs/s; a lease takes {statistics.median(took):.2f} s,"
                f" {took[int(0.95 * len(took))]:.2f} at 95 %; repeated:"
                f" {sum(each.repeated for each in found)}, given up: {given_up.total()}",
                [rates[rivals] / rates[8]] if rivals > 8 else (),
                at_least(0.9) if rivals > 8 else None,
            )
            yield rivals, rates[rivals], line


async def _prepare(site: Site) -> None:
    await site.prepare(1, has_index=False)
    pattern = (await patterns(site))[PENDING]
    await copy_jobs(site, PENDING, pattern, 0, WAITING)
    await site.run("CALL db.awaitIndexes(600)")


def _round(crew: Crew, rivals: int) -> Shift:
    at_work = min(rivals, PROCESSES)
    shares = [rivals // at_work + (number < rivals % at_work) for number in range(at_work)]
    return crew.work(_compete, *((f"process-{n}", share) for n, share in enumerate(shares)))


async def _compete(site: Site, name: str, rivals: int) -> Competition:
    until = time.monotonic() + ROUND.total_seconds()
    each = (_rival(site, f"{name}/{number}", until) for number in range(rivals))
    with Repeats.counted() as repeats:
        tallies = await asyncio.gather(*each)
    return Competition(tallies, repeats.seen)


async def _rival(site: Site, owner: str, until: float) -> Tally:
    # With the patience of a drain, not with that of a benchmark.
    jobs, tally = open_queue(site.driver, config=site.queue.config).jobs, Tally()
    while (began := time.monotonic()) < until:
        try:
            batch: Any = await jobs.lease(
                owner=owner, model=MODEL, limit=MOST_PER_LEASE, duration=LEASE
            )
        except (Neo4jError, TimeoutError, TooMuchAtOnceError) as error:
            tally.given_up[type(error).__name__] += 1
            continue
        tally.seconds.append(time.monotonic() - began)
        tally.jobs += len(batch.jobs)
        await jobs.release([item.lease for item in batch.jobs])
    return tally
