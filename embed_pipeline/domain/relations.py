"""The neighbours of an entity in its text: which relationships, how many, and in which words.

An entity of a graph is what it is through its relations. ``{relations}`` in a template stands for
them, a line for each: the word of the relationship and the name of the neighbour. Names are enough,
and keep the fan-out small: what else a neighbour says may change without touching the text.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final, Literal

from embed_pipeline.domain.errors import ConfigurationError

RELATIONS: Final = "relations"
"""What stands for the neighbours in a template."""
READ_AS: Final = "{relations}"
"""Under which name they are read beside the properties; no property in a template has braces."""
RECIPE: Final = "neighbours-1:"
"""Begins the recipe of a text with neighbours."""
FURTHEST: Final = 1_000
"""Open relationships of one node and direction that are read. A hub has more: of those the choice
is made among the first that the store gives, which is bounded and the same every time."""
LOOKED: Final = 10_000
"""Relationships of one node and direction that are looked at, closed ones included."""
MOST_NEIGHBOURS: Final = 100
"""The largest cap per direction that may be set."""
RELATIONS_DELAY: Final = timedelta(minutes=5)
"""So long an entity waits of which only the neighbours have changed, if nobody says otherwise: ten
edits around it cost one embedding."""
BEHIND: Final = -1
"""The priority of such a job: behind everything else."""
LONGEST_PART: Final = 200
"""Characters of a word or a name."""
OUTGOING: Final = ">"
INCOMING: Final = "<"
SEPARATOR: Final = "\x1f"

Direction = Literal["both", "out", "in"]


@dataclass(frozen=True, slots=True)
class Relations:
    """Which neighbours are in the text; says nothing unless the template has ``{relations}``."""

    types: tuple[str, ...] = ()
    """Types of relationships; all if none is named."""
    direction: Direction = "both"
    most: int = 10
    """Neighbours per direction, the first in order of words and names."""
    word: str = "relationType"
    """Property of a relationship that says what it means; where it is missing its type does."""
    names: tuple[str, ...] = ()
    """Properties that name a neighbour, the first that it has; the key of the entities if none."""

    def __post_init__(self) -> None:
        if self.direction not in ("both", "out", "in"):
            raise ConfigurationError(
                f"relations direction is {self.direction!r:.200}; allowed are both, out and in"
            )
        if type(self.most) is not int or not 1 <= self.most <= MOST_NEIGHBOURS:
            raise ConfigurationError(
                f"relations most is {self.most!r:.200}; allowed is 1 to {MOST_NEIGHBOURS}"
            )

    def recipe(self, template: str) -> str:
        """The name of the recipe; ``parse`` reads it."""
        said = json.dumps(asdict(self), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return f"{RECIPE}{said}:{template}"

    @classmethod
    def parse(cls, recipe: str) -> "tuple[Relations, str] | None":
        """Relations and template of a recipe; ``None`` if it has no neighbours."""
        if not recipe.startswith(RECIPE):
            return None
        said, end = json.JSONDecoder().raw_decode(recipe, len(RECIPE))
        lists = {name: tuple(said[name]) for name in ("types", "names")}
        return cls(**{**said, **lists}), recipe[end + 1 :]


def line_of(direction: str, word: str, name: str) -> str:
    """A neighbour as the store reads it."""
    return f"{direction}{word}{SEPARATOR}{name}"


def relation_lines(read: Iterable[Any]) -> list[str]:
    """The lines of the text: ``knows Ada`` if outgoing, ``Ada knows`` if incoming."""
    return [
        f"{name} {word}" if is_incoming else f"{word} {name}"
        for is_incoming, word, name in _read_lines(read)
    ]


def without_neighbour(read: Iterable[Any], name: str | None) -> list[Any]:
    """The lines of a text, as the store reads them, that do not name this neighbour."""
    return [line for line in read if str(line).partition(SEPARATOR)[2] != name]


def relation_sentences(uid: str, read: Iterable[Any]) -> list[str]:
    """Relations with both ends named, readable without the text: ``Bob knows Ada``."""
    return [
        f"{name} {word} {uid}" if is_incoming else f"{uid} {word} {name}"
        for is_incoming, word, name in _read_lines(read)
    ]


def _read_lines(read: Iterable[Any]) -> Iterator[tuple[bool, str, str]]:
    for entry in sorted(map(str, read)):
        word, _, name = entry[1:].partition(SEPARATOR)
        yield entry.startswith(INCOMING), _spoken(word), name


def _spoken(word: str) -> str:
    """A relationship type in words: ``WORKS_AT`` → "works at"."""
    words = word.replace("_", " ")
    return words.lower() if words.isupper() else words
