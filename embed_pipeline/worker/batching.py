"""Which texts go into which request."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from embed_pipeline.domain.embedding import PreparedText, RequestLimits
from embed_pipeline.domain.errors import CriticalError, EmbeddingError, TransientError
from embed_pipeline.domain.job import LeasedJob


@dataclass(frozen=True, slots=True)
class Item:
    """A leased job with the text that is to be embedded for it."""

    leased: LeasedJob
    text: PreparedText
    text_hash: str


def pack(items: Iterable[Item], limits: RequestLimits) -> list[list[Item]]:
    """Fill requests in order; a text that is too large for any request goes alone."""
    requests: list[list[Item]] = []
    tokens = 0
    for item in items:
        is_full = (
            not requests
            or len(requests[-1]) >= limits.inputs
            or tokens + item.text.tokens > limits.tokens
        )
        if is_full:
            requests.append([])
            tokens = 0
        requests[-1].append(item)
        tokens += item.text.tokens
    return requests


def halves(items: Sequence[Item]) -> tuple[Sequence[Item], Sequence[Item]]:
    """Split a request that failed, to find out which half is to blame."""
    middle = (len(items) + 1) // 2
    return items[:middle], items[middle:]


def judge_answer(
    vectors: Sequence[Sequence[float]], *, expected: int, dimensions: int
) -> list[Sequence[float] | EmbeddingError]:
    """Check what a provider sent: count, length, finiteness, and that no vector is zero.

    Its client checks none of it, and the vector index leaves bad vectors out without a word.

    Raises:
        TransientError: there are more or fewer vectors than texts; nobody knows which is whose.
        CriticalError: all vectors are of another length; the model is not the one of the index.
    """
    if len(vectors) != expected:
        raise TransientError(f"the provider sent {len(vectors)} vectors for {expected} texts")
    if expected and all(len(vector) not in (0, dimensions) for vector in vectors):
        raise CriticalError(
            f"the provider's vectors have {len(vectors[0])} dimensions, the index has {dimensions};"
            " check EMBEDDING_MODEL and EMBEDDING_DIMENSIONS"
        )
    return [_judge(vector, dimensions) for vector in vectors]


def _judge(vector: Sequence[float], dimensions: int) -> Sequence[float] | EmbeddingError:
    if len(vector) != dimensions:
        return TransientError(f"the provider sent a vector of {len(vector)} dimensions")
    try:
        # One pass in C; a NaN or an infinity anywhere makes the norm one, too.
        norm = math.hypot(*vector)
    except TypeError:
        return TransientError("the provider sent a vector of something else than numbers")
    if not math.isfinite(norm) or norm == 0:
        return TransientError("the provider sent a vector that is zero or not finite")
    return vector
