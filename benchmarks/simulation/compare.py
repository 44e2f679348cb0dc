"""Item 9: whether the simulation foretells what one machine does."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from benchmarks.rivals import PROCESSES, ROUND
from benchmarks.rounds import SETUPS, Round, Setup
from benchmarks.simulation.costs import Costs
from benchmarks.simulation.leases import leased_per_second
from benchmarks.simulation.run import simulate
from benchmarks.simulation.scenario import Provider, Scenario
from benchmarks.table import Line, between, per_second
from embed_pipeline.worker.options import MOST_PER_LEASE, DrainOptions

AGREES: Final = between(0.8, 1.2)
JUDGED_RIVALS: Final = (8, 64)


def scenario_of(setup: Setup, jobs: int, cores: int) -> Scenario:
    """The same for the simulation."""
    return Scenario(
        jobs=jobs,
        drains=setup.drains,
        cores=cores,
        shares_machine=True,
        provider=Provider(setup.latency.total_seconds(), latency_per_text=0, spread=0),
        options=DrainOptions(jobs_per_lease=setup.texts, jobs_per_request=setup.texts),
    )


def predicted(setup: Setup, costs: Costs, entities: int) -> float:
    """Jobs per second."""
    return simulate(scenario_of(setup, entities // setup.share, costs.cores), costs).rate


def lines(costs: Costs, rounds: Sequence[Round], entities: int) -> Iterator[Line]:
    """Foretell the whole drains from the mean costs of the rounds in which they ran."""
    for setup in rounds[0].rates:
        foretold = predicted(setup, costs, entities)
        rates = [each.rates[setup] for each in rounds]
        yield Line(
            9,
            f"{setup}: predicted by the simulation, against measured",
            f"{per_second([foretold])} against {per_second(rates)}",
            [foretold / rate for rate in rates],
            AGREES,
        )


def lines_of_leases(costs: Costs, measured: Mapping[int, float]) -> Iterator[Line]:
    """Foretell leases that are given back at once; ``measured`` are jobs per second by rivals."""
    for rivals in JUDGED_RIVALS:
        foretold = _leased(rivals, costs)
        yield Line(
            9,
            f"{rivals} leases at a time: predicted by the simulation, against measured",
            f"{per_second([foretold])} against {per_second([measured[rivals]])}",
            [foretold / measured[rivals]],
            AGREES,
        )


def _leased(rivals: int, costs: Costs) -> float:
    seconds = ROUND.total_seconds()
    return leased_per_second(rivals, processes=PROCESSES, seconds=seconds, costs=costs)


def table(costs: Costs, entities: int) -> Iterator[str]:
    """What the committed costs foretell for this kind of machine, without a measurement."""
    for setup in SETUPS:
        yield f"{setup}: {per_second([predicted(setup, costs, entities)])}"
    for rivals in JUDGED_RIVALS:
        leased = per_second([_leased(rivals, costs)])
        yield f"leases of {MOST_PER_LEASE:,} jobs, given back at once; {rivals} at a time: {leased}"
