"""Texts with a meaning for the provider, and the one vector that each text has."""

import hashlib
from typing import Final

DIMENSIONS: Final = 8
MODEL: Final = "chaos-model"
KILLER: Final = "kills whoever embeds it"
"""In a text: the drain process dies when it is about to send it."""
REFUSED: Final = "is refused by the provider"
"""In a text: the provider answers the request with 400."""


def vector_of(text: str) -> list[float]:
    """Depends on every character, is never zero, and is exact in 32 bits."""
    digest = hashlib.sha256(text.encode()).digest()
    return [(byte - 127.5) / 128 for byte in digest[:DIMENSIONS]]
