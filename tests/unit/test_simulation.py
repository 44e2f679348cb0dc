"""What the simulation of many drains promises."""

import tomllib
from dataclasses import replace
from datetime import timedelta

import pytest

from benchmarks.simulation.costs import Cost, Costs
from benchmarks.simulation.kernel import Clock, Steps
from benchmarks.simulation.leases import leased_per_second
from benchmarks.simulation.measuring import SMALL, cost_of
from benchmarks.simulation.resources import Lock, Processors
from benchmarks.simulation.run import Result, simulate
from benchmarks.simulation.scenario import Provider, Scenario
from benchmarks.site import BATCH
from benchmarks.where import Spent
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.worker.options import DrainOptions

COSTS = Costs.read()
AT_ONCE = Provider(latency=0, latency_per_text=0, spread=0)
ONE_BY_ONE = DrainOptions(jobs_per_lease=100, jobs_per_request=100, requests_at_once=1)
SHORT = DrainOptions(
    jobs_per_lease=50,
    lease=timedelta(seconds=20),
    heartbeat=timedelta(seconds=7),
    recovery_interval=timedelta(seconds=5),
)
FREE = replace(
    COSTS,
    index=0,
    **{name: Cost() for name in ("start", "load", "render", "find", "check", "grant", "judge")},
    heartbeat=Cost(),
    complete=Cost(),
    lease=Cost(),
)


def run(scenario: Scenario, costs: Costs = COSTS) -> Result:
    return simulate(scenario, costs)


def figures(result: Result) -> tuple[float, ...]:
    return result.seconds, result.done, result.events, result.mutex_held, result.tally.requests


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    scenario = Scenario(
        jobs=10_000, drains=5, deaths_per_hour=120, provider=Provider(failing=0.1), options=SHORT
    )

    first, again = run(scenario), run(scenario)
    other = run(replace(scenario, seed=2))

    assert figures(first) == figures(again)
    assert figures(first) != figures(other)


@pytest.mark.parametrize("failing", [0.0, 0.2])
@pytest.mark.parametrize("deaths", [0.0, 120.0])
def test_every_job_ends_once_and_none_is_lost(deaths: float, failing: float) -> None:
    scenario = Scenario(
        jobs=20_000,
        drains=4,
        deaths_per_hour=deaths,
        restart=5,
        provider=Provider(failing=failing, refused=0.05),
        options=SHORT,
    )

    result = run(scenario)

    assert result.done + result.failed == result.total == scenario.jobs
    assert bool(result.deaths) is bool(deaths)
    assert all(death.left == 0 for death in result.deaths)


def test_jobs_are_neither_made_nor_lost_in_the_middle_of_a_run() -> None:
    result = run(Scenario(jobs=10**8, drains=20, deaths_per_hour=100, until=100))

    assert 0 < result.done < result.total == 10**8
    assert result.deaths


def test_one_drain_without_overlap_takes_the_sum_of_its_parts() -> None:
    costs = replace(FREE, lease=Cost(server=100), complete=Cost(client=300))
    provider = replace(AT_ONCE, latency=0.2)

    result = run(Scenario(jobs=10_000, round_trip=0, provider=provider, options=ONE_BY_ONE), costs)

    # A lease of 100 jobs takes 10 ms. It is made while a request is under way, except the first
    # one, and the eleven after a look for suspects, for which the work must have run dry.
    assert result.seconds == pytest.approx(100 * (0.2 + 0.03) + 12 * 0.01)


def test_a_server_at_its_limit_gives_its_cores_divided_by_the_work_per_job() -> None:
    costs = replace(FREE, complete=Cost(server=400))

    result = run(Scenario(jobs=400_000, drains=8, cores=2, round_trip=0, provider=AT_ONCE), costs)

    assert result.rate == pytest.approx(2 / 400e-6, rel=0.02)
    assert result.bottleneck == "processors of Neo4j"


def test_the_mutex_lets_one_lease_at_a_time_through() -> None:
    costs = replace(FREE, lease=Cost(client=30, server=70))

    result = run(Scenario(jobs=400_000, drains=8, cores=64, round_trip=0, provider=AT_ONCE), costs)

    assert result.rate == pytest.approx(1 / 100e-6, rel=0.02)
    assert 0.95 < result.mutex_held <= 1
    assert result.bottleneck == "mutex of the leases"


@pytest.mark.parametrize("rivals", [2, 8, 200])
def test_leases_that_are_given_back_at_once_are_as_fast_as_the_mutex(rivals: int) -> None:
    # Two hundred leases of 0.2 s each: most of them are ended, repeated and given up.
    costs = replace(FREE, cores=64, lease=Cost(server=100))

    rate = leased_per_second(rivals, processes=4, seconds=60, costs=costs)

    assert rate == pytest.approx(1 / 100e-6, rel=0.05)


