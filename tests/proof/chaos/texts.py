"""Texts with a meaning for the provider, and the one vector that each text has.

Neighbours are in the texts, and their pieces are nodes: some texts have many sentences, and those
of entities with many neighbours are long, too.
"""

import hashlib
import random
from typing import Final

from embed_pipeline.domain.embedding import PreparedText
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.pieces import Pieces
from embed_pipeline.domain.relations import Relations
from embed_pipeline.domain.vector import mean_of, numbers_of, vector_of as as_vector
from embed_pipeline.embedding.tokens import prepare_in_pieces

DIMENSIONS: Final = 8
MODEL: Final = "chaos-model"
KILLER: Final = "kills whoever embeds it"
"""In a text: the drain process dies when it is about to send it."""
REFUSED: Final = "is refused by the provider"
"""In a text: the provider answers the request with 400."""
BETWEEN: Final = "\nNeighbours:\n"
PIECES: Final = Pieces(tokens=48)
SHAPE: Final = EntityShape(
    template="{name}\n{observations}" + BETWEEN + "{relations}",
    relations=Relations(names=("alias", "name")),
    pieces=PIECES,
)
SENTENCES: Final = 24
"""Of a long text, which one in so many entities has:"""
LONG_ONES: Final = 8


def vector_of(text: str) -> list[float]:
    """Depends on every character, is never zero, and is exact in 32 bits."""
    digest = hashlib.sha256(text.encode()).digest()
    return [(byte - 127.5) / 128 for byte in digest[:DIMENSIONS]]


def pieces_of(text: str) -> tuple[PreparedText, ...]:
    """The pieces of a text, as a drain makes them."""
    return prepare_in_pieces(text, PIECES, max_tokens=8_191).inputs


def stored_vector(text: str) -> list[float]:
    """What an entity has whose text it is: the mean of its pieces."""
    pieces = pieces_of(text)
    vectors = [as_vector(vector_of(piece.text)) for piece in pieces]
    return numbers_of(mean_of(vectors, [piece.tokens for piece in pieces]))


def first_text(number: int) -> str:
    """What an entity says of itself at first."""
    if number % LONG_ONES:
        return f"first words of {number}"
    return " ".join(f"Sentence {place} of {number} is as it was." for place in range(SENTENCES))


def edited(text: str, chance: random.Random) -> str:
    """Other words; in a long text one other sentence."""
    words = f"other words {chance.getrandbits(64):x}"
    parts = text.split(". ")
    if len(parts) < SENTENCES:
        return words
    parts[chance.randrange(len(parts) - 1)] = f"Here are {words}"
    return ". ".join(parts)
