"""Asks a server that no profile knows what it takes, once, before a drain sends it anything else.

A text that is longer than a server takes would fail, and what was learnt by failing is learnt by
every drain anew. So nothing is leased before it is known: what cannot be found out now opens the
breaker, as it would in the drain, or waits for budget and limit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from embed_pipeline.domain.breaker import BreakerStatus
from embed_pipeline.domain.embedding import PreparedText
from embed_pipeline.domain.errors import (
    PROBE_WORD,
    BudgetSpentError,
    CriticalError,
    EmbeddingError,
    EmbedPipelineError,
    PermanentError,
    RateLimitedError,
    TransientError,
)
from embed_pipeline.domain.profiles import Learnt
from embed_pipeline.operations import wiring
from embed_pipeline.operations.requests import send_counted, wait_for_grant
from embed_pipeline.store.connection import connected
from embed_pipeline.store.servers import read_learnt, write_learnt
from embed_pipeline.worker.processing import UNNAMED_PAUSE
from embed_pipeline.worker.stopping import unless_stopped

if TYPE_CHECKING:
    from embed_pipeline.domain.ports import Embedder
    from embed_pipeline.domain.rate_window import Grant
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.database import Database
    from embed_pipeline.store.queue import Queue
    from embed_pipeline.worker.options import DrainOptions
    from embed_pipeline.worker.outage import Say

logger = logging.getLogger(__name__)

ASK_AGAIN: Final = timedelta(seconds=30)
"""A drain that waits for jobs asks so often, until there is an answer."""


async def with_learnt(database: Database, settings: Settings) -> Settings:
    """These settings with what was found out about their server; as they are where nothing was."""
    server = settings.unknown_server
    if server is None or settings.is_all_set:
        return settings
    learnt = await read_learnt(database, settings.queue)
    return settings.keeping_to(learnt) if learnt and learnt.server == server else settings


async def relearnt(settings: Settings) -> Settings:
    """The same as ``with_learnt`` without an open driver; as set where nothing can be read."""
    if settings.unknown_server is None:
        return settings
    try:
        async with connected(wiring.connection(settings)) as driver:
            return await with_learnt(wiring.queue_on(driver, settings).database, settings)
    except EmbedPipelineError:
        return settings


async def remember_now(settings: Settings, learnt: Learnt) -> bool:
    """Keep what was found out by hand; False where the queue cannot be reached."""
    try:
        async with connected(wiring.connection(settings)) as driver:
            database = wiring.queue_on(driver, settings).database
            return await write_learnt(database, settings.queue, learnt)
    except EmbedPipelineError:
        return False


@asynccontextmanager
async def ready_to_drain(
    queue: Queue,
    settings: Settings,
    embedder: Embedder,
    options: DrainOptions,
    *,
    owner: str,
    stop: asyncio.Event,
    say: Say = lambda _: None,
) -> AsyncGenerator[tuple[Settings, Embedder, DrainOptions]]:
    """What a drain works with, once it is known what the server takes; closes the embedder."""
    seconds = options.max_time / timedelta(seconds=1) if options.max_time else None
    learning = Learning(queue, settings, owner, say)
    asking = learning.known(waits=not options.until_empty)
    try:
        known = await unless_stopped(asking, stop, seconds=seconds)
        if known is None:
            # What the server would refuse is not sent.
            options = replace(options, max_jobs=0, refusal=learning.why_not)
        elif known != settings:
            await embedder.close()
            settings, embedder = known, wiring.open_embedder(known)
        yield settings, embedder, options
    finally:
        await embedder.close()


@dataclass(slots=True)
class Learning:
    """Finds out what the server of a drain takes, and remembers it."""

    queue: Queue
    settings: Settings
    owner: str
    say: Say
    why_not: str | None = None
    """Why the server could not be asked."""
    _has_said: set[str] = field(default_factory=set)

    async def known(self, *, waits: bool) -> Settings | None:
        """The settings with what is known of the server; None while that cannot be found out.

        With ``waits`` asks until there is an answer.
        """
        while True:
            known = await with_learnt(self.queue.database, self.settings)
            if known.unknown_server is None or known.is_all_set:
                return known
            if await self._ask():
                return await with_learnt(self.queue.database, self.settings)
            if not waits:
                return None
            await asyncio.sleep(ASK_AGAIN / timedelta(seconds=1))

    async def _ask(self) -> bool:
        """Ask once; whether there is nothing left to find out."""
        from embed_pipeline.operations.probing import Probe  # which needs the wiring, as this does

        state = await self.queue.switch.state()
        is_open = state.breaker.status is not BreakerStatus.CLOSED
        if state.is_paused or (
            is_open and not state.breaker.is_probe_due(await self.queue.batches.now())
        ):
            self.why_not = state.closed
            return False
        try:
            learnt = await Probe(self.settings, self._is_taken).found()
        except BudgetSpentError as spent:
            self.why_not = str(spent)
            self._tell(f"the server is not asked yet what it takes: {spent}")
            return False
        except EmbeddingError as error:
            is_outage = not isinstance(error, CriticalError)
            breaker = await self.queue.switch.open_breaker(str(error), is_outage=is_outage)
            self.why_not = str(breaker)
            self._tell(f"what the server takes cannot be found out yet: {error}")
            return False
        if learnt is None:
            # The drain's own guard stops at the first request, fails no job, and says what to set.
            self._tell("the server refuses even a harmless word, whatever form it has")
            return True
        await write_learnt(self.queue.database, self.settings.queue, learnt)
        self._tell(f"the server, asked once, {learnt}; 'embed-pipeline doctor --probe' asks anew")
        return True

    async def _is_taken(self, embedder: Embedder, texts: Sequence[PreparedText]) -> bool:
        try:
            await self._send(embedder, texts)
        except BudgetSpentError:
            raise
        except PermanentError:
            return False
        except TransientError:
            if len(texts) == 1 and texts[0].text == PROBE_WORD:
                raise
            # Either the server stumbles over so much, or it has just gone away.
            await self._send(embedder, [embedder.prepare(PROBE_WORD)])
            return False
        return True

    async def _send(self, embedder: Embedder, texts: Sequence[PreparedText]) -> None:
        limiter = wiring.open_limiter(self.queue, self.settings)
        tokens = sum(text.tokens for text in texts)
        while True:
            await wait_for_grant(limiter, tokens=tokens, on_wait=self._on_wait)
            try:
                await send_counted(self.queue, self.settings, embedder, limiter, texts)
            except RateLimitedError as error:
                await limiter.correct(counted=tokens, charged=0)
                pause = error.asked or UNNAMED_PAUSE
                await limiter.hold(pause, owner=self.owner, said=str(error))
            except (PermanentError, CriticalError):
                await limiter.correct(counted=tokens, charged=0)
                raise
            else:
                return

    def _on_wait(self, grant: Grant) -> None:
        why = f"; {grant.hold}" if grant.hold else ""
        self._tell(f"the server is asked what it takes as fast as the rate limit allows{why}")

    def _tell(self, line: str) -> None:
        if line not in self._has_said:
            self._has_said.add(line)
            logger.info("owner=%s %s", self.owner, line)
            self.say(line)