def test_giving_back_needs_the_cores_that_leases_need() -> None:
    costs = replace(FREE, cores=1, lease=Cost(server=100))

    rate = leased_per_second(8, processes=4, seconds=60, costs=costs)

    assert rate == pytest.approx(1 / 200e-6, rel=0.05)


def test_a_crowd_does_not_lease_less_than_a_few() -> None:
    few, crowd = (run(Scenario(jobs=10**8, drains=n, cores=16, until=60)) for n in (8, 64))

    assert crowd.rate >= 0.95 * few.rate


@pytest.mark.parametrize("drains", [1, 10])
def test_the_rate_limit_holds_for_all_drains_together(drains: int) -> None:
    limits = RateLimits(requests=30, interval=timedelta(seconds=60))
    scenario = Scenario(
        jobs=10**7,
        drains=drains,
        provider=replace(AT_ONCE, limits=limits),
        options=replace(ONE_BY_ONE, requests_at_once=4),
        until=300,
    )

    limited = run(scenario)
    free = run(replace(scenario, provider=AT_ONCE, until=20))

    assert limited.done <= 5 * 30 * 100 < free.done
    assert limited.done >= 0.9 * 5 * 30 * 100
    assert limited.bottleneck == "rate limit"


def test_a_vector_index_takes_one_commit_at_a_time() -> None:
    costs = replace(FREE, index=500, lease=Cost(server=1))
    scenario = Scenario(jobs=40_000, drains=4, cores=16, round_trip=0, provider=AT_ONCE)

    with_index = run(replace(scenario, has_index=True), costs)

    assert with_index.rate == pytest.approx(1 / 500e-6, rel=0.02)
    assert run(scenario, costs).rate > 2 * with_index.rate


@pytest.mark.parametrize("drains", [1, 30, 300])
def test_no_resource_is_used_more_than_there_is(drains: int) -> None:
    result = run(Scenario(jobs=10**8, drains=drains, cores=4, until=60))

    assert 0 < result.mutex_held <= 1
    assert all(0 <= share <= 1 + 1e-9 for share in result.shares.values())


def test_too_many_drains_wait_longer_for_a_lease_than_a_transaction_may_take() -> None:
    few = run(Scenario(jobs=10**8, drains=10, cores=16, until=40))
    many = run(Scenario(jobs=10**8, drains=200, cores=16, until=40))

    assert few.tally.timeouts == 0
    assert many.tally.timeouts > 0
    assert few.lease_wait(0.5) < many.lease_wait(0.5) <= 10


def test_more_deaths_take_longer() -> None:
    scenario = Scenario(jobs=10_000, drains=4, restart=10, options=SHORT)

    seconds = [run(replace(scenario, deaths_per_hour=rate)).seconds for rate in (0, 240, 800)]

    assert seconds[0] < seconds[1] < seconds[2]


def test_jobs_of_a_dead_drain_come_back_after_lease_and_recovery_interval() -> None:
    result = run(Scenario(jobs=10_000, drains=4, death_at=2, options=SHORT))

    [recovery] = result.recoveries
    [death] = result.deaths
    one_by_one = death.jobs * 1.0 / 3
    assert 18 < recovery < 20 + 5 + one_by_one


def test_the_cores_are_shared_evenly() -> None:
    clock, ends = Clock(), dict[str, float]()
    cores = Processors(clock, 1)

    def work(name: str, seconds: float) -> Steps:
        yield from cores.compute(seconds)
        ends[name] = clock.now

    for name, seconds in (("short", 1.0), ("long", 3.0)):
        clock.start(work(name, seconds))
    clock.run(until=100, is_done=lambda: False)

    assert ends == {"short": 2.0, "long": 4.0}


def test_work_that_is_killed_makes_room_for_the_rest() -> None:
    clock, ends = Clock(), list[float]()
    cores, lock = Processors(clock, 1), Lock(clock)

    def work(seconds: float) -> Steps:
        ticket = lock.ask()
        try:
            yield ticket
            yield from cores.compute(seconds)
        finally:
            lock.leave(ticket)
        ends.append(clock.now)

    victim = clock.start(work(100))
    clock.start(work(2))
    clock.at(1, victim.kill)
    clock.run(until=100, is_done=lambda: False)

    assert ends == [3]


def test_two_sizes_of_batches_tell_what_a_transaction_costs_by_itself() -> None:
    def spent(size: int) -> Spent:
        client, server, wait = (20 * size + 1_000, 50 * size + 2_000, 5 * size + 500)
        return Spent((client + server + wait) * 1e-6, client * 1e-6, server * 1e-6) * (1 / size)

    cost = cost_of(spent(BATCH), spent(SMALL))

    assert cost == Cost(20, 50, 5, 1_000, 2_000, 500)


def test_costs_are_read_as_they_were_written() -> None:
    assert Costs.of(tomllib.loads(COSTS.written())) == COSTS
