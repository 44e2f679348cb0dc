"""Vectors without meaning, for trying things out without a key."""

import hashlib
import struct
from collections.abc import Sequence

from embed_pipeline.domain.embedding import Embedded, PreparedText, RequestLimits
from embed_pipeline.domain.models import MOCK_PREFIX
from embed_pipeline.domain.vector import BYTES_PER_NUMBER, Vector, vector_of
from embed_pipeline.embedding.tokens import prepare


class MockEmbedder:
    """The same text always gives the same vector, and nothing else can be said for it.

    Its model name must start with ``mock-``, so that its vectors are never taken for real ones.
    """

    def __init__(self, *, model: str, dimensions: int) -> None:
        if not model.startswith(MOCK_PREFIX):
            raise ValueError(f"a mock model's name starts with {MOCK_PREFIX!r}, not {model!r}")
        self.model = model
        self.dimensions = dimensions
        self.limits = RequestLimits.for_dimensions(dimensions)

    def prepare(self, text: str) -> PreparedText:
        return prepare(text, max_tokens=self.limits.tokens_per_input)

    async def embed(self, texts: Sequence[PreparedText]) -> Embedded:
        """Turn each text into a unit vector drawn from its hash."""
        return Embedded([self._vector(text.sent) for text in texts], tokens=0)

    async def close(self) -> None:
        """Nothing is open."""

    def _vector(self, text: str) -> Vector:
        seed = f"{self.model}\0{text}".encode(errors="replace")
        stream = hashlib.shake_256(seed).digest(BYTES_PER_NUMBER * self.dimensions)
        numbers = [n + 0.5 for n in struct.unpack(f"<{self.dimensions}i", stream)]
        norm = sum(n * n for n in numbers) ** 0.5
        return vector_of(n / norm for n in numbers)
