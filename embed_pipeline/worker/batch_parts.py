"""What making and collecting batches share."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final
from uuid import uuid4

from embed_pipeline.domain.batch import KEY, TURN
from embed_pipeline.domain.batch_ports import BatchProvider, BatchStore, Purse
from embed_pipeline.domain.job import Lease
from embed_pipeline.worker.options import Parts
from embed_pipeline.worker.settling import Settler

logger = logging.getLogger(__name__)

BEATS_PER_TURN: Final = 4
FOR_EVER: Final = float("inf")
COUNTED: Final = ("completed", "cache_hits")
"""What is counted as it happens; requests, tokens and their price once for each batch."""


class TurnLostError(Exception):
    """Another worker has taken the batch and given its jobs back."""


class Step(StrEnum):
    """The last completed step; a crash after any of them pays for nothing twice."""

    LEASED = "jobs are leased"
    UPLOADED = "the input file is sent"
    CREATING = "it is written down that the provider is asked"
    HELD = "the leases last as long as the batch"
    CREATED = "the provider has the batch"
    SUBMITTED = "its id is written down"
    PAGE = "some answers are stored"
    COLLECTED = "all answers are stored"


@dataclass(frozen=True, slots=True)
class BatchParts:
    """What creating and collecting batches share."""

    parts: Parts
    batches: BatchStore
    provider: BatchProvider
    purse: Purse
    queue: str
    holder: str = field(default_factory=lambda: uuid4().hex)
    """The holder of a batch; a new id each time, so that none is taken for a dead one."""
    passed: Callable[[Step], None] = lambda _: None
    """Is told of every step; for tests."""

    def metadata(self, id_: str) -> dict[str, str]:
        """The metadata by which the provider's list identifies the batch."""
        return {KEY: id_, "queue": self.queue}

    @asynccontextmanager
    async def turn(self, id_: str) -> AsyncGenerator[None]:
        """Extend the turn on a batch from time to time."""
        beating = asyncio.create_task(self._beat(id_))
        try:
            yield
        finally:
            beating.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await beating

    async def _beat(self, id_: str) -> None:
        while True:
            await asyncio.sleep(TURN.total_seconds() / BEATS_PER_TURN)
            try:
                await self.batches.write(id_, holder=self.holder)
            except Exception as error:
                logger.warning("batch=%s cannot be held: %s", id_, type(error).__name__)

    async def write(self, id_: str, **properties: Any) -> None:
        """Update a batch; raises ``TurnLostError`` if it is not ours any more."""
        if not await self.batches.write(id_, holder=self.holder, **properties):
            raise TurnLostError(f"batch {id_} was taken by somebody else")

    async def drop(self, id_: str) -> None:
        """Forget a batch; raises ``TurnLostError`` if it is not ours any more."""
        if not await self.batches.drop(id_, holder=self.holder):
            raise TurnLostError(f"batch {id_} was taken by somebody else")

    async def refund(self, tokens: int) -> None:
        """Take back what the budget was charged for texts that the provider will not charge.

        After it is written down that it has none of them: a crash counts too much, never too
        little.
        """
        await self.purse.correct(counted=tokens, charged=0)

    async def let_go(self, id_: str) -> None:
        """End the turn at once; if that fails, others wait until it expires."""
        with suppress(Exception):
            await self.batches.let_go(id_, holder=self.holder)


async def give_back(leases: Sequence[Lease], settler: Settler) -> None:
    """Give jobs back untried, attempts refunded; those with another holder are left alone."""
    settler.holdings.add(leases, deadline=FOR_EVER)
    await settler.release(leases)
