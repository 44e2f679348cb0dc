"""One rate limit for all workers on all machines, in the database they share.

Kept libraries were looked at first. pyrate-limiter wants a bucket that stores one item per request
and asks the client's clock; both are wrong here, where a node of fifty numbers and the server's
clock do, and where a wait must be reported and not slept.
"""

import logging
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from embed_pipeline.domain.audit import OperatorAction
from embed_pipeline.domain.budget import Spending, Spent, corrected
from embed_pipeline.domain.holds import (
    LONGEST_HOLD,
    MAX_SAID,
    Allowance,
    Hold,
    Origin,
    Rest,
    cut_of,
)
from embed_pipeline.domain.rate_window import (
    Grant,
    LimiterState,
    RateLimits,
    Slice,
    Window,
    followed,
    hold,
    hold_of,
    learnt,
    released,
    state_of,
    take,
)
from embed_pipeline.domain.redact import one_line, redact
from embed_pipeline.store.audit import AuditNote
from embed_pipeline.store.cypher import limiter as cypher
from embed_pipeline.store.database import Database, Transaction, duration_ms, fetch, fetch_one
from embed_pipeline.store.records import Properties
from embed_pipeline.store.transactions import count, new_token, write_once

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Neo4jRateLimiter:
    """A sliding window on one node; ``name`` tells providers apart.

    ``secrets`` are masked in what the provider said.
    """

    database: Database
    limits: RateLimits = field(default_factory=RateLimits)
    name: str = "default"
    secrets: tuple[str, ...] = field(default=(), repr=False)

    async def acquire(self, *, tokens: int = 0) -> Grant:
        """Count one request, or say how long to wait.

        A grant whose acknowledgement is lost is counted twice: too few requests, never too many.
        """
        token = new_token()

        async def work(tx: Transaction) -> Grant:
            window, now = await self._lock(tx, token)
            after, grant = take(window, self.limits, now_ms=now, tokens=tokens)
            if grant.is_granted:
                left = _left(after) if _left(after) != _left(window) else {}
                await self._store(tx, {**_slices(after), **left, **_spent(after)})
            return grant

        return await self.database.write(work)

    async def spend(self, tokens: int) -> str | None:
        """Charge a batch's tokens to the budget, or say why not; its rate limits are its own.

        Never more than is left: what does not fit goes into requests, which are smaller. What is
        counted twice because an acknowledgement was lost is too much, never too little.
        """
        token = new_token()

        async def work(tx: Transaction) -> str | None:
            window, _ = await self._lock(tx, token)
            budget = self.limits.budget
            after = window.spending.plus(tokens, budget.price.nano_usd(tokens))
            if (used := budget.spent(after)) is not None:
                return f"the rest of {used.setting} does not allow {tokens} tokens more"
            await self._store(tx, _spent(replace(window, spending=after)))
            return None

        return await self.database.write(work)

    async def peek(self) -> Grant:
        token = new_token()

        async def work(tx: Transaction) -> Grant:
            window, now = await self._lock(tx, token)
            return take(window, self.limits, now_ms=now)[1]

        return await self.database.write(work)

    async def hold(self, pause: timedelta, *, owner: str, said: str) -> Grant:
        token = new_token()
        words = one_line(redact(said, self.secrets))[:MAX_SAID]
        origin = Origin(self.database.queue, owner, words)

        async def work(tx: Transaction) -> Grant:
            window, now = await self._lock(tx, token)
            after = hold(window, pause_ms=duration_ms(pause), now_ms=now, origin=origin)
            await self._store(tx, _pause(after))
            return take(after, self.limits, now_ms=now)[1]

        return await self.database.write(work)

    async def learn(self, allowance: Allowance) -> None:
        """Grant no more than the provider says is left, until the limit resets."""
        token = new_token()

        async def work(tx: Transaction) -> None:
            window, now = await self._lock(tx, token)
            await self._store(tx, _left(learnt(window, allowance, now_ms=now)))

        await self.database.write(work)

    async def correct(self, *, counted: int, charged: int) -> None:
        """Replace a counted charge by the actual one; a no-op without a budget."""
        if counted == charged or not self.limits.budget.is_set:
            return
        token = new_token()

        async def work(tx: Transaction) -> None:
            window, _ = await self._lock(tx, token)
            budget = self.limits.budget
            after = corrected(window.spending, budget, counted=counted, charged=charged)
            await self._store(tx, _spent(replace(window, spending=after)))
            # The receipt: twice given back would let more through than the budget.
            await count(tx, self.database.queue, {}, token=token, has_changes=True)

        await write_once(self.database, self.database.queue, token, work)

    async def read(self) -> LimiterState:
        async def work(tx: Transaction) -> LimiterState:
            stored, now = await self._read(tx)
            window = followed(stored, self.limits, now_ms=now)
            return state_of(window, self.limits, name=self.name, now_ms=now)

        return await self.database.read(work)

    async def clear(self) -> Hold | None:
        """End a pause that the provider has asked for; what was granted still counts.

        Returns:
            The pause that was ended. A call whose acknowledgement is lost finds none.
        """
        token = new_token()
        note = AuditNote(
            self.database, OperatorAction.CLEAR_LIMIT, f"limit: {self.name}", self.secrets
        )

        async def work(tx: Transaction) -> Hold | None:
            window, now = await self._lock(tx, token)
            ended_window = released(window)
            await self._store(tx, {**_pause(ended_window), **_left(ended_window)})
            ended = hold_of(window, now_ms=now)
            await note.write(tx, 1 if ended else 0)
            return ended

        return await self.database.write(work)

    async def _lock(self, tx: Transaction, token: int) -> tuple[Window, int]:
        await fetch(tx, cypher.LOCK_LIMITER, name=self.name, token=token)
        stored, now = await self._read(tx)
        window = followed(stored, self.limits, now_ms=now)
        if window != stored:
            await self._store(tx, {**_slices(window), **_pause(window), **_spent(window)})
        asked = timedelta(milliseconds=window.asked_ms)
        if asked > LONGEST_HOLD and window.asked_ms != stored.asked_ms:
            logger.warning("limiter=%s held a pause of %s", self.name, cut_of(asked))
        return window, now

    async def _read(self, tx: Transaction) -> tuple[Window, int]:
        record = await fetch_one(tx, cypher.READ_LIMITER, name=self.name, now=self.database.now_ms)
        return _window(record["limiter"] or {}), record["now"]

    async def _store(self, tx: Transaction, properties: dict[str, Any]) -> None:
        await fetch(tx, cypher.WRITE_LIMITER, name=self.name, properties=properties)


