"""Nothing but leases, given back at once, as ``benchmarks.rivals`` makes them on one machine."""

from random import Random

from benchmarks.simulation.costs import Costs
from benchmarks.simulation.database import CHANGE, Client, Database
from benchmarks.simulation.jobs import Jobs
from benchmarks.simulation.kernel import Clock, Steps
from benchmarks.simulation.life import Life, World
from benchmarks.simulation.scenario import Scenario
from embed_pipeline.worker.options import MOST_PER_LEASE


class Rival(Life):
    """Leases and gives back, until the time is over."""

    def __init__(self, world: World, client: Client, until: float) -> None:
        super().__init__(world)
        self.client = client
        self.ended_at = 0.0
        self._until = until

    def start(self) -> None:
        """Begin, or go on after a lease that was given up."""
        self._start(self._work())

    def _give_up(self) -> None:
        self._kill()
        self.start()

    def _work(self) -> Steps:
        while self._clock.now < self._until:
            yield from self._transaction(self._lease)
            self._tally.leases += 1
            yield from self._spend(self._database.costs.lease, MOST_PER_LEASE, trips=CHANGE)
        self.ended_at = self._clock.now

    def _lease(self) -> Steps:
        return self._database.lease(self.client, lambda: MOST_PER_LEASE)


def leased_per_second(rivals: int, *, processes: int, seconds: float, costs: Costs) -> float:
    """Jobs per second of so many rivals in so many processes, until the last has ended."""
    scenario = Scenario(jobs=0, drains=rivals, cores=costs.cores, shares_machine=True)
    clock, chance = Clock(), Random(scenario.seed)
    database = Database(clock, scenario, costs)
    world = World(clock, scenario, database, Jobs(scenario, chance), chance)
    clients = [Client(database) for _ in range(processes)]
    crew = [Rival(world, clients[number % processes], seconds) for number in range(rivals)]
    for rival in crew:
        rival.start()
    clock.run(until=float("inf"), is_done=lambda: all(rival.ended_at for rival in crew))
    return database.tally.leases * MOST_PER_LEASE / clock.now
