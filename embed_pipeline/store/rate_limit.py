"""One rate limit for all workers on all machines, in the database they share.

Kept libraries were looked at first. pyrate-limiter wants a bucket that stores one item per request
and asks the client's clock; both are wrong here, where a node of fifty numbers and the server's
clock do, and where a wait must be reported and not slept.
"""

from dataclasses import dataclass, field
from datetime import timedelta

from embed_pipeline.domain.rate_window import (
    Grant,
    RateLimits,
    Slice,
    Window,
    followed,
    hold,
    take,
)
from embed_pipeline.store import cypher_limiter as cypher
from embed_pipeline.store.database import Database, Transaction, duration_ms, fetch, fetch_one
from embed_pipeline.store.records import Properties
from embed_pipeline.store.transactions import new_token


@dataclass(frozen=True, slots=True)
class Neo4jRateLimiter:
    """A sliding window on one node; ``name`` tells providers apart."""

    database: Database
    limits: RateLimits = field(default_factory=RateLimits)
    name: str = "default"

    async def acquire(self, *, tokens: int = 0) -> Grant:
        """Count one request, or say how long to wait.

        A grant whose acknowledgement is lost is counted twice: too few requests, never too many.
        """
        token = new_token()

        async def work(tx: Transaction) -> Grant:
            window, now = await self._lock(tx, token)
            after, grant = take(window, self.limits, now_ms=now, tokens=tokens)
            if grant.is_granted:
                await self._store(tx, after)
            return grant

        return await self.database.write(work)

    async def peek(self) -> Grant:
        """Say whether a request would be granted now; counts nothing."""
        token = new_token()

        async def work(tx: Transaction) -> Grant:
            window, now = await self._lock(tx, token)
            return take(window, self.limits, now_ms=now)[1]

        return await self.database.write(work)

    async def hold(self, pause: timedelta) -> None:
        """Grant nothing for so long: the provider has asked for it."""
        token = new_token()

        async def work(tx: Transaction) -> None:
            window, now = await self._lock(tx, token)
            await self._store(tx, hold(window, pause_ms=duration_ms(pause), now_ms=now))

        await self.database.write(work)

    async def _lock(self, tx: Transaction, token: int) -> tuple[Window, int]:
        await fetch(tx, cypher.LOCK_LIMITER, name=self.name, token=token)
        record = await fetch_one(tx, cypher.READ_LIMITER, name=self.name, now=self.database.now_ms)
        stored, now = _window(record["limiter"]), record["now"]
        window = followed(stored, self.limits, now_ms=now)
        if window != stored:
            await self._store(tx, window)
        return window, now

    async def _store(self, tx: Transaction, window: Window) -> None:
        await fetch(
            tx,
            cypher.WRITE_LIMITER,
            name=self.name,
            starts=[part.start_ms for part in window.slices],
            requests=[part.requests for part in window.slices],
            tokens=[part.tokens for part in window.slices],
            not_before=window.not_before_ms,
            held_at=window.held_at_ms,
        )


def _window(limiter: Properties) -> Window:
    columns = (limiter.get(name, ()) for name in ("starts", "requests", "tokens"))
    return Window(
        tuple(Slice(*part) for part in zip(*columns, strict=True)),
        limiter.get("not_before", 0),
        limiter.get("held_at", 0),
    )
