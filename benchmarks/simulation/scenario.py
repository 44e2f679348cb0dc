"""What is simulated: how many drains, on what, with which provider, and what goes wrong."""

from dataclasses import dataclass, field
from typing import Final

from benchmarks.contestants import UNLIMITED
from embed_pipeline.domain.lifecycle import RetryPolicy
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.worker.options import DrainOptions

FOR_EVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Provider:
    """How long it takes to answer, what it allows, and how often it fails."""

    latency: float = 0.3
    """Seconds for a request, and ``latency_per_text`` for each text in it."""
    latency_per_text: float = 0.001
    spread: float = 0.3
    """Standard deviation of the logarithm of the time; zero for a provider like a clock."""
    limits: RateLimits = UNLIMITED
    tokens_per_text: int = 100
    refused: float = 0.0
    """Part of the requests that are answered with 429, although the limit was kept."""
    pause: float = 5.0
    """What a 429 asks everybody to wait."""
    failing: float = 0.0
    """Part of the requests that end with 5xx or a timeout."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run of the simulation."""

    jobs: int
    drains: int = 1
    cores: float = 2
    """Of the machine of Neo4j."""
    shares_machine: bool = False
    """All drains compute on the cores of Neo4j; otherwise each has a core of its own."""
    round_trip: float = 0.0005
    """Seconds between a drain and Neo4j; on one machine it is part of what was measured."""
    has_index: bool = False
    provider: Provider = field(default_factory=Provider)
    options: DrainOptions = field(default_factory=DrainOptions)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    max_attempts: int = 3
    deaths_per_hour: float = 0.0
    """Of each drain: its machine vanishes, and so nobody gives its jobs back."""
    death_at: float | None = None
    """The drain that holds most dies at this time; the run ends when all it held has ended."""
    restart: float = 30.0
    """Seconds until a new drain stands in for one that is gone."""
    until: float = FOR_EVER
    """Look no further than so many seconds; the rest is extrapolated."""
    warm_up: float = 0.0
    """Seconds at the start that do not count for the rate."""
    seed: int = 1
