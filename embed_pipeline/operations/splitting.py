"""How a text becomes what is sent: whole, or in pieces."""

from collections.abc import Callable

from embed_pipeline.domain.embedding import PreparedText
from embed_pipeline.domain.ports import Embedder
from embed_pipeline.settings import Settings


def text_splitter(settings: Settings, embedder: Embedder) -> Callable[[str], PreparedText]:
    """Prepares a text as a drain does, so that it gets the same vector."""
    return piece_splitter(settings, embedder) or embedder.prepare


def piece_splitter(settings: Settings, embedder: Embedder) -> Callable[[str], PreparedText] | None:
    """Splits texts that are too long for the model; None if pieces are off."""
    from embed_pipeline.embedding import tokens  # only where it is wanted

    most = embedder.limits.tokens_per_input
    return tokens.piece_splitter(settings.entity_shape.pieces, max_tokens=most)
