"""What the layers promise each other.

``JobStore`` is all a worker knows of the queue: every write about a leased job takes a ``Lease`` or
a row that holds one, never a bare id, so that fencing cannot be forgotten.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from embed_pipeline.domain.breaker import Breaker
from embed_pipeline.domain.embedding import Embedded, PreparedText, RequestLimits
from embed_pipeline.domain.fairness import Lane
from embed_pipeline.domain.holds import Allowance, Hold
from embed_pipeline.domain.job import Lease
from embed_pipeline.domain.metrics import QueueState
from embed_pipeline.domain.rate_window import Grant, LimiterState
from embed_pipeline.domain.results import (
    Beat,
    Completion,
    CompletionOutcome,
    Failure,
    FailureOutcome,
    LeaseBatch,
    LoadedEntity,
    RecoveredJob,
)
from embed_pipeline.domain.vector import Vector


class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def model(self) -> str:
        """The name under which the vectors are kept apart from those of other models."""
        ...

    @property
    def dimensions(self) -> int:
        """The length of every vector."""
        ...

    @property
    def limits(self) -> RequestLimits:
        """How much one request may hold."""
        ...

    def prepare(self, text: str) -> PreparedText:
        """Count the tokens of a text and cut it if it is too long for the model."""
        ...

    async def embed(self, texts: Sequence[PreparedText]) -> Embedded:
        """Send one request; the answer is not checked. Raises ``EmbeddingError``."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


class JobStore(Protocol):
    """The worker's side of the queue."""

    async def lease(
        self,
        *,
        owner: str,
        model: str,
        limit: int,
        duration: timedelta,
        lane: Lane = Lane.ANY,
        request: str | None = None,
    ) -> LeaseBatch:
        """Take due jobs of ``model``; a repeated ``request`` returns what it already holds."""
        ...

    async def heartbeat(self, leases: Sequence[Lease], *, duration: timedelta) -> Beat:
        """Extend the leases that are still held; say which are lost, cancelled or settled."""
        ...

    async def check(self, leases: Sequence[Lease]) -> Beat:
        """Say which leases are still held; changes nothing."""
        ...

    async def load(
        self, leases: Sequence[Lease], *, longest: int | None = None
    ) -> list[LoadedEntity]:
        """Read the entities; jobs of vanished or newer ones are cancelled at once.

        Of texts with more than ``longest`` characters only the size is read; without it, of texts
        with more than their share of what is read in one go. Raises ``TooMuchAtOnceError`` where
        the database has no time or memory for so many.
        """
        ...

    async def find_vectors(
        self, hashes: Sequence[str], *, model: str, dimensions: int
    ) -> Mapping[str, Vector]:
        """Vectors of texts that were embedded before, by hash."""
        ...

    async def find_pieces(
        self, hashes: Sequence[str], *, model: str, dimensions: int
    ) -> Mapping[str, Vector]:
        """Vectors of pieces that were embedded before, by the hash of the piece."""
        ...

    async def find_forced(self, leases: Sequence[Lease]) -> set[Lease]:
        """Leases of jobs that are to ask the provider, whatever vectors the graph has."""
        ...

    async def complete(self, rows: Sequence[Completion]) -> list[CompletionOutcome]:
        """Store vectors and finish jobs in one transaction; one outcome per row, in order."""
        ...

    async def fail(self, rows: Sequence[Failure]) -> list[FailureOutcome]:
        """Record failures and let the retry policy decide; one outcome per row, in order."""
        ...

    async def release(self, leases: Sequence[Lease]) -> int:
        """Give jobs back untried, attempt refunded; returns how many were still held."""
        ...

    async def recover_expired(
        self, *, limit: int, grace: timedelta = timedelta(0)
    ) -> list[RecoveredJob]:
        """Take expired leases away, oldest first."""
        ...


class Counters(Protocol):
    """Events that leave no trace on a job, added up over all workers."""

    async def count(self, counts: Mapping[str, int]) -> None:
        """Add to the counters; their names are those of ``domain.metrics.COUNTERS``."""
        ...


class QueueSwitch(Protocol):
    """Turns the queue off and on."""

    async def pause(self, *, by: str) -> None:
        """Give out no more leases; what is leased goes on."""
        ...

    async def resume(self, *, close_breaker: bool = False) -> None:
        """Give out leases again; an open breaker holds on unless it is closed with it."""
        ...

    async def state(self) -> QueueState:
        """Say whether the queue is paused and how the breaker stands."""
        ...

    async def open_breaker(self, reason: str, *, is_outage: bool = False) -> Breaker:
        """Stop all leases after a global fault, or while the provider is down."""
        ...

    async def close_breaker(self) -> None:
        """Close the breaker after a probe that worked."""
        ...


class RateLimiter(Protocol):
    """One limit for all workers on all machines."""

    async def acquire(self, *, tokens: int = 0) -> Grant:
        """Count one request, or say how long to wait."""
        ...

    async def peek(self) -> Grant:
        """Say whether a request would be granted now; counts nothing."""
        ...

    async def hold(self, pause: timedelta, *, owner: str, said: str) -> Grant:
        """Grant nothing for so long, as far as that is allowed: the provider has asked for it.

        Args:
            pause: what it wants.
            owner: whom it told.
            said: its words, as they may be shown.

        Returns:
            How long everybody waits now.
        """
        ...

    async def learn(self, allowance: Allowance) -> None:
        """Grant no more than the provider says is left."""
        ...

    async def correct(self, *, counted: int, charged: int) -> None:
        """Put the budget right: a request that was granted with ``counted`` tokens cost so many."""
        ...

    async def read(self) -> LimiterState:
        """Say how the limiter stands; changes nothing."""
        ...

    async def clear(self) -> Hold | None:
        """End a pause that the provider has asked for; what was granted still counts."""
        ...
