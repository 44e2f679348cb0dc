"""Embedding models by provider, as data: what they are called and how long their vectors are."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Provider(StrEnum):
    """Who turns text into a vector."""

    OPENAI = "openai"
    """OpenAI, or any server that speaks its protocol."""
    LOCAL = "local"
    """A small real model inside a Python package; no network."""
    MOCK = "mock"
    """Deterministic numbers without meaning, under a model name that says so."""


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A model whose vector lengths are known."""

    name: str
    provider: Provider
    dimensions: int
    """The model's own length; used where nothing else is asked for."""
    shorter: range | tuple[int, ...] = ()
    """Lengths it can be asked to shorten its vectors to."""

    def can_make(self, dimensions: int) -> bool:
        """Say whether vectors of this length can be had from the model."""
        return dimensions == self.dimensions or dimensions in self.shorter

    @property
    def lengths(self) -> str:
        """The possible lengths in words, for messages."""
        if isinstance(self.shorter, range):
            return f"{self.shorter.start} to {self.dimensions}"
        return " or ".join(str(n) for n in (*self.shorter, self.dimensions))


DEFAULT_MODELS: Final = {
    Provider.OPENAI: "text-embedding-3-small",
    Provider.LOCAL: "wordllama-256",
}

MODELS: Final = {
    model.name: model
    for model in (
        EmbeddingModel("text-embedding-3-small", Provider.OPENAI, 1536, range(1, 1536)),
        EmbeddingModel("text-embedding-3-large", Provider.OPENAI, 3072, range(1, 3072)),
        EmbeddingModel("text-embedding-ada-002", Provider.OPENAI, 1536),
        EmbeddingModel("wordllama-256", Provider.LOCAL, 256, (64, 128)),
    )
}

MOCK_PREFIX: Final = "mock-"
"""Starts the name of every mock model, so that its vectors cannot pass for real ones."""
