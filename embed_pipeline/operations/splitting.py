"""How a text becomes what is sent: whole, or in pieces."""

from collections.abc import Callable

from embed_pipeline.domain.embedding import PreparedText
from embed_pipeline.domain.ports import Embedder
from embed_pipeline.settings import Settings


def text_splitter(settings: Settings, embedder: Embedder) -> Callable[[str], PreparedText]:
    """Prepares a text as a drain does, so that it gets the same vector."""
    return document_splitter(settings, embedder) or embedder.prepare


def document_splitter(
    settings: Settings, embedder: Embedder
) -> Callable[[str], PreparedText] | None:
    """Splits texts into nodes, or gives them a prefix; None where neither is wanted."""
    from embed_pipeline.embedding import tokens  # only where it is wanted

    shape, most = settings.entity_shape, embedder.limits.tokens_per_input
    return tokens.document_splitter(shape, max_tokens=most)
