"""What goes to a provider and what comes back."""

from dataclasses import dataclass
from typing import Final

from embed_pipeline.domain.holds import Allowance
from embed_pipeline.domain.vector import BYTES_PER_NUMBER, Vector

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
    """A text that fits into the model; ``tokens_in`` is what it had before it was cut."""

    text: str
    tokens: int
    tokens_in: int

    @property
    def tokens_cut(self) -> int | None:
        """What the text had before it was cut; ``None`` if nothing is missing."""
        return self.tokens_in if self.tokens < self.tokens_in else None


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors in the order of the texts, and what the provider charges for."""

    vectors: list[Vector]
    tokens: int
    left: Allowance | None = None
    """What the provider says is left of its limits."""
