"""Which jobs go first: urgent ones, without starving the others.

Three rules, each counted on the queue node and so shared by all workers:

1. Higher priority first, older first within a priority.
2. Of every ten jobs leased, one is the oldest of all, whatever its priority. With ``n`` older jobs
   before it a job is leased after at most ``10 * (n + 1)`` others, so none is starved.
3. Suspects (jobs whose lease has expired) are leased only with suspects, so that they do not burn
   the attempts of others, and the last attempt of each is made alone, so that none fails for what
   another one did. Every second lease looks for suspects first; the others take them only if
   nothing else is due. So neither side starves the other.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

SLOTS_PER_OLDEST: Final = 10
SUSPECTS_AT_ONCE: Final = 64
"""Of 2,048 jobs of a killed drain one may be poison. In groups of ``n``, with three attempts, they
take ``2048 / n + n`` requests: 91 with 45, which is the least, 96 with 64, and 2,050 one by one.
Without a poison, groups of 64 take 32."""


class Lane(StrEnum):
    """Which jobs a lease may take."""

    ANY = "any"
    """By the rules above."""
    HEALTHY = "healthy"
    """No suspects: for a worker that holds other jobs."""
    SUSPECT = "suspect"
    """Suspects or nothing."""


def slots_for_oldest(slots_given: int, limit: int) -> int:
    """How many of the next ``limit`` jobs go to the oldest, after ``slots_given`` before."""
    return (slots_given + limit) // SLOTS_PER_OLDEST - slots_given // SLOTS_PER_OLDEST


def suspects_first(turn: int, lane: Lane) -> bool:
    """Say whether this lease looks for suspects before it looks for anything else."""
    return lane is Lane.SUSPECT or (lane is Lane.ANY and turn % 2 == 1)


def group_of(suspects: Sequence[tuple[str, bool]], limit: int) -> list[str]:
    """Which suspects are leased together: the first one alone, if this is its last attempt.

    Otherwise all that have more than one attempt left, at most ``SUSPECTS_AT_ONCE``. Whoever is
    passed over comes to the head when those before it have ended, so nobody is passed over for
    ever.

    Args:
        suspects: id, and whether the next attempt is the last one; the longest waiting first.
        limit: at most so many.
    """
    if not suspects:
        return []
    first, is_last_attempt = suspects[0]
    if is_last_attempt:
        return [first][:limit]
    together = [id_ for id_, is_last_attempt in suspects if not is_last_attempt]
    return together[: min(limit, SUSPECTS_AT_ONCE)]
