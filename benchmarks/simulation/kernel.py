"""Discrete events: processes are generators that yield seconds to sleep or an event to wait for."""

import heapq
from collections.abc import Callable, Generator
from itertools import count
from typing import Any

Steps = Generator["float | Event", Any, Any]
"""What a process does; it may be closed at any yield, so what it holds belongs into ``finally``."""


class Event:
    """Happens once; whoever waits for it goes on at that moment."""

    __slots__ = ("_waiting", "clock", "is_over", "value")

    def __init__(self, clock: "Clock") -> None:
        self.clock = clock
        self.is_over = False
        self.value: Any = None
        self._waiting: list[Process] = []

    def fire(self, value: Any = None) -> None:
        """Let it happen; a second time changes nothing."""
        if self.is_over:
            return
        self.is_over, self.value = True, value
        for process in self._waiting:
            self.clock.at(self.clock.now, process.resume, value)

    def awaited_by(self, process: "Process") -> None:
        """Resume the process when it happens."""
        self._waiting.append(process)


class Clock:
    """The time, and what is to be done at which time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()

    def at(self, time: float, action: Callable[..., None], *args: Any) -> None:
        """Do something at a time; in the order of asking where times are the same."""
        heapq.heappush(self._agenda, (time, next(self._order), action, args))

    def start(self, steps: Steps) -> "Process":
        """Begin a process, now."""
        process = Process(self, steps)
        self.at(self.now, process.resume)
        return process

    def run(self, *, until: float, is_done: Callable[[], bool]) -> None:
        """Go on until a time, or until everything is done."""
        while self._agenda and not is_done():
            time, _, action, args = heapq.heappop(self._agenda)
            if time > until:
                self.now = until
                return
            self.now = time
            self.events += 1
            action(*args)


class Process:
    """One generator on its way; ``ended`` fires with what it returns, ``None`` if it was killed."""

    __slots__ = ("_clock", "_steps", "ended")

    def __init__(self, clock: Clock, steps: Steps) -> None:
        self._clock = clock
        self._steps = steps
        self.ended = Event(clock)

    def resume(self, value: Any = None) -> None:
        """Go to the next wait."""
        if self.ended.is_over:
            return
        try:
            wish = self._steps.send(value)
            while isinstance(wish, Event) and wish.is_over:
                wish = self._steps.send(wish.value)
        except StopIteration as end:
            self.ended.fire(end.value)
            return
        if isinstance(wish, Event):
            wish.awaited_by(self)
        else:
            self._clock.at(self._clock.now + wish, self.resume)

    def kill(self) -> None:
        """End it where it stands; its ``finally`` blocks are run."""
        if not self.ended.is_over:
            self._steps.close()
            self.ended.fire()
