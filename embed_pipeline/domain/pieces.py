"""The pieces of a text as nodes of their own, so that a search finds the passage.

An entity whose embedding wants it has one for each piece of its text, also where there is only one:
a search of the pieces finds every entity. The entity keeps the mean of their vectors.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.domain.vector import Vector, print_of

PIECE_LABEL: Final = "Chunk"
"""What other programs call such nodes; entities cannot have it as their own label."""
RECIPE: Final = "pieces-1:"
"""Begins the recipe of a text that is embedded in pieces of a size that was set."""
HASHED_AS: Final = "piece-1"
"""The recipe of a piece by itself: the same words have the same vector in every text."""
FEWEST_TOKENS: Final = 16
MOST_TOKENS: Final = 8_191
MOST_PIECES: Final = 10_000
PREFIX: Final = "prefix-1:"
"""Begins the recipe of a text that is sent with a prefix; its length comes first."""
SENT_AS: Final = "sent-as-1:"
"""Begins the recipe of a text that is sent as of a type that was set; its length comes first."""
_RECIPE: Final = re.compile(rf"{RECIPE}([0-9]+):(.*)", re.DOTALL)
_PREFIXED: Final = re.compile(rf"{PREFIX}([0-9]+):(.*)", re.DOTALL)
_SENT_AS: Final = re.compile(rf"{SENT_AS}([0-9]+):(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pieces:
    """How texts are split into nodes."""

    tokens: int = 256
    """Of a piece at most. Measured on texts of 16,600 characters, the best piece of 256 finds the
    text among the first five in 80 of 100 questions, the mean of the pieces in 69."""
    most: int = 1_000
    """Of one entity: a text with more of them gets larger ones, up to what the model takes."""

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("tokens", self.tokens, FEWEST_TOKENS, MOST_TOKENS),
            ("most", self.most, 1, MOST_PIECES),
        ):
            if type(value) is not int or not least <= value <= most:
                raise ConfigurationError(
                    f"pieces {name} is {value!r:.200}; allowed is {least} to {most}"
                )

    def recipe(self, whole: str) -> str:
        """The name of the recipe; without the bound, which changes few texts."""
        return f"{RECIPE}{self.tokens}:{whole}"


class RecipeParts(NamedTuple):
    """What the name of a recipe says."""

    tokens: int | None
    """Per piece, where pieces are nodes."""
    sent_as: str
    prefix: str
    text: str
    """The recipe of the text itself."""


def prefixed_recipe(prefix: str, text: str) -> str:
    """The name of the recipe of a text that is sent with a prefix."""
    return f"{PREFIX}{len(prefix)}:{prefix}{text}" if prefix else text


def typed_recipe(sent_as: str, recipe: str) -> str:
    """The name of the recipe of a text of which the request says the type."""
    return f"{SENT_AS}{len(sent_as)}:{sent_as}{recipe}" if sent_as else recipe


def parse_recipe(recipe: str) -> RecipeParts:
    """Take the name of a recipe apart."""
    tokens, sent_as, prefix = None, "", ""
    if found := _RECIPE.fullmatch(recipe):
        tokens, recipe = int(found[1]), found[2]
    if found := _SENT_AS.fullmatch(recipe):
        length = int(found[1])
        sent_as, recipe = found[2][:length], found[2][length:]
    if found := _PREFIXED.fullmatch(recipe):
        length = int(found[1])
        prefix, recipe = found[2][:length], found[2][length:]
    return RecipeParts(tokens, sent_as, prefix, recipe)


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a text with its vector."""

    start: int
    """The place of its first character in the text."""
    text: str
    text_hash: str
    vector: Vector
    is_fresh: bool = True
    """The provider was asked for it; otherwise it is that of a piece in the graph."""

    @property
    def end(self) -> int:
        """The offset behind its last character."""
        return self.start + len(self.text)


class StoredPiece(NamedTuple):
    """A piece that the graph has."""

    id: str
    text_hash: str
    model: str | None
    """Missing where somebody has removed the vector."""
    print: int | None
    """Of the vector that was written with it."""
    is_staged: bool = False


@dataclass(frozen=True, slots=True)
class PieceChange:
    """The difference between the stored pieces of an entity and those of its text."""

    taken: Sequence[str | None]
    """For each passage the stored piece that stays as it is."""
    unused: Sequence[str]

    @property
    def new(self) -> Iterator[int]:
        """The passages without a matching stored piece, by position."""
        return (place for place, id_ in enumerate(self.taken) if id_ is None)


def compare_pieces(
    wanted: Iterable[Passage], stored: Iterable[StoredPiece], model: str
) -> PieceChange:
    """Match each passage with the first unused stored piece of the same text and model.

    One that was staged has to have its very vector: another worker may have asked for that, before
    somebody wanted it anew. A fresh passage takes no other: what was paid for is written.
    """
    left: defaultdict[tuple[str, str | None, int | None], deque[str]] = defaultdict(deque)
    for piece in stored:
        vector = piece.print if piece.is_staged else None
        left[piece.text_hash, piece.model, vector].append(piece.id)
    taken: list[str | None] = []
    for passage in wanted:
        same = left[passage.text_hash, model, print_of(passage.vector)]
        if not passage.is_fresh:
            same = left[passage.text_hash, model, None] or same
        taken.append(same.popleft() if same else None)
    return PieceChange(taken, [id_ for same in left.values() for id_ in same])
