"""What a run will do, from its seed: how much of everything, and which faults in which order."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Final

from embed_pipeline.domain.lifecycle import RetryPolicy
from tests.support.bolt_proxy import Cut

LEASE: Final = timedelta(seconds=8)
RECOVERY_INTERVAL: Final = timedelta(seconds=2)
TRANSACTION_TIMEOUT: Final = LEASE / 3
"""What ``wiring.queue_on`` makes of the lease."""
JOB_TIMEOUT: Final = timedelta(seconds=25)
"""Longer than any pause: who wakes up after his lease must find out by himself."""
RELATIONS_DELAY: Final = timedelta(seconds=3)
"""So long an entity waits of which only the neighbours have changed."""
RETRY: Final = RetryPolicy(base=timedelta(milliseconds=500), cap=timedelta(seconds=4))
"""Shorter pauses than in production, or the run would wait for most of its time."""
FIRST_PAUSE_OF_OUTAGE: Final = timedelta(seconds=2)
LONGEST_PAUSE_OF_OUTAGE: Final = timedelta(seconds=16)
PROBE_LASTS: Final = JOB_TIMEOUT + timedelta(seconds=5)
"""Until others may ask for the provider, if whoever was to do it is dead. All three are as much
shorter than in production as the lease is."""


class Fault(StrEnum):
    """Everything that is done to the queue beside ordinary work."""

    KILL = "drains killed"
    KILL_AT_WRITE = "drains killed after a write, before they knew"
    PAUSE = "drains suspended beyond their lease"
    PAUSE_AT_WRITE = "drains suspended before a write"
    TERMINATE = "drains terminated (SIGTERM)"
    SERVER_KILL = "server kills"
    CUT = "commits cut"
    SLOW = "slow lines"
    SILENCE = "black-holed lines"
    QUOTA = "breaker opened by the provider"
    CANCEL = "jobs cancelled"
    RETRY = "failed jobs retried"
    SWITCH_OFF = "queue paused and resumed"
    PURGE = "clean-ups"
    OUTAGE = "outages of the provider"
    FOREIGN = "jobs written by others"
    HAND_RECOVERY = "leases recovered by hand"
    HAND_RESET = "failed jobs reset by hand"


@dataclass(frozen=True, slots=True)
class Step:
    """One fault; ``where`` and ``long`` are fractions that the fault makes sense of."""

    fault: Fault
    where: float
    long: float
    gap: float
    """Seconds to the next step."""
    cut: Cut


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything."""

    jobs: int
    updates: int
    relations: int
    """Edits of relations, and of what neighbours are called."""
    deletes: int
    killers: int
    refused: int
    drains: int
    attempts: int
    """Of every job. One in five is lost here to a kill or to the provider; whoever loses all of
    his fails, and nobody is to blame."""
    faults: dict[Fault, int]
    gap: float
    """Mean seconds between two faults."""


SMALL: Final = Size(
    jobs=500,
    updates=60,
    relations=150,
    deletes=6,
    killers=2,
    refused=1,
    drains=4,
    attempts=6,
    gap=0.7,
    faults={
        Fault.KILL: 14,
        Fault.KILL_AT_WRITE: 6,
        Fault.PAUSE: 3,
        Fault.PAUSE_AT_WRITE: 4,
        Fault.TERMINATE: 2,
        Fault.SERVER_KILL: 1,
        Fault.CUT: 12,
        Fault.SLOW: 1,
        Fault.SILENCE: 2,
        Fault.CANCEL: 5,
        Fault.RETRY: 1,
        Fault.SWITCH_OFF: 1,
        Fault.PURGE: 2,
        Fault.OUTAGE: 1,
        Fault.FOREIGN: 2,
        Fault.HAND_RECOVERY: 2,
        Fault.HAND_RESET: 1,
    },
)

FULL: Final = Size(
    jobs=10_000,
    updates=1_000,
    relations=2_000,
    deletes=50,
    killers=5,
    refused=3,
    drains=5,
    attempts=10,
    gap=0.8,
    faults={
        Fault.KILL: 150,
        Fault.KILL_AT_WRITE: 50,
        Fault.PAUSE: 40,
        Fault.PAUSE_AT_WRITE: 40,
        Fault.TERMINATE: 10,
        Fault.SERVER_KILL: 20,
        Fault.CUT: 100,
        Fault.SLOW: 8,
        Fault.SILENCE: 12,
        Fault.QUOTA: 2,
        Fault.CANCEL: 40,
        Fault.RETRY: 4,
        Fault.SWITCH_OFF: 5,
        Fault.PURGE: 8,
        Fault.OUTAGE: 5,
        Fault.FOREIGN: 40,
        Fault.HAND_RECOVERY: 20,
        Fault.HAND_RESET: 4,
    },
)


def part_of(size: Size, number: int) -> Size:
    """Of everything the so-manyth part, and at least one."""

    def share(count: int) -> int:
        return -(-count // number)

    return replace(
        size,
        jobs=share(size.jobs),
        updates=share(size.updates),
        relations=share(size.relations),
        deletes=share(size.deletes),
        killers=share(size.killers),
        refused=share(size.refused),
        faults={fault: share(count) for fault, count in size.faults.items()},
    )


def steps(size: Size, seed: int) -> Iterator[Step]:
    """The faults of a run; the same for the same seed, whatever the machine does."""
    chance = random.Random(seed)
    kinds = [fault for fault, count in size.faults.items() for _ in range(count)]
    chance.shuffle(kinds)
    for fault in kinds:
        yield Step(
            fault=fault,
            where=chance.random(),
            long=chance.random(),
            gap=min(chance.expovariate(1 / size.gap), 4 * size.gap),
            cut=chance.choice(list(Cut)),
        )
