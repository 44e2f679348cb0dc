"""What goes to a provider and what comes back."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from embed_pipeline.domain.holds import Allowance
from embed_pipeline.domain.vector import BYTES_PER_NUMBER, Vector, mean_of

BYTES_IN_FLIGHT: Final = 48 * 2**20
"""Vectors that a drain waits for or is writing: four requests of 2,048 at 1,536 dimensions."""
REQUESTS_IN_FLIGHT: Final = 2
"""At least so many requests fit into that, so that one is asked while the other is written."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How much one request may hold."""

    inputs: int = 2_048
    tokens: int = 300_000
    tokens_per_input: int = 8_191
    characters: int = 4 * 2**20
    """More than 300,000 tokens of any language; a run of blanks can be 128 to a token."""
    inputs_in_flight: int = 4 * 2_048
    """Texts of all requests that a drain has under way."""

    @classmethod
    def for_dimensions(cls, dimensions: int) -> "RequestLimits":
        """As much as fits into ``BYTES_IN_FLIGHT``, whatever the length of the vectors."""
        in_flight = BYTES_IN_FLIGHT // (BYTES_PER_NUMBER * dimensions)
        inputs = min(cls().inputs, max(1, in_flight // REQUESTS_IN_FLIGHT))
        return cls(inputs=inputs, inputs_in_flight=in_flight)


@dataclass(frozen=True, slots=True)
class PreparedText:
    """A text as the model can take it: whole, or in pieces where it is too long."""

    text: str
    tokens: int
    pieces: "tuple[PreparedText, ...]" = ()
    """Together they are the whole text; none where it fits as it is."""
    start: int = 0
    """Of a piece: the place of its first character in the text."""
    prefix: str = ""
    """What the model wants before it; no part of the text."""
    sent_as: str = ""
    """The type that the request says, if one was set; no part of the text."""

    @property
    def sent(self) -> str:
        """What the provider gets of an input."""
        return self.prefix + self.text

    @property
    def inputs(self) -> "tuple[PreparedText, ...]":
        """The inputs of a request that are sent for it."""
        return self.pieces or (self,)

    @property
    def weights(self) -> list[int]:
        """The weight of each input's vector in that of the text."""
        return [piece.tokens for piece in self.inputs]


class PieceSize(NamedTuple):
    """What a piece of a text takes of a request, and the hash by which its vector is found."""

    text_hash: str
    tokens: int
    characters: int


class TextSize(NamedTuple):
    """What a text takes of a request; nothing if there is nothing in it to embed."""

    tokens: int = 0
    inputs: int = 0
    characters: int = 0
    pieces: tuple[PieceSize, ...] = ()
    """Where they are nodes, and one that the graph has is not sent."""

    def without(self, known: Collection[str]) -> "TextSize":
        """The same without the pieces of these hashes."""
        left = tuple(piece for piece in self.pieces if piece.text_hash not in known)
        if len(left) == len(self.pieces):
            return self
        return TextSize(
            sum(piece.tokens for piece in left),
            len(left),
            sum(piece.characters for piece in left),
            left,
        )


def inputs_of(texts: Iterable[PreparedText]) -> list[PreparedText]:
    """What is sent for these texts, in order."""
    return [piece for text in texts for piece in text.inputs]


def whole_vectors(vectors: Sequence[Vector], texts: Iterable[PreparedText]) -> list[Vector]:
    """One vector for each text, from those of ``inputs_of``."""
    left = iter(vectors)
    return [mean_of([next(left) for _ in text.inputs], text.weights) for text in texts]


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors in the order of the texts, and the tokens that the provider charges for."""

    vectors: list[Vector]
    tokens: int
    left: Allowance | None = None
    """What the provider says is left of its limits."""
