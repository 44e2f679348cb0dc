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
    end_to_end_jobs: int
    """Through Dagster; none at all where there is no time for it."""
    limit_jobs: int
    """Vectors written without a queue to the same graph, to compare."""
    idle_seconds: int
    """That a deployment is watched doing nothing, or none."""
    waits: int
    """Entities whose way to the search is timed."""
    has_time: bool
    """Measure also what is near the limit and has no goal."""


FULL: Final = Plan(
    entities=4_000,
    limit_entities=6_000,
    indexed_entities=2_500,
    rounds=5,
    warm_up=16,
    plain_jobs=60,
    peer_jobs=600,
    backlogs=(1_000, 100_000, 1_000_000),
    end_to_end_jobs=100_000,
    limit_jobs=12_000,
    idle_seconds=60,
    waits=5,
    has_time=True,
)
QUICK: Final = Plan(
    entities=2_000,
    limit_entities=2_000,
    indexed_entities=2_000,
    rounds=3,
    warm_up=4,
    plain_jobs=20,
    peer_jobs=200,
    backlogs=(1_000, 20_000),
    end_to_end_jobs=0,
    limit_jobs=0,
    idle_seconds=0,
    waits=1,
    has_time=False,
)
