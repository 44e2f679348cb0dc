"""What a drain that watches the queue does while the database does not answer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from embed_pipeline.domain.errors import DatabaseFault
from embed_pipeline.worker.lease_keeper import Holdings
from embed_pipeline.worker.settling import Settler

if TYPE_CHECKING:
    from embed_pipeline.worker.options import Parts

logger = logging.getLogger(__name__)

Say = Callable[[str], None]
ReleaseOwner = Callable[[str], Awaitable[int]]

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
"""Seconds before a try; each is twice as long as the one before."""
CALM: Final = 60.0
"""Seconds after which an outage is a new one and the pauses begin to grow anew. A server may answer
one question and refuse the next, again and again."""


class Outage:
    """Waits for the database, and then releases what the drain held when it went away."""

    def __init__(
        self,
        parts: "Parts",
        settler: Settler,
        holdings: Holdings,
        owner: str,
        stop: asyncio.Event,
        say: Say,
    ) -> None:
        self._parts = parts
        self._settler = settler
        self._holdings = holdings
        self._owner = owner
        self._stop = stop
        self._say = say
        self._pause = FIRST_PAUSE
        self._ended_at = float("-inf")

    async def sit_out(self, error: Exception, *, deadline: float = float("inf")) -> None:
        """Return when everything held is released, or the drain should end meanwhile.

        Raises:
            Exception: the database is back, and refuses; waiting will not change that.
        """
        began = self._parts.clock()
        if began - self._ended_at > CALM:
            self._pause = FIRST_PAUSE
        logger.warning("owner=%s waits for the database: %s", self._owner, type(error).__name__)
        self._say(f"Neo4j does not answer ({type(error).__name__}); waiting until it does")
        while not await self._is_over(deadline):
            try:
                await self._give_back()
            except Exception as again:
                if self._parts.fault_of(again) is DatabaseFault.FINAL:
                    raise
            else:
                self._ended_at = self._parts.clock()
                self._say(f"Neo4j answers again after {self._ended_at - began:.0f} s; going on")
                return

    async def _is_over(self, deadline: float) -> bool:
        """Wait; returns whether the drain was told to stop or its time is up."""
        pause = min(self._pause, max(0.0, deadline - self._parts.clock()))
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), pause)
        return self._stop.is_set() or self._parts.clock() >= deadline

    async def _give_back(self) -> None:
        await self._settler.release(self._holdings.all())
        if self._parts.release_owner is not None:
            # A lease that was committed, but whose answer was lost: no other worker knows it.
            await self._parts.release_owner(self._owner)
