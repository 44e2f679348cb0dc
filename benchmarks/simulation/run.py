"""One run, and what it says."""

import statistics
from dataclasses import dataclass, field
from random import Random

from benchmarks.simulation.costs import Costs
from benchmarks.simulation.database import Database, Tally
from benchmarks.simulation.drain import Drain
from benchmarks.simulation.jobs import Death, Jobs
from benchmarks.simulation.kernel import Clock
from benchmarks.simulation.life import World
from benchmarks.simulation.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Result:
    """What a run leads to."""

    scenario: Scenario
    seconds: float
    done: int
    failed: int
    total: int
    """Jobs that are anywhere; as many as there were at the start."""
    rate: float
    """Jobs per second, after the warm-up."""
    mutex_held: float
    """Part of the time in which somebody leased."""
    shares: dict[str, float]
    """How much of each resource is needed; the largest one is the bottleneck."""
    tally: Tally = field(repr=False)
    deaths: list[Death] = field(repr=False)
    events: int = 0

    @property
    def bottleneck(self) -> str:
        """What would have to be larger first."""
        return max(self.shares, key=lambda name: self.shares[name])

    @property
    def recoveries(self) -> list[float]:
        """Seconds from each death until the last of its jobs had ended."""
        return [d.last - d.at for d in self.deaths if d.jobs and not d.left]

    def lease_wait(self, part: float) -> float:
        """So many seconds at most for this part of the leases."""
        waits = sorted(self.tally.lease_waits)
        return waits[min(len(waits) - 1, int(part * len(waits)))] if waits else 0.0

    def seconds_for(self, jobs: int) -> float:
        """How long so many jobs take at this rate: an extrapolation."""
        return jobs / self.rate


def simulate(scenario: Scenario, costs: Costs) -> Result:
    """Let it run until all jobs have ended, or the time is over."""
    chance = Random(scenario.seed)
    clock = Clock()
    database = Database(clock, scenario, costs)
    jobs = Jobs(scenario, chance)
    world = World(clock, scenario, database, jobs, chance)
    drains = [Drain(world) for _ in range(scenario.drains)]
    for drain in drains:
        drain.start()
    if scenario.death_at is not None:
        clock.at(scenario.death_at, lambda: max(drains, key=lambda drain: drain.held).die())
    at_start: list[int] = [0]
    clock.at(scenario.warm_up, lambda: at_start.__setitem__(0, jobs.done))
    clock.run(until=scenario.until, is_done=lambda: _is_over(jobs))
    counted = max(clock.now - scenario.warm_up, 1e-9)
    return Result(
        scenario=scenario,
        seconds=clock.now,
        done=jobs.done,
        failed=jobs.failed,
        total=jobs.total(),
        rate=(jobs.done - at_start[0]) / counted,
        mutex_held=database.mutex.seconds_held / clock.now,
        shares=_shares(database, drains, clock.now),
        tally=database.tally,
        deaths=jobs.deaths,
        events=clock.events,
    )


def _is_over(jobs: Jobs) -> bool:
    is_recovered = jobs.scenario.death_at is not None and bool(jobs.deaths)
    return jobs.is_over or (is_recovered and all(death.left == 0 for death in jobs.deaths))


def _shares(database: Database, drains: list[Drain], seconds: float) -> dict[str, float]:
    scenario, tally = database.scenario, database.tally
    limits = scenario.provider.limits
    intervals = seconds / limits.interval.total_seconds()
    asked = [] if limits.requests is None else [tally.requests / (limits.requests * intervals)]
    if limits.tokens is not None:
        tokens = (tally.texts * scenario.provider.tokens_per_text) / (limits.tokens * intervals)
        asked.append(tokens)
    places = scenario.drains * scenario.options.requests_at_once
    shares = {
        "processors of Neo4j": database.cores.seconds_worked / (scenario.cores * seconds),
        "mutex of the leases": tally.mutex_needed / seconds,
        "rate limit": max(asked, default=0.0),
        "node of the rate limit": tally.limiter_needed / seconds,
        "vector index": tally.index_needed / seconds,
        "latency of the provider": tally.request_seconds / (places * seconds),
    }
    if not scenario.shares_machine:
        own = statistics.fmean(drain.client.cores.seconds_worked for drain in drains)
        shares["processor of a drain"] = own / seconds
    return shares
