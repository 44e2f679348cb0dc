"""How much is measured."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of a run."""

    entities: int
    """Vectors that each contestant writes in a round."""
    limit_entities: int
    """The same against the limit: with few of them, beginning and end are all there is."""
    indexed_entities: int
    """The same where there is a vector index, which is slow."""
    rounds: int
    warm_up: int
    """Rounds of the queue before anything is measured."""
    plain_jobs: int
    """The requirements' own queries are slow; so many are enough."""
    peer_jobs: int
    backlogs: tuple[int, ...]
    """Sizes of the queue at which single operations are measured."""
    has_time: bool
    """Measure also what takes long or has no goal."""


FULL: Final = Plan(
    entities=4_000,
    limit_entities=6_000,
    indexed_entities=2_500,
    rounds=5,
    warm_up=10,
    plain_jobs=40,
    peer_jobs=600,
    backlogs=(1_000, 100_000, 1_000_000),
    has_time=True,
)
QUICK: Final = Plan(
    entities=2_000,
    limit_entities=4_000,
    indexed_entities=2_500,
    rounds=3,
    warm_up=8,
    plain_jobs=15,
    peer_jobs=200,
    backlogs=(1_000, 20_000),
    has_time=False,
)
