"""Item 9: whether the simulation foretells what one machine does."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from benchmarks import limit
from benchmarks.crew import hired
from benchmarks.limit import CREW, SLOW
from benchmarks.plan import Plan
from benchmarks.simulation.costs import FILE, Costs
from benchmarks.simulation.measuring import measured_costs
from benchmarks.simulation.run import simulate
from benchmarks.simulation.scenario import Provider, Scenario
from benchmarks.site import BATCH, Site, on_site
from benchmarks.table import Line, between, per_second
from embed_pipeline.store.connection import Connection
from embed_pipeline.worker.options import DrainOptions

AGREES: Final = between(0.8, 1.2)


@dataclass(frozen=True, slots=True)
class Setup:
    """Drains on the machine of Neo4j, without a vector index."""

    drains: int
    latency: timedelta
    texts: int
    """In each lease and request."""
    share: int
    """One of so many parts of the plan's entities."""

    def __str__(self) -> str:
        name = "a drain" if self.drains == 1 else f"{self.drains} drains"
        if not self.latency:
            return name
        return f"{name}; the provider takes {self.latency.total_seconds()} s for {self.texts} texts"

    def scenario(self, jobs: int, cores: int) -> Scenario:
        """The same for the simulation."""
        return Scenario(
            jobs=jobs,
            drains=self.drains,
            cores=cores,
            shares_machine=True,
            provider=Provider(self.latency.total_seconds(), latency_per_text=0, spread=0),
            options=DrainOptions(jobs_per_lease=self.texts, jobs_per_request=self.texts),
        )


SETUPS: Final = (
    Setup(1, timedelta(0), BATCH, share=1),
    Setup(CREW, timedelta(0), BATCH, share=1),
    Setup(1, *SLOW, share=2),
    Setup(CREW, *SLOW, share=2),
)


def predicted(setup: Setup, costs: Costs, jobs: int) -> float:
    """Jobs per second."""
    return simulate(setup.scenario(jobs, costs.cores), costs).rate


def lines(connection: Connection, neo4j_pid: int, plan: Plan, *, write: bool) -> Iterator[Line]:
    """Measure the steps, foretell whole drains, and measure those too."""
    one = limit.measure(connection, plan, has_index=False)["drain"]
    slow = limit.one_and_four(connection, plan)
    costs = measured_costs(connection, neo4j_pid, plan)
    if write:
        FILE.write_text(costs.written(), encoding="utf-8")
    measured = (one, _four_drains(connection, plan), *slow)
    for setup, rates in zip(SETUPS, measured, strict=True):
        rate = predicted(setup, costs, plan.entities // setup.share)
        yield Line(
            9,
            f"{setup}: predicted by the simulation, against measured",
            f"{per_second([rate])} against {per_second(rates)}",
            [rate / other for other in rates],
            AGREES,
        )


def _four_drains(connection: Connection, plan: Plan) -> list[float]:
    on_site(connection, Site.prepare, plan.entities, has_index=False)
    with hired(CREW, connection) as crew:
        return [
            limit.rate_of_drains(crew, connection, plan.entities, CREW) for _ in range(plan.rounds)
        ]


def table(costs: Costs, entities: int) -> Iterator[str]:
    """What the committed costs foretell for this kind of machine, without a measurement."""
    for setup in SETUPS:
        rate = predicted(setup, costs, entities // setup.share)
        yield f"{setup}: {per_second([rate])}"
