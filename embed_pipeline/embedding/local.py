"""A small real model that comes inside a Python package; nothing is downloaded at run time."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from embed_pipeline.domain.embedding import Embedded, PreparedText, RequestLimits
from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.embedding.tokens import prepare


class LocalEmbedder:
    """WordLlama: averaged token vectors, over 100,000 short texts a second on one core."""

    limits = RequestLimits()

    def __init__(self, *, model: str, dimensions: int) -> None:
        try:
            import wordllama
        except ImportError:
            raise ConfigurationError(
                "EMBEDDING_PROVIDER is 'local', but its model is not installed (it exists for "
                "Python 3.11 to 3.13): pip install 'embed-pipeline[local]', or choose another "
                "provider."
            ) from None
        self.model = model
        self.dimensions = dimensions
        # The default look-up misses the files in the wheel and would ask a model hub.
        self._model = wordllama.WordLlama.load(
            cache_dir=Path(wordllama.__file__).parent,
            trunc_dim=dimensions,
            disable_download=True,
        )

    def prepare(self, text: str) -> PreparedText:
        """Count tokens as OpenAI's models do; the model itself takes any length."""
        return prepare(text, max_tokens=self.limits.tokens_per_input)

    async def embed(self, texts: Sequence[PreparedText]) -> Embedded:
        """Embed off the event loop, so that everything else goes on."""
        plain = [text.text for text in texts]
        vectors = await asyncio.to_thread(self._model.embed, plain, norm=True)
        return Embedded([[float(n) for n in vector] for vector in vectors], tokens=0)

    async def close(self) -> None:
        """Nothing is open."""
