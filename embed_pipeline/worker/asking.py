"""One batch to the provider: as few requests as possible, and one bad text fails alone."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from embed_pipeline.domain.embedding import PreparedText, RequestLimits
from embed_pipeline.domain.errors import (
    PROBE_WORD,
    CriticalError,
    EmbeddingError,
    OutageError,
    PermanentError,
    RateLimitedError,
    TooLargeError,
    TransientError,
)
from embed_pipeline.domain.holds import Allowance
from embed_pipeline.domain.ports import Embedder
from embed_pipeline.domain.vector import Vector
from embed_pipeline.worker.batching import (
    Answer,
    Item,
    first_tokens,
    halves,
    in_requests,
    judge_answer,
    whole_answers,
)
from embed_pipeline.worker.report import DrainReport

WaitForGrant = Callable[[int], Awaitable[None]]
"""Returns when one more request with so many tokens may be sent."""

Learn = Callable[[Allowance], Awaitable[None]]
"""Tells everybody who shares the rate limit what the provider says is left."""

Correct = Callable[[int, int], Awaitable[None]]
"""Tells the budget how many tokens were counted for a request, and how many it was charged."""


IsWanted = Callable[[], Awaitable[bool]]
"""Says whether a vector of the batch would still be written."""


class UnwantedError(Exception):
    """Not sent: the jobs of the batch were cancelled or are with others by now."""


@dataclass(slots=True)
class Line:
    """What the requests of a drain know about the provider together."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One at a time asks whether it answers at all."""
    outage: OutageError | None = None
    """It is down, until a probe or a lease shows that it is not."""


