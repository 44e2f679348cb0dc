"""Who goes first: urgent jobs, but nobody waits for ever.

Three rules, each counted on the queue node and so shared by all workers:

1. Higher priority first, older first within a priority.
2. Of every ten jobs leased, one is the oldest of all, whatever its priority. With ``n`` older jobs
   before it a job is leased after at most ``10 * (n + 1)`` others, so none is starved.
3. Suspects (jobs whose lease has expired) are leased alone, so that they do not burn the attempts
   of their neighbours. Every second lease looks for a suspect first; the others take one only if
   nothing else is due. So neither side starves the other.
"""

from enum import StrEnum
from typing import Final

SLOTS_PER_OLDEST: Final = 10


class Lane(StrEnum):
    """Which jobs a lease may take."""

    ANY = "any"
    """By the rules above."""
    HEALTHY = "healthy"
    """No suspects: for a worker that holds other jobs."""
    SUSPECT = "suspect"
    """One suspect or nothing."""


def slots_for_oldest(slots_given: int, limit: int) -> int:
    """How many of the next ``limit`` jobs go to the oldest, after ``slots_given`` before."""
    return (slots_given + limit) // SLOTS_PER_OLDEST - slots_given // SLOTS_PER_OLDEST


def suspects_first(turn: int, lane: Lane) -> bool:
    """Say whether this lease looks for a suspect before it looks for anything else."""
    return lane is Lane.SUSPECT or (lane is Lane.ANY and turn % 2 == 1)
