"""Jobs on their way to become requests: leased, then read, then ready to be sent."""

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from embed_pipeline.domain.job import Lease
from embed_pipeline.worker.batching import Item
from embed_pipeline.worker.intake import Intake, Taken

LONG_LEASE: Final = 1.0
"""Seconds; a lease of 2,048 jobs takes 0.2 by itself: whoever needs more has waited for others."""


class Ahead:
    """One lease, one reading and the requests of one reading, at the same time and no more.

    While one lease is read, the next one is taken: one after the other was, by the simulation, 3 to
    18 % slower with a provider that answers at once. Where many want leases, one drain the fewer in
    their queue is worth more.
    """

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self.ready: deque[list[Item]] = deque()
        self.taken: Taken | None = None
        """Leased, and to be read when what was read before is under way."""
        self._leasing: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def is_moving(self) -> bool:
        """Whether jobs come to be ready without a further lease."""
        return bool(self._leasing or self.taken or self._reading)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to be sent."""
        return not (self.is_moving or self.ready or self._intake.has_long)

    def may_lease(self, requests: int, *, most: int) -> bool:
        """Whether one more lease may be on its way, beside so many requests.

        What is being read takes one of the places of the requests.
        """
        is_crowded = self._reading and self._intake.lease_took > LONG_LEASE
        is_busy = self._leasing or self.taken or self.ready or is_crowded
        return not is_busy and requests + bool(self._reading) <= most

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What is under way."""
        return [task for task in (self._leasing, self._reading) if task]

    def lease(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin a lease; ``work`` leaves in ``taken`` what it got."""
        self._leasing = asyncio.create_task(work)

    def take_next(self) -> Taken | None:
        """What is to be read now."""
        if self._reading or self.ready:
            return None
        taken, self.taken = self.taken, None
        return taken

    def read(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin to read; ``work`` adds to ``ready``."""
        self._reading = asyncio.create_task(work)

    def discard(self, task: asyncio.Task[Any]) -> bool:
        """Forget a task that is done; whether it was one of these."""
        if task is self._leasing:
            self._leasing = None
        elif task is self._reading:
            self._reading = None
        else:
            return False
        return True

    def give_up(self) -> list[Lease]:
        """Forget what is not worked on; it can be given back."""
        leases = [item.leased.lease for items in self.ready for item in items]
        leases += [leased.lease for leased in self.taken.jobs] if self.taken else []
        leases += self._intake.give_up_long()
        self.ready.clear()
        self.taken = None
        return leases

    async def end(self) -> None:
        """Wait for what is under way."""
        for task in self.tasks:
            with suppress(Exception):
                await task
        self._leasing = self._reading = None
