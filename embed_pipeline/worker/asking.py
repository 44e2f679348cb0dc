"""One batch to the provider: as few requests as possible, and one bad text fails alone."""

from collections.abc import Awaitable, Callable, Sequence

from embed_pipeline.domain.errors import EmbeddingError, PermanentError
from embed_pipeline.domain.ports import Embedder
from embed_pipeline.worker.batching import Item, halves, judge_answer
from embed_pipeline.worker.report import DrainReport

Answer = Sequence[float] | EmbeddingError
"""A vector, or why there is none for this text."""

WaitForGrant = Callable[[int], Awaitable[None]]
"""Returns when one more request with so many tokens may be sent."""


async def ask(
    embedder: Embedder, items: Sequence[Item], *, wait_for_grant: WaitForGrant, report: DrainReport
) -> list[Answer]:
    """Embed the items of one request; the first request is already granted.

    A provider refuses a whole request for one bad text. So a refused request is halved until the
    bad text stands alone: about ``2 * log2(n)`` more requests, and its neighbours get their
    vectors.

    Raises:
        EmbeddingError: what failed concerns the whole request, not one of its texts.
    """
    report.requests += 1
    try:
        embedded = await embedder.embed([item.text for item in items])
    except PermanentError as error:
        if len(items) == 1:
            return [error]
        answers: list[Answer] = []
        for half in halves(items):
            await wait_for_grant(sum(item.text.tokens for item in half))
            answers += await ask(embedder, half, wait_for_grant=wait_for_grant, report=report)
        return answers
    report.tokens += embedded.tokens
    return judge_answer(embedded.vectors, expected=len(items), dimensions=embedder.dimensions)