def _window(limiter: Properties) -> Window:
    columns = (limiter.get(name, ()) for name in ("starts", "requests", "tokens"))
    is_noted = limiter.get("hold_owner") is not None
    return Window(
        tuple(Slice(*part) for part in zip(*columns, strict=True)),
        limiter.get("not_before", 0),
        limiter.get("held_at", 0),
        limiter.get("hold_asked", 0),
        Origin(limiter["hold_queue"], limiter["hold_owner"], limiter["hold_said"])
        if is_noted
        else None,
        _rest(limiter, "requests"),
        _rest(limiter, "tokens"),
        Spending(_spent_in(limiter, "day"), _spent_in(limiter, "month")),
    )


def _spent_in(limiter: Properties, period: str) -> Spent:
    names = (f"{period}_start", f"{period}_tokens", f"{period}_nano_usd")
    return Spent(*(limiter.get(name, 0) for name in names))


def _spent(window: Window) -> dict[str, Any]:
    spending = window.spending
    return {
        name: value
        for period, spent in (("day", spending.day), ("month", spending.month))
        for name, value in (
            (f"{period}_start", spent.start_ms),
            (f"{period}_tokens", spent.tokens),
            (f"{period}_nano_usd", spent.nano_usd),
        )
    }


def _rest(limiter: Properties, what: str) -> Rest | None:
    until = limiter.get(f"left_{what}_until")
    return None if until is None else Rest(limiter.get(f"left_{what}", 0), until)


def _left(window: Window) -> dict[str, Any]:
    found = {"requests": window.left_requests, "tokens": window.left_tokens}
    amounts = {f"left_{what}": rest and rest.amount for what, rest in found.items()}
    return amounts | {f"left_{what}_until": rest and rest.until_ms for what, rest in found.items()}


def _slices(window: Window) -> dict[str, Any]:
    return {
        "starts": [part.start_ms for part in window.slices],
        "requests": [part.requests for part in window.slices],
        "tokens": [part.tokens for part in window.slices],
    }


def _pause(window: Window) -> dict[str, Any]:
    origin = window.origin
    return {
        "not_before": window.not_before_ms,
        "held_at": window.held_at_ms,
        "hold_asked": window.asked_ms,
        "hold_queue": origin.queue if origin else None,
        "hold_owner": origin.owner if origin else None,
        "hold_said": origin.said if origin else None,
    }
