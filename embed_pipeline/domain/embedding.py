"""What goes to a provider and what comes back."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How much one request may hold."""

    inputs: int = 2_048
    tokens: int = 300_000
    tokens_per_input: int = 8_191


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

    vectors: list[Sequence[float]]
    tokens: int
