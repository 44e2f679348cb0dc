"""Neo4j as a drain sees it: transactions cost time, wait for locks, and are ended when late."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from benchmarks.simulation.costs import MICROSECOND, Cost, Costs
from benchmarks.simulation.kernel import Clock, Steps
from benchmarks.simulation.resources import Lock, Processors
from benchmarks.simulation.scenario import Scenario
from embed_pipeline.domain.rate_window import Window
from embed_pipeline.store.database import TRANSACTION_PATIENCE, TRANSACTION_TIMEOUT

TIMEOUT: Final = TRANSACTION_TIMEOUT.total_seconds()
PATIENCE: Final = TRANSACTION_PATIENCE.total_seconds()
CHANGE: Final = 5
"""Round trips of a transaction that locks, reads, writes and commits."""
QUESTION: Final = 2


@dataclass(slots=True)
class Tally:
    """What is counted on the way."""

    requests: int = 0
    texts: int = 0
    refused: int = 0
    leases: int = 0
    empty_leases: int = 0
    released: int = 0
    timeouts: int = 0
    drains_given_up: int = 0
    lease_waits: list[float] = field(default_factory=list[float])
    mutex_needed: float = 0.0
    """Seconds that the leases would have held the mutex with nobody else on the server."""
    limiter_needed: float = 0.0
    index_needed: float = 0.0
    request_seconds: float = 0.0


class Database:
    """The server: cores, the mutex of the leases, the limiter's node and the vector index."""

    def __init__(self, clock: Clock, scenario: Scenario, costs: Costs) -> None:
        self.clock = clock
        self.scenario = scenario
        self.costs = costs
        self.tally = Tally()
        self.cores = Processors(clock, scenario.cores)
        self.mutex = Lock(clock)
        self.limiter = Lock(clock)
        self.index = Lock(clock)
        self.window = Window()

    def lease(self, client: "Client", on_offer: Callable[[], int]) -> Steps:
        """Hold the mutex for a whole transaction: its client and its network are part of it."""
        asked = self.clock.now
        ticket = self.mutex.ask()
        try:
            yield ticket
            self.tally.lease_waits.append(self.clock.now - asked)
            jobs = on_offer()
            yield from self.transact(client, self.costs.lease, jobs, trips=CHANGE)
            self.tally.mutex_needed += self._needed(self.costs.lease, jobs, CHANGE)
        finally:
            self.mutex.leave(ticket)

    def ask_limit(self, client: "Client") -> Steps:
        """Hold the limiter's node for a transaction."""
        ticket = self.limiter.ask()
        try:
            yield ticket
            yield from self.transact(client, self.costs.grant, 1, trips=CHANGE)
            self.tally.limiter_needed += self._needed(self.costs.grant, 1, CHANGE)
        finally:
            self.limiter.leave(ticket)

    def enter_index(self, jobs: int) -> Steps:
        """Vectors enter the index one transaction at a time; a commit is not ended by a timeout."""
        if not self.scenario.has_index:
            return
        seconds = jobs * self.costs.index * MICROSECOND
        ticket = self.index.ask()
        try:
            yield ticket
            yield from self.cores.compute(seconds)
            self.tally.index_needed += seconds
        finally:
            self.index.leave(ticket)

    def transact(self, client: "Client", cost: Cost, jobs: int, *, trips: int) -> Steps:
        """Compute in the drain, then in the server, and wait for what is neither."""
        in_client, in_server, waiting = cost.seconds(jobs)
        yield from client.compute(in_client)
        waiting += trips * self._round_trip
        if waiting:
            yield waiting
        yield from self.cores.compute(in_server)

    @property
    def _round_trip(self) -> float:
        return 0.0 if self.scenario.shares_machine else self.scenario.round_trip

    def _needed(self, cost: Cost, jobs: int, trips: int) -> float:
        return sum(cost.seconds(jobs)) + trips * self._round_trip


class Client:
    """The process of a drain: one thing at a time, on a core of its own or on those of Neo4j."""

    def __init__(self, database: Database) -> None:
        clock = database.clock
        shares = database.scenario.shares_machine
        self.cores = database.cores if shares else Processors(clock, 1)
        self._turn = Lock(clock)

    def compute(self, seconds: float) -> Steps:
        """Python computes one thing at a time, however many tasks there are."""
        ticket = self._turn.ask()
        try:
            yield ticket
            yield from self.cores.compute(seconds)
        finally:
            self._turn.leave(ticket)
