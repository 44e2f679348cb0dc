"""Requests to a provider outside of a drain: granted by the limit that all share, and counted."""

import asyncio
import math
from collections.abc import Callable, Sequence
from datetime import timedelta

from embed_pipeline.domain.embedding import PreparedText, inputs_of, whole_vectors
from embed_pipeline.domain.errors import BudgetSpentError, TransientError
from embed_pipeline.domain.ports import Embedder, RateLimiter
from embed_pipeline.domain.rate_window import Grant
from embed_pipeline.domain.vector import Vector
from embed_pipeline.settings import Settings
from embed_pipeline.store.queue import Queue
from embed_pipeline.worker.processing import LOOK_AGAIN

OnWait = Callable[[Grant], None]
"""Called each time the rate limit causes a wait."""


async def wait_for_grant(limiter: RateLimiter, *, tokens: int, on_wait: OnWait) -> None:
    """Wait until so many tokens may be sent.

    Raises:
        BudgetSpentError: no more may be spent for now; there is no waiting for midnight.
    """
    while not (grant := await limiter.acquire(tokens=tokens)).is_granted:
        if grant.budget is not None:
            raise BudgetSpentError(str(grant.budget))
        on_wait(grant)
        await asyncio.sleep(min(grant.wait, LOOK_AGAIN) / timedelta(seconds=1))


async def check_grant(limiter: RateLimiter) -> None:
    """Check, without counting it, that a request would be granted now: for read-only callers.

    Raises:
        BudgetSpentError: no more may be spent for now.
        TransientError: the limit is used up, and says for how long.
    """
    state = await limiter.read()
    if spent := next((use for use in state.budget if use.is_spent), None):
        raise BudgetSpentError(str(spent))
    if state.wait:
        seconds = math.ceil(state.wait / timedelta(seconds=1))
        raise TransientError(f"the rate limit allows no request now; ask again in {seconds} s")


async def send_counted(
    queue: Queue,
    settings: Settings,
    embedder: Embedder,
    limiter: RateLimiter,
    texts: Sequence[PreparedText],
) -> list[Vector]:
    """Send a granted request, and count its cost.

    Raises:
        EmbeddingError: the provider did not embed the texts.
    """
    inputs = inputs_of(texts)
    embedded = await embedder.embed(inputs)
    counted = sum(text.tokens for text in texts)
    await limiter.correct(counted=counted, charged=embedded.tokens)
    price = settings.price.nano_usd(embedded.tokens)
    await queue.admin.count({"requests": 1, "tokens": embedded.tokens, "cost_nano_usd": price})
    if len(embedded.vectors) != len(inputs):
        raise TransientError(
            f"the provider sent {len(embedded.vectors)} vectors for {len(inputs)} texts"
        )
    return whole_vectors(embedded.vectors, texts)
