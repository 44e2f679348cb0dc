"""A provider written by the user: a class that a setting names."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from embed_pipeline.domain.embedding import Embedded, PreparedText, RequestLimits
from embed_pipeline.domain.errors import ConfigurationError, EmbeddingError, TransientError
from embed_pipeline.domain.models import OWN_PREFIX
from embed_pipeline.domain.redact import said_by_provider
from embed_pipeline.domain.vector import vector_of
from embed_pipeline.embedding.tokens import prepare


class PythonProvider(ABC):
    """Derive from it and write ``vectors_of``; ``EMBEDDING_PROVIDER=python:module:Class`` uses it.

    Everything around the request is the queue's: batches, limits, retries, fences.
    """

    for_questions: bool = False
    """Whether texts are questions, where a model embeds these otherwise; set before any request."""

    def __init__(self, *, model: str, dimensions: int) -> None:
        """Open resources; ``limits`` may be set to what a request can hold."""
        self.model = model
        self.dimensions = dimensions
        self.limits = RequestLimits.for_dimensions(dimensions)

    @abstractmethod
    async def vectors_of(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Embed all texts, in their order.

        Raises:
            PermanentError: a text is refused; it is looked for, and fails alone.
            RateLimitedError: too many requests; no job loses an attempt.
            CriticalError: nothing will work until a person acts; the queue stops.
            TransientError: the same may work later; so is every other exception understood.
        """

    def prepare(self, text: str) -> PreparedText:
        """Count the tokens of a text, and split it if it is too long for the model."""
        return prepare(text, max_tokens=self.limits.tokens_per_input)

    async def embed(self, texts: Sequence[PreparedText]) -> Embedded:
        """Send one request."""
        sent = [text.sent for text in texts]
        try:
            vectors = [vector_of(vector) for vector in await self.vectors_of(sent)]
            return Embedded(vectors, sum(text.tokens for text in texts))
        except EmbeddingError:
            raise
        except Exception as error:
            said = said_by_provider(str(error), texts=sent, secret="")
            meaning = TransientError(f"{type(self).__name__}: {type(error).__name__}: {said}")
        # Raised out here, where it gets no context: that could hold a key, or the texts.
        raise meaning

    async def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Close resources."""


def open_own(
    named: str, *, model: str, dimensions: int, for_questions: bool = False
) -> PythonProvider:
    """Make the provider that ``python:package.module:Class`` names.

    Raises:
        ConfigurationError: there is no such class, or it is none of ours or cannot be made.
    """
    module, _, name = named.removeprefix(OWN_PREFIX).partition(":")
    try:
        found: Any = getattr(import_module(module), name, None)
    except ImportError as error:
        raise ConfigurationError(
            f"EMBEDDING_PROVIDER is {named!r}, but {module} cannot be imported ({error}); install "
            "it where drains run, or put its folder into PYTHONPATH"
        ) from None
    if not (isinstance(found, type) and issubclass(found, PythonProvider)):
        raise ConfigurationError(
            f"EMBEDDING_PROVIDER is {named!r}, but {name} of {module} is no class that derives "
            "from embed_pipeline.PythonProvider"
        )
    try:
        provider = found(model=model, dimensions=dimensions)
    except EmbeddingError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"EMBEDDING_PROVIDER is {named!r}, but {name}(model=…, dimensions=…) cannot be made: "
            f"{type(error).__name__}"
        ) from None
    provider.for_questions = for_questions
    return provider
