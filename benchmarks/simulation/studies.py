"""The questions that docs/scaling.md answers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from benchmarks.simulation.costs import Costs
from benchmarks.simulation.run import Result, simulate
from benchmarks.simulation.scenario import Provider, Scenario
from embed_pipeline.domain.embedding import RequestLimits
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.worker.options import DrainOptions

HUNDRED_MILLION: Final = 100_000_000
DRAINS: Final = (1, 2, 4, 8, 16, 32, 64, 125, 250, 500, 1000)
DEATH_DRAINS: Final = (2, 8, 32)
MINUTE: Final = timedelta(minutes=1)
BASE: Final = Scenario(jobs=HUNDRED_MILLION, cores=16, until=90, warm_up=30)
LIMITED: Final = replace(BASE, until=420, warm_up=120)
"""A limit per minute needs more of them for a mean."""
SMALL_LEASES: Final = DrainOptions(jobs_per_lease=256)


@dataclass(frozen=True, slots=True)
class Study:
    """One line of a plot: the same thing with more and more drains."""

    name: str
    base: Scenario

    def results(self, costs: Costs, drains: tuple[int, ...] = DRAINS) -> Iterator[Result]:
        """One run for each number of drains."""
        for number in drains:
            yield simulate(replace(self.base, drains=number), costs)


def _limited(requests: int, tokens: int | None = None) -> Provider:
    return Provider(limits=RateLimits(requests=requests, interval=MINUTE, tokens=tokens))


STUDIES: Final = (
    Study("no limit, Neo4j with 2 cores", replace(BASE, cores=2)),
    Study("no limit, Neo4j with 16 cores", BASE),
    Study("no limit, 16 cores, leases of 256 jobs", replace(BASE, options=SMALL_LEASES)),
    Study("no limit, 16 cores, vector index", replace(BASE, has_index=True)),
    Study(
        "10,000 requests, 10 M tokens a minute", replace(LIMITED, provider=_limited(10_000, 10**7))
    ),
    Study("3,000 requests, 1 M tokens a minute", replace(LIMITED, provider=_limited(3_000, 10**6))),
    Study("20 requests a minute (the default)", replace(LIMITED, provider=_limited(20))),
)

_EIGHT: Final = replace(BASE, drains=8, until=180)
REMEDIES: Final = {
    "8 drains, as they are": _EIGHT,
    "32 requests at once in each": replace(_EIGHT, options=DrainOptions(requests_at_once=32)),
    "2 drains, 16 requests at once in each": replace(
        _EIGHT, drains=2, options=DrainOptions(requests_at_once=16)
    ),
    "leases of 256 jobs": replace(_EIGHT, options=SMALL_LEASES),
    "Neo4j 3 ms away instead of 0.5": replace(_EIGHT, round_trip=0.003),
    "Neo4j with 64 cores instead of 16": replace(_EIGHT, cores=64),
    "1 % of the requests answered with 429": replace(_EIGHT, provider=Provider(refused=0.01)),
    "1 % of the requests failing": replace(_EIGHT, provider=Provider(failing=0.01)),
    "10 % of the requests failing": replace(_EIGHT, provider=Provider(failing=0.1)),
    "every drain dies once in ten hours": replace(
        _EIGHT, deaths_per_hour=0.1, until=2000, warm_up=200
    ),
    "1 M tokens a minute": replace(LIMITED, drains=8, provider=_limited(3_000, 10**6)),
    "1 M tokens a minute, 500 texts in a request": replace(
        LIMITED,
        drains=8,
        provider=_limited(3_000, 10**6),
        options=DrainOptions(jobs_per_request=500),
    ),
}
"""What changes when one thing does."""

WHOLE: Final = Scenario(
    jobs=HUNDRED_MILLION, drains=8, cores=16, provider=Provider(refused=0.0005, failing=0.005)
)
"""From the first job to the last, nothing extrapolated."""

DEATH: Final = replace(BASE, death_at=60.0, until=900.0)
"""One drain dies."""
QUIET: Final = 40_000
"""Jobs for each drain: all but those of the dead one are done when its leases expire."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What became of the jobs of a drain that died."""

    drains: int
    held: int
    full_hands: int
    """What a drain holds at most: all its requests, and one batch ahead."""
    available: float
    """Seconds until the first of them could be leased again."""
    per_second: float
    """How fast they were done from then on, apart from others."""

    @property
    def seconds(self) -> float:
        """From the death until all of them are done."""
        return self.seconds_for(self.held)

    def seconds_for(self, jobs: int) -> float:
        """The same if it had held so many."""
        return self.available + jobs / self.per_second


DEATHS: Final = {
    "a queue that never ends": DEATH,
    "a queue that never ends, leases of 256 jobs": replace(DEATH, options=SMALL_LEASES),
    "nothing else left to do": replace(DEATH, death_at=10.0),
}


def recoveries(name: str, costs: Costs) -> Iterator[Recovery]:
    """One death for each number of drains."""
    for drains in DEATH_DRAINS:
        scenario = replace(DEATHS[name], drains=drains)
        if name == "nothing else left to do":
            scenario = replace(scenario, jobs=drains * QUIET)
        result = simulate(scenario, costs)
        [death] = result.deaths
        available = death.first - death.at
        yield Recovery(
            drains,
            death.jobs,
            (scenario.options.requests_at_once + 1)
            * scenario.options.most_per_lease(RequestLimits().inputs),
            available,
            (death.jobs - death.left) / (death.last - death.first),
        )
