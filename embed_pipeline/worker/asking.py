"""One batch to the provider: as few requests as possible, and one bad text fails alone."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from embed_pipeline.domain.errors import (
    EmbeddingError,
    PermanentError,
    RateLimitedError,
    TransientError,
)
from embed_pipeline.domain.ports import Embedder
from embed_pipeline.worker.batching import Item, halves, judge_answer
from embed_pipeline.worker.report import DrainReport

Answer = Sequence[float] | EmbeddingError
"""A vector, or why there is none for this text."""

WaitForGrant = Callable[[int], Awaitable[None]]
"""Returns when one more request with so many tokens may be sent."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Asks for the vectors of a batch, and finds out which text is to blame if there are none."""

    embedder: Embedder
    wait_for_grant: WaitForGrant
    report: DrainReport

    async def ask(self, items: Sequence[Item]) -> list[Answer]:
        """Embed the items of one request; the first request is already granted.

        A provider refuses a whole request for one bad text. So a refused request is halved until
        the bad text stands alone: about ``2 * log2(n)`` more requests, and its neighbours get their
        vectors. A request that failed otherwise is tried again later as it is; but before a job
        would fail for good, its neighbours are looked at in the same way.

        Raises:
            EmbeddingError: what failed concerns the whole request, not one of its texts.
        """
        try:
            return await self._once(items)
        except PermanentError as error:
            return await self._in_halves(items, error, search=False)
        except RateLimitedError:
            raise
        except TransientError as error:
            if _is_last_attempt(items) and await self._answers_anybody(items):
                return await self._in_halves(items, error, search=True)
            raise

    async def _once(self, items: Sequence[Item]) -> list[Answer]:
        self.report.requests += 1
        embedded = await self.embedder.embed([item.text for item in items])
        self.report.tokens += embedded.tokens
        return judge_answer(
            embedded.vectors, expected=len(items), dimensions=self.embedder.dimensions
        )

    async def _in_halves(
        self, items: Sequence[Item], error: EmbeddingError, *, search: bool
    ) -> list[Answer]:
        """Answer for each; ``search`` also among those whose request failed for no clear reason."""
        if len(items) == 1:
            return [error]
        answers: list[Answer] = []
        for half in halves(items):
            try:
                answers += await self._granted(half)
            except RateLimitedError:
                raise
            except PermanentError as refused:
                answers += await self._in_halves(half, refused, search=search)
            except TransientError as failed:
                if search:
                    answers += await self._in_halves(half, failed, search=True)
                else:
                    # The other half may have its vectors already, and they are paid for.
                    answers += [failed] * len(half)
        return answers

    async def _answers_anybody(self, items: Sequence[Item]) -> bool:
        """Tell a text that the provider stumbles over from a provider that is down."""
        for one in (items[:1], items[-1:]):
            try:
                [answer] = await self._granted(one)
            except RateLimitedError:
                raise
            except (PermanentError, TransientError):
                continue
            if not isinstance(answer, EmbeddingError):
                return True
        return False

    async def _granted(self, items: Sequence[Item]) -> list[Answer]:
        await self.wait_for_grant(sum(item.text.tokens for item in items))
        return await self._once(items)


def _is_last_attempt(items: Sequence[Item]) -> bool:
    return len(items) > 1 and any(item.leased.is_last_attempt for item in items)
