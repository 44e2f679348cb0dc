"""A process that does transactions, and may end in the middle of one."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from benchmarks.simulation.costs import Cost
from benchmarks.simulation.database import PATIENCE, TIMEOUT, Client, Database
from benchmarks.simulation.jobs import Jobs
from benchmarks.simulation.kernel import Clock, Event, Process, Steps
from benchmarks.simulation.scenario import Scenario
from embed_pipeline.store.database import FIRST_PAUSE, LONGEST_PAUSE


@dataclass(frozen=True, slots=True)
class World:
    """What all drains share."""

    clock: Clock
    scenario: Scenario
    database: Database
    jobs: Jobs
    chance: Random


class Life:
    """All that one process of the operating system does at the same time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._clock = world.clock
        self._database = world.database
        self._tally = world.database.tally
        self._jobs = world.jobs
        self._processes: set[Process] = set()
        self.client = Client(world.database)

    @abstractmethod
    def _give_up(self) -> None:
        """End because the database does not answer."""

    def _kill(self) -> None:
        for process in list(self._processes):
            process.kill()

    def _start(self, steps: Steps) -> Process:
        process = self._clock.start(steps)
        self._processes.add(process)
        return process

    def _transaction(self, make: Callable[[], Steps]) -> Steps:
        """Repeat what the server has ended, until patience ends; then the drain gives up."""
        began, pause = self._clock.now, FIRST_PAUSE
        while True:
            process = self._start(_told(make()))
            self._clock.at(self._clock.now + TIMEOUT, process.kill)
            is_done = yield process.ended
            self._processes.discard(process)
            if is_done:
                return
            self._tally.timeouts += 1
            if self._clock.now + pause >= began + PATIENCE:
                self._clock.at(self._clock.now, self._give_up)
                yield Event(self._clock)
            yield pause * self._world.chance.uniform(0.5, 1)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _spend(self, cost: Cost, jobs: int, *, trips: int) -> Steps:
        """A transaction that holds no lock others wait for."""
        return self._transaction(
            lambda: self._database.transact(self.client, cost, jobs, trips=trips)
        )


def _told(steps: Steps) -> Steps:
    yield from steps
    return True
