"""The way of one batch: ask the provider, then complete, fail or give back."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from embed_pipeline.domain.breaker import Breaker, BreakerStatus
from embed_pipeline.domain.errors import (
    BudgetSpentError,
    CriticalError,
    EmbeddingError,
    NobodyAskedError,
    OutageError,
    PermanentError,
    RateLimitedError,
    TransientError,
)
from embed_pipeline.domain.holds import cut_of
from embed_pipeline.domain.rate_window import Grant
from embed_pipeline.domain.results import Completion
from embed_pipeline.worker.asking import Asking, IsWanted, Line, UnwantedError
from embed_pipeline.worker.batching import Answer, Item, first_tokens
from embed_pipeline.worker.options import DrainOptions
from embed_pipeline.worker.report import DrainReport
from embed_pipeline.worker.settling import Settler

if TYPE_CHECKING:
    from embed_pipeline.worker.options import Parts

logger = logging.getLogger(__name__)

UNNAMED_PAUSE: Final = timedelta(seconds=5)
"""For a provider that says 429 but not for how long."""
LOOK_AGAIN: Final = timedelta(seconds=10)
"""Between two looks, while waiting for the limit, whether its pause was ended."""


class Processor:
    """Processes batches, several at once."""

    def __init__(
        self, parts: "Parts", options: DrainOptions, settler: Settler, report: DrainReport
    ) -> None:
        self._parts = parts
        self._options = options
        self._settler = settler
        self._report = report
        self._limits = options.limits(parts.embedder.limits)
        self._pause: Grant | None = None
        self._has_worked = False
        self._line = Line()
        self.critical: CriticalError | None = None
        self.breaker: Breaker | None = None
        """As an outage has left it, when its jobs are given back."""
        self.is_probing = False
        self.is_paused = False
        """The provider has asked to wait, and no worker knows it yet."""

    @property
    def is_down(self) -> bool:
        """Whether nothing is to be sent because the provider does not answer."""
        return self._line.outage is not None

    @property
    def is_stopped(self) -> bool:
        """Whether to lease nothing now, because of what the provider has answered or may answer."""
        return self.is_paused or self.is_probing

    def take_pause(self) -> Grant | None:
        """The pause that the provider asked for; returned once."""
        if (pause := self._pause) is not None:
            self._pause, self.is_paused = None, False
        return pause

    async def complete_known(self, rows: Sequence[Completion]) -> None:
        """Copy vectors that the graph already has."""
        await self._settler.complete(rows)

    async def process(self, items: Sequence[Item], *, send_by: float) -> None:
        """Embed the items of one granted request and settle every one of them."""
        limit = asyncio.timeout(self._options.job_timeout.total_seconds())
        try:
            async with limit:
                if self._parts.clock() > send_by:
                    tokens = first_tokens([item.text for item in items], self._limits)
                    # Nothing was sent for the grant that has passed, so nothing can be charged.
                    await self._correct(tokens, 0)
                    await self._wait_for_grant(tokens)
                await self._embed(items)
        except TimeoutError:
            if not limit.expired():
                # Of the database, whose silence is no fault of the texts.
                raise
            seconds = self._options.job_timeout.total_seconds()
            late = TransientError(f"the work took longer than {seconds:g} s")
            await self._fail_unless_down(items, late)
        except NobodyAskedError:
            self.is_paused, self._pause = True, await self._parts.limiter.peek()
            await self._settler.release([item.leased.lease for item in items])
        except RateLimitedError as error:
            self._note_limit(error)
            self._pause = await self._parts.limiter.hold(
                error.asked or UNNAMED_PAUSE, owner=self._report.owner, said=str(error)
            )
            await self._settler.release([item.leased.lease for item in items])
        except OutageError as error:
            await self._note_outage(error, items)
        except CriticalError as error:
            self.critical = error
            await self._settler.fail(items, error)
        except EmbeddingError as error:
            await self._settler.fail(items, error)
        except UnwantedError:
            logger.info("owner=%s the rest of a long text is not sent", self._report.owner)

    async def probe(self) -> None:
        """Send a harmless word; if it is answered, close the breaker for all workers."""
        self.is_probing = True
        try:
            async with asyncio.timeout(self._options.job_timeout.total_seconds()):
                await self._asking().probe()
        except CriticalError as error:
            self.critical = error
        except NobodyAskedError:
            # So it is not known; the breaker stays as it is.
            self.is_paused, self._pause = True, await self._parts.limiter.peek()
        except (RateLimitedError, PermanentError):
            # No vector, but an answer.
            await self._note_return()
        except (TransientError, TimeoutError) as error:
            await self._note_outage(OutageError(str(error) or "no answer in time"), ())
        else:
            await self._note_return()
        finally:
            self.is_probing = False

    async def open_breaker(self) -> None:
        """Open the breaker because of the global fault that was met."""
        breaker = await self._parts.switch.open_breaker(str(self.critical))
        self._report.breaker = breaker
        if breaker.status is BreakerStatus.OPEN:
            logger.error("owner=%s opened the breaker: %s", self._report.owner, breaker.reason)

    def forget_outage(self) -> None:
        """The queue gives out jobs again, so another worker has seen the provider work."""
        self._line.outage = self.breaker = self._report.breaker = None

    async def _note_return(self) -> None:
        self.forget_outage()
        logger.info("owner=%s the provider works again", self._report.owner)
        await self._parts.switch.close_breaker()

    async def _note_outage(self, error: OutageError, items: Sequence[Item]) -> None:
        """Open the breaker, and release jobs with the error, attempts refunded."""
        self._line.outage = error
        # First of all: what is given back must not be leased again meanwhile.
        breaker = await self._parts.switch.open_breaker(str(error), is_outage=True)
        logger.error("owner=%s %s", self._report.owner, breaker)
        await self._settler.fail(items, error)
        # Last: the drain may end now.
        self.breaker = self._report.breaker = breaker

    async def _fail_unless_down(self, items: Sequence[Item], late: TransientError) -> None:
        """Blame a request that took too long on its texts, unless the provider is down."""
        try:
            async with asyncio.timeout(self._options.job_timeout.total_seconds()):
                await self._asking().raise_if_down(late)
        except (OutageError, TimeoutError):
            await self._note_outage(OutageError(str(late)), items)
        except CriticalError as error:
            self.critical = error
            await self._settler.fail(items, error)
        except RateLimitedError:
            await self._settler.release([item.leased.lease for item in items])
        else:
            await self._settler.fail(items, late)

    def _asking(self, is_wanted: IsWanted | None = None) -> Asking:
        return Asking(
            self._parts.embedder,
            self._wait_for_grant,
            self._report,
            self._line,
            self._parts.limiter.learn,
            self._correct,
            self._limits,
            self._options.requests_at_once,
            is_wanted,
        )

    async def _correct(self, counted: int, charged: int) -> None:
        """Correct the budget; an error in that must not cost the answer."""
        try:
            await self._parts.limiter.correct(counted=counted, charged=charged)
        except Exception as error:
            logger.warning(
                "owner=%s cannot correct the budget: %s", self._report.owner, type(error).__name__
            )

    async def _embed(self, items: Sequence[Item]) -> None:
        async def is_wanted() -> bool:
            return bool(await self._settler.still_held(items))

        answers = await self._asking(is_wanted).ask(items)
        await self._note_success(answers)
        answered = dict(zip((item.leased.lease for item in items), answers, strict=True))
        rows: list[Completion] = []
        lost: list[tuple[Item, OutageError]] = []
        # No look at the leases in between: completion and failure are fenced, each row by itself.
        for item in items:
            answer = answered[item.leased.lease]
            row = answer if isinstance(answer, EmbeddingError) else item.completion(answer)
            if isinstance(row, OutageError):
                lost.append((item, row))
            elif isinstance(row, EmbeddingError):
                await self._settler.fail([item], row)
            else:
                rows.append(row)
        await self._settler.complete(rows)
        if lost:
            await self._note_outage(lost[0][1], [item for item, _ in lost])

    def _note_limit(self, error: RateLimitedError) -> None:
        self.is_paused = True
        if error.asked is not None and error.asked != error.retry_after:
            self._report.holds_clamped += 1
            logger.warning(
                "owner=%s the provider wants a pause of %s", self._report.owner, cut_of(error.asked)
            )

    async def _wait_for_grant(self, tokens: int) -> None:
        # Jobs in flight keep their leases meanwhile, which the heartbeat extends; but not for
        # minutes: their time to work would pass, and with it an attempt.
        while not (grant := await self._parts.limiter.acquire(tokens=tokens)).is_granted:
            if grant.budget is not None:
                raise BudgetSpentError(str(grant.budget))
            if grant.hold is not None and grant.wait > LOOK_AGAIN:
                raise NobodyAskedError("the provider has asked everybody to wait")
            wait = min(grant.wait, LOOK_AGAIN).total_seconds()
            self._report.seconds_waiting += wait
            await asyncio.sleep(wait)

    async def _note_success(self, answers: Sequence[Answer]) -> None:
        """The first vector of a drain shows that the provider works: close the breaker."""
        if self._has_worked or all(isinstance(answer, EmbeddingError) for answer in answers):
            return
        self._has_worked = True
        if (await self._parts.switch.state()).breaker.status is not BreakerStatus.CLOSED:
            logger.info("owner=%s the provider works again", self._report.owner)
            await self._parts.switch.close_breaker()