@dataclass(slots=True)
class Asking:
    """Asks for the vectors of one batch, and isolates the texts that cannot be embedded."""

    embedder: Embedder
    wait_for_grant: WaitForGrant
    report: DrainReport
    line: "Line"
    learn: Learn
    correct: Correct
    limits: RequestLimits
    """Of one request of the drain."""
    requests_at_once: int
    is_wanted: IsWanted | None = None
    """Looked at before every further request of a long text; a probe is nobody's."""
    _is_provider_cleared: bool = field(default=False, init=False)
    """It is known not to refuse everything: it has answered, or the probe was looked at."""

    async def ask(self, items: Sequence[Item]) -> list[Answer]:
        """Embed the items of one request; the first request is already granted.

        A provider refuses a whole request for one bad text. So a refused request is halved until
        the bad text stands alone: about ``2 * log2(n)`` more requests, and its neighbours get their
        vectors. Before that one more request makes sure that it is a text that is refused: a
        provider that refuses whatever it is asked must not cost every job its life.

        A request that failed otherwise is followed by a harmless word, too. If there is no answer
        to that either, the provider is down, and it is nobody's fault. If there is, one of the
        texts may be what the provider stumbles over, and is looked for in the same way.

        Raises:
            EmbeddingError: what failed concerns the whole request, not one of its texts.
            UnwantedError: nobody waits for what is left of a text in several requests.
        """
        try:
            return await self._once([item.text for item in items])
        except PermanentError as error:
            await self._raise_if_global(items, error)
            return await self._in_halves(items, error)
        except RateLimitedError:
            raise
        except TransientError as error:
            await self.raise_if_down(error)
            if len(items) > 1 and await self._answers_anybody(items):
                return await self._in_halves(items, error)
            raise

    async def raise_if_down(self, error: TransientError) -> None:
        """Tell a fault of the texts from an outage of the provider.

        Raises:
            OutageError: it is down: not even the harmless word gets an answer.
            EmbeddingError: it answers that nothing can work, or asks to wait.
        """
        async with self.line.lock:
            if self.line.outage is None:
                try:
                    await self.probe()
                except (RateLimitedError, CriticalError):
                    raise
                except PermanentError:
                    # Refused, but answered.
                    return
                except TransientError as silence:
                    self.line.outage = OutageError(str(silence))
                else:
                    return
            # Those that waited here have failed in the same outage.
            raise OutageError(str(error))

    async def probe(self) -> None:
        """Ask for the vector of a harmless word.

        Raises:
            EmbeddingError: there is none, so the fault is not that of a text.
        """
        [answer] = await self._granted([self.embedder.prepare(PROBE_WORD)])
        if isinstance(answer, EmbeddingError):
            raise answer

    async def _once(self, texts: Sequence[PreparedText]) -> list[Answer]:
        """Send what is granted; if one text needs several requests, send the rest in turn."""
        answers: list[Vector | EmbeddingError] = []
        for number, inputs in enumerate(in_requests(texts, self.limits)):
            if number:
                if self.is_wanted is not None and not await self.is_wanted():
                    raise UnwantedError
                await self.wait_for_grant(sum(piece.tokens for piece in inputs))
            answers += await self._sent(inputs)
        return whole_answers(answers, texts)

    async def _sent(self, inputs: Sequence[PreparedText]) -> list[Vector | EmbeddingError]:
        self.report.requests += 1
        counted = sum(piece.tokens for piece in inputs)
        try:
            embedded = await self.embedder.embed(inputs)
        except (RateLimitedError, PermanentError, CriticalError) as refusal:
            # A refusal is not charged. Any other silence may be: an answer that got lost.
            self.report.requests_limited += isinstance(refusal, RateLimitedError)
            await self.correct(counted, 0)
            raise
        self.report.tokens += embedded.tokens
        await self.correct(counted, embedded.tokens)
        most = self.requests_at_once
        if (left := embedded.left) and left.is_scarce(requests=most, tokens=most * counted):
            await self.learn(left)
        answers = judge_answer(
            embedded.vectors, expected=len(inputs), dimensions=self.embedder.dimensions
        )
        self._is_provider_cleared = True
        return answers

    async def _raise_if_global(self, items: Sequence[Item], error: PermanentError) -> None:
        """Tell a refused text from a provider that refuses everything.

        The probe alone is no proof: its word may be refused for itself. So it takes two texts of
        the batch as well, or the only one; four requests at most, however large the batch.

        Raises:
            CriticalError: everything is refused, for one reason.
        """
        is_divisible = isinstance(error, TooLargeError) and len(items) > 1
        if self._is_provider_cleared or is_divisible:
            return
        self._is_provider_cleared = True
        probe = await self._refusal(self.embedder.prepare(PROBE_WORD))
        if probe is None:
            return
        if len(items) == 1:
            is_global = _is_same(error, probe)
        else:
            is_global = all(
                [await self._is_refused_as(probe, one) for one in (items[0], items[-1])]
            )
        if is_global:
            raise CriticalError(
                f"the provider refuses every text, the word {PROBE_WORD!r} too ({probe}); "
                f"{probe.advice}"
            )

    async def _is_refused_as(self, probe: PermanentError, item: Item) -> bool:
        error = await self._refusal(item.text)
        return error is not None and _is_same(error, probe)

    async def _refusal(self, text: PreparedText) -> PermanentError | None:
        """Why the provider refuses this text, if it does; transient faults do not count.

        Raises:
            OutageError: the provider is down, so it cannot be told.
        """
        for _ in range(2):
            try:
                await self._granted([text])
            except PermanentError as refused:
                return refused
            except RateLimitedError:
                raise
            except TransientError as error:
                await self.raise_if_down(error)
            else:
                break
        return None

    async def _in_halves(self, items: Sequence[Item], error: EmbeddingError) -> list[Answer]:
        """Bisect: for each text a vector, or what is wrong with it."""
        if len(items) == 1:
            return [error]
        found: list[list[Answer] | TransientError] = []
        for half in halves(items):
            result = await self._tried(half)
            if isinstance(result, PermanentError):
                await self._raise_if_global(half, result)
                result = await self._in_halves(half, result)
            found.append(result)
        if all(isinstance(result, TransientError) for result in found):
            # A half that works shows that the provider does. None has: it may be down since.
            try:
                await self.raise_if_down(TransientError(str(found[-1])))
            except OutageError as outage:
                return [outage] * len(items)
        answers: list[Answer] = []
        for half, result in zip(halves(items), found, strict=True):
            # What the other half has got is paid for, whatever becomes of this one.
            if isinstance(result, TransientError):
                result = await self._in_halves(half, result)
            answers += result
        return answers

    async def _tried(self, items: Sequence[Item]) -> list[Answer] | PermanentError | TransientError:
        try:
            return await self._granted([item.text for item in items])
        except RateLimitedError:
            raise
        except (PermanentError, TransientError) as error:
            return error

    async def _answers_anybody(self, items: Sequence[Item]) -> bool:
        """Probe: does the provider answer anything, or is it down?"""
        for one in (items[0], items[-1]):
            try:
                [answer] = await self._granted([one.text])
            except RateLimitedError:
                raise
            except (PermanentError, TransientError):
                continue
            if not isinstance(answer, EmbeddingError):
                return True
        return False

    async def _granted(self, texts: Sequence[PreparedText]) -> list[Answer]:
        await self.wait_for_grant(first_tokens(texts, self.limits))
        return await self._once(texts)


def _is_same(error: PermanentError, probe: PermanentError) -> bool:
    if error.refusal is None or probe.refusal is None:
        return False
    return error.refusal.is_also(probe.refusal)
