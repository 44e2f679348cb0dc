"""Embedding models by provider, as data: what they are called and how long their vectors are."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Provider(StrEnum):
    """Who turns text into a vector."""

    OPENAI = "openai"
    """OpenAI, or any server that speaks its protocol."""
    LOCAL = "local"
    """A real model inside a Python package, for 16 languages; no network."""
    LOCAL_FAST = "local-fast"
    """A smaller one for English, fifteen times as fast."""
    OWN = "python"
    """A class of the user's, named by a setting; what it asks is its own matter."""
    MOCK = "mock"
    """Deterministic numbers without meaning, under a model name that says so."""

    @property
    def runs_here(self) -> bool:
        """Whether vectors are made on this machine: no charges, no limits, no third party."""
        return self not in (Provider.OPENAI, Provider.OWN)


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A model whose vector lengths are known."""

    name: str
    provider: Provider
    dimensions: int
    """The model's own length; used where nothing else is asked for."""
    shorter: range | tuple[int, ...] = ()
    """Lengths it can be asked to shorten its vectors to."""
    quality: str = ""
    """How good it was measured to be, and for what; for models without published figures."""

    def can_make(self, dimensions: int) -> bool:
        """Whether the model can make vectors of this length."""
        return dimensions == self.dimensions or dimensions in self.shorter

    @property
    def lengths(self) -> str:
        """The possible lengths in words, for messages."""
        if isinstance(self.shorter, range):
            return f"{self.shorter.start} to {self.dimensions}"
        return " or ".join(str(n) for n in (*self.shorter, self.dimensions))


OWN_PREFIX: Final = f"{Provider.OWN}:"
"""Before the name of the class: ``python:package.module:Class``."""
OWN_PROVIDER: Final = rf"{OWN_PREFIX}[A-Za-z_][\w.]{{0,100}}:[A-Za-z_]\w{{0,60}}"

DEFAULT_MODELS: Final = {
    Provider.OPENAI: "text-embedding-3-small",
    Provider.LOCAL: "use-multilingual-3",
    Provider.LOCAL_FAST: "wordllama-256",
}

MODELS: Final = {
    model.name: model
    for model in (
        EmbeddingModel("text-embedding-3-small", Provider.OPENAI, 1536, range(1, 1536)),
        EmbeddingModel("text-embedding-3-large", Provider.OPENAI, 3072, range(1, 3072)),
        EmbeddingModel("text-embedding-ada-002", Provider.OPENAI, 1536),
        EmbeddingModel(
            "use-multilingual-3",
            Provider.LOCAL,
            512,
            quality="good for 16 languages, English and German among them: right at once for 7 of "
            "10 questions about the sample graph",
        ),
        EmbeddingModel(
            "wordllama-256",
            Provider.LOCAL_FAST,
            256,
            (64, 128),
            quality="good for English only: right at once for 7 of 10 questions about the sample "
            "graph",
        ),
    )
}

MOCK_PREFIX: Final = "mock-"
"""Starts the name of every mock model, so that its vectors cannot pass for real ones."""
