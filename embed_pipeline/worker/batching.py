"""Which texts go into which request."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from embed_pipeline.domain.embedding import PreparedText, RequestLimits, inputs_of
from embed_pipeline.domain.errors import CriticalError, EmbeddingError, TransientError
from embed_pipeline.domain.job import LeasedJob
from embed_pipeline.domain.pieces import HASHED_AS, Passage, typed_recipe
from embed_pipeline.domain.results import Completion
from embed_pipeline.domain.text import text_hash
from embed_pipeline.domain.vector import Vector, can_be_found, dimensions_of, mean_of

Packed = TypeVar("Packed")

Answer = tuple[Vector, ...] | EmbeddingError
"""The vectors of the inputs of a text, or why there are none."""


@dataclass(frozen=True, slots=True)
class Item:
    """A leased job with the text that is to be embedded for it."""

    leased: LeasedJob
    text: PreparedText
    """As it is sent: without the pieces whose vectors the graph has."""
    text_hash: str
    whole: PreparedText | None = None
    """The text with all its pieces, where they are nodes."""
    found: Mapping[str, Vector] = field(default_factory=dict)
    """The vectors of pieces that the graph has, by the hash of the piece."""

    @property
    def inputs(self) -> int:
        """The number of request inputs it takes: more than one for a text in pieces."""
        return len(self.text.inputs)

    def without(self, found: Mapping[str, Vector]) -> "Item":
        """The same without the pieces that are already known."""
        whole = self.text
        left = tuple(piece for piece in whole.inputs if piece_hash(piece) not in found)
        tokens = sum(piece.tokens for piece in left)
        sent = PreparedText("".join(piece.text for piece in left), tokens=tokens, pieces=left)
        return replace(self, text=sent, whole=whole, found=found)

    def completion(self, vectors: Sequence[Vector]) -> Completion | EmbeddingError:
        """The completion, once there are vectors for what was sent."""
        whole = self.whole or self.text
        passages: tuple[Passage, ...] = ()
        if self.whole is not None:
            left = iter(vectors)
            hashed = [(piece, piece_hash(piece)) for piece in whole.inputs]
            passages = tuple(
                Passage(piece.start, piece.text, digest, known or next(left), is_fresh=not known)
                for piece, digest in hashed
                for known in [self.found.get(digest)]
            )
            vectors = [passage.vector for passage in passages]
        mean = whole_vector(vectors, whole)
        if isinstance(mean, EmbeddingError):
            return mean
        return Completion(
            self.leased.lease,
            mean,
            self.text_hash,
            tokens=self.text.tokens,
            pieces=len(whole.inputs),
            passages=passages,
        )


def piece_hash(piece: PreparedText) -> str:
    """The hash under which the vector of a piece is found again."""
    recipe = f"{HASHED_AS}:{piece.prefix}" if piece.prefix else HASHED_AS
    return text_hash(piece.text, recipe=typed_recipe(piece.sent_as, recipe))


def pack(
    items: Iterable[Packed], limits: RequestLimits, text_of: Callable[[Packed], PreparedText]
) -> list[list[Packed]]:
    """Fill requests in order; a text that is too large for any request goes alone."""
    requests: list[list[Packed]] = []
    inputs = tokens = characters = 0
    for item in items:
        text = text_of(item)
        is_full = (
            not requests
            or inputs + len(text.inputs) > limits.inputs
            or tokens + text.tokens > limits.tokens
            or characters + len(text.text) > limits.characters
        )
        if is_full:
            requests.append([])
            inputs = tokens = characters = 0
        requests[-1].append(item)
        inputs += len(text.inputs)
        tokens += text.tokens
        characters += len(text.text)
    return requests


def in_requests(texts: Iterable[PreparedText], limits: RequestLimits) -> list[list[PreparedText]]:
    """The inputs of these texts per request: one request, unless a single text needs more."""
    return pack(inputs_of(texts), limits, lambda piece: piece)


def first_tokens(texts: Iterable[PreparedText], limits: RequestLimits) -> int:
    """The tokens of the first request for these texts, to be granted before sending."""
    return sum(piece.tokens for piece in in_requests(texts, limits)[0])


def whole_answers(
    answers: Sequence[Vector | EmbeddingError], texts: Iterable[PreparedText]
) -> list[Answer]:
    """One answer per text, from those of its pieces: all vectors, or why one is missing."""
    left = iter(answers)
    whole: list[Answer] = []
    for text in texts:
        parts = [next(left) for _ in text.inputs]
        error = next((part for part in parts if isinstance(part, EmbeddingError)), None)
        vectors = tuple(part for part in parts if not isinstance(part, EmbeddingError))
        whole.append(error or vectors)
    return whole


def whole_vector(vectors: Sequence[Vector], text: PreparedText) -> Vector | EmbeddingError:
    """The vector of a text: the mean of those of its pieces, which may be zero."""
    mean = mean_of(vectors, text.weights)
    if can_be_found(mean):
        return mean
    return TransientError("the vectors of the pieces of the text add up to nothing")


def whole_or_raise(
    vectors: Sequence[Vector], texts: Sequence[PreparedText], *, dimensions: int
) -> list[Vector]:
    """One vector per text, from the answer to their inputs.

    Raises:
        EmbeddingError: the answer as a whole, or one of the vectors, is none.
    """
    answers = judge_answer(vectors, expected=len(inputs_of(texts)), dimensions=dimensions)
    whole: list[Vector] = []
    for answer, text in zip(whole_answers(answers, texts), texts, strict=True):
        vector = answer if isinstance(answer, EmbeddingError) else whole_vector(answer, text)
        if isinstance(vector, EmbeddingError):
            raise vector
        whole.append(vector)
    return whole


def halves(items: Sequence[Item]) -> tuple[Sequence[Item], Sequence[Item]]:
    """Split a request that failed, to find out which half is to blame."""
    middle = (len(items) + 1) // 2
    return items[:middle], items[middle:]


def judge_answer(
    vectors: Sequence[Vector], *, expected: int, dimensions: int
) -> list[Vector | EmbeddingError]:
    """Check what a provider sent: count, length, finiteness, and that no vector is zero.

    Its client checks none of it, and the vector index leaves bad vectors out without a word.

    Raises:
        TransientError: there are more or fewer vectors than texts, so they cannot be matched.
        CriticalError: all vectors are of another length; the model is not the one of the index.
    """
    if len(vectors) != expected:
        raise TransientError(f"the provider sent {len(vectors)} vectors for {expected} texts")
    lengths = [dimensions_of(vector) for vector in vectors]
    if expected and all(length not in (0, dimensions) for length in lengths):
        raise CriticalError(
            f"the provider's vectors have {lengths[0]} dimensions, the index has {dimensions};"
            " check EMBEDDING_MODEL and EMBEDDING_DIMENSIONS"
        )
    return [_judge(vector, dimensions) for vector in vectors]


def _judge(vector: Vector, dimensions: int) -> Vector | EmbeddingError:
    if not vector:
        return TransientError("the provider sent no numbers where a vector should be")
    if dimensions_of(vector) != dimensions:
        return TransientError(f"the provider sent a vector of {dimensions_of(vector)} dimensions")
    if not can_be_found(vector):
        return TransientError("the provider sent a vector that is zero or not finite")
    return vector
