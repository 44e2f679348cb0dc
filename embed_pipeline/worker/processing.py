"""The way of one batch: ask the provider, then complete, fail or give back."""

import asyncio
import logging
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from embed_pipeline.domain.breaker import BreakerStatus
from embed_pipeline.domain.errors import (
    CriticalError,
    EmbeddingError,
    RateLimitedError,
    TransientError,
)
from embed_pipeline.domain.results import Completion
from embed_pipeline.worker.asking import Answer, Asking
from embed_pipeline.worker.batching import Item
from embed_pipeline.worker.options import DrainOptions
from embed_pipeline.worker.report import DrainReport
from embed_pipeline.worker.settling import Settler

if TYPE_CHECKING:
    from embed_pipeline.worker.engine import Parts

logger = logging.getLogger(__name__)

UNNAMED_PAUSE: Final = timedelta(seconds=5)
"""For a provider that says 429 but not for how long."""


class Processor:
    """Works on batches; several at once."""

    def __init__(
        self, parts: "Parts", options: DrainOptions, settler: Settler, report: DrainReport
    ) -> None:
        self._parts = parts
        self._options = options
        self._settler = settler
        self._report = report
        self._pause: timedelta | None = None
        self._has_worked = False
        self.critical: CriticalError | None = None

    @property
    def is_paused(self) -> bool:
        """The provider has asked to wait, and nobody has heard it yet."""
        return self._pause is not None

    def take_pause(self) -> float | None:
        """Seconds that the provider has asked to wait for, once."""
        pause, self._pause = self._pause, None
        return None if pause is None else pause.total_seconds()

    async def complete_known(self, rows: Sequence[Completion]) -> None:
        """Copy vectors that the graph has already."""
        await self._settler.complete(rows)

    async def process(self, items: Sequence[Item], *, send_by: float) -> None:
        """Embed the items of one granted request and settle every one of them."""
        try:
            async with asyncio.timeout(self._options.job_timeout.total_seconds()):
                if time.monotonic() > send_by:
                    await self._wait_for_grant(sum(item.text.tokens for item in items))
                await self._embed(items)
        except TimeoutError:
            seconds = self._options.job_timeout.total_seconds()
            late = TransientError(f"the work took longer than {seconds:g} s")
            await self._settler.fail(items, late)
        except RateLimitedError as error:
            self._report.requests_limited += 1
            self._pause = error.retry_after or UNNAMED_PAUSE
            await self._parts.limiter.hold(self._pause)
            await self._settler.release([item.leased.lease for item in items])
        except CriticalError as error:
            self.critical = error
            await self._settler.fail(items, error)
        except EmbeddingError as error:
            await self._settler.fail(items, error)

    async def _embed(self, items: Sequence[Item]) -> None:
        asking = Asking(self._parts.embedder, self._wait_for_grant, self._report)
        answers = await asking.ask(items)
        await self._note_success(answers)
        answered = dict(zip((item.leased.lease for item in items), answers, strict=True))
        rows = []
        for item in await self._settler.still_held(items):
            answer = answered[item.leased.lease]
            if isinstance(answer, EmbeddingError):
                await self._settler.fail([item], answer)
            else:
                rows.append(_completion(item, answer))
        await self._settler.complete(rows)

    async def _wait_for_grant(self, tokens: int) -> None:
        # Jobs in flight keep their leases meanwhile; the heartbeat extends them.
        while not (grant := await self._parts.limiter.acquire(tokens=tokens)).is_granted:
            self._report.seconds_waiting += grant.wait.total_seconds()
            await asyncio.sleep(grant.wait.total_seconds())

    async def _note_success(self, answers: Sequence[Answer]) -> None:
        """The first vector of a drain shows that the provider works: close the breaker."""
        if self._has_worked or all(isinstance(answer, EmbeddingError) for answer in answers):
            return
        self._has_worked = True
        if (await self._parts.switch.state()).breaker.status is not BreakerStatus.CLOSED:
            logger.info("owner=%s the provider works again", self._report.owner)
            await self._parts.switch.close_breaker()


def _completion(item: Item, vector: Sequence[float]) -> Completion:
    return Completion(
        item.leased.lease,
        vector,
        item.text_hash,
        tokens=item.text.tokens,
        tokens_in=item.text.tokens_cut,
    )
