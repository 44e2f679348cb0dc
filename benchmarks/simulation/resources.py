"""What there is too little of: locks and processors."""

import heapq
from collections import deque
from itertools import count

from benchmarks.simulation.kernel import Clock, Event, Steps


class Lock:
    """One holder at a time, the others in the order of their coming."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[Event] = deque()
        self._holder: Event | None = None
        self._since = 0.0
        self.seconds_held = 0.0

    def ask(self) -> Event:
        """Queue up; the ticket fires when it is one's turn. ``leave`` must follow in any case."""
        ticket = Event(self._clock)
        if self._holder is None:
            self._hand_to(ticket)
        else:
            self._waiting.append(ticket)
        return ticket

    def leave(self, ticket: Event) -> None:
        """Give the lock back, or the place in the queue."""
        if ticket is not self._holder:
            self._waiting.remove(ticket)
            return
        self.seconds_held += self._clock.now - self._since
        self._holder = None
        if self._waiting:
            self._hand_to(self._waiting.popleft())

    def _hand_to(self, ticket: Event) -> None:
        self._holder, self._since = ticket, self._clock.now
        ticket.fire()


class Processors:
    """Some cores, shared evenly by all that is to be computed; nothing uses more than one.

    Kept as one number, the work that each task has got so far: a task ends when that number has
    grown by its own work. So an arrival costs a logarithm, however many tasks there are.
    """

    def __init__(self, clock: Clock, cores: float) -> None:
        self._clock = clock
        self._cores = cores
        self._given = 0.0
        self._tasks: list[tuple[float, int, Event]] = []
        self._order = count()
        self._active = 0
        self._asof = 0.0
        self._version = 0
        self.seconds_worked = 0.0

    def compute(self, seconds: float) -> Steps:
        """Return when so many seconds of one core were spent."""
        if seconds <= 0:
            return
        self._catch_up()
        task = Event(self._clock)
        heapq.heappush(self._tasks, (self._given + seconds, next(self._order), task))
        self._active += 1
        self._plan()
        try:
            yield task
        finally:
            if not task.is_over:
                self._catch_up()
                task.fire()
                self._active -= 1
                self._plan()

    @property
    def _speed(self) -> float:
        return min(1.0, self._cores / self._active) if self._active else 0.0

    def _catch_up(self) -> None:
        elapsed = self._clock.now - self._asof
        self._asof = self._clock.now
        self._given += elapsed * self._speed
        self.seconds_worked += elapsed * self._speed * self._active

    def _plan(self) -> None:
        """Look again when the next task ends; what was planned before is void."""
        self._version += 1
        while self._tasks and self._tasks[0][2].is_over:
            heapq.heappop(self._tasks)
        if self._tasks:
            left = max(0.0, self._tasks[0][0] - self._given) / self._speed
            self._clock.at(self._clock.now + left, self._end_first, self._version)

    def _end_first(self, version: int) -> None:
        if version != self._version:
            return
        self._catch_up()
        _, _, task = heapq.heappop(self._tasks)
        self._active -= 1
        task.fire()
        self._plan()
