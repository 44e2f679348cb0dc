"""What the entities hold of what the settings ask for; seen by the scan, a page at a time."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

MOST_TEXTS: Final = 20
"""Texts that are kept count of: one that a twenty-first of all entities share is among them."""
MOST_KEYS: Final = 20
LONGEST_KEY: Final = 100
"""Characters of a key that are kept: anybody may have written it."""


class Content(NamedTuple):
    """One entity whose text was read."""

    uid: str
    text_hash: str
    present: Collection[str]
    """The parts of the text that it has."""
    is_blank: bool = False
    """There is nothing to embed."""


@dataclass(frozen=True, slots=True)
class Contents:
    """Sums over entities, of bounded size."""

    read: int = 0
    """Entities whose text was read."""
    present: Mapping[str, int] = field(default_factory=dict)
    """How many of them have each part of the text; a part that is not here was not looked for."""
    texts: Mapping[str, int] = field(default_factory=dict)
    """How many have one and the same text, by its hash: the most frequent ones.

    Each number is at most a twenty-first of ``read`` too low (Misra and Gries, 1982).
    """
    duplicates: int = 0
    """Entities that share their key with another one."""
    duplicate_keys: tuple[str, ...] = ()
    """The first of these keys."""

    @property
    def same_text(self) -> int:
        """How many entities, at least, share the most frequent text."""
        return max(self.texts.values(), default=0)

    @classmethod
    def of(cls, entities: Iterable[Content], names: Iterable[str]) -> "Contents":
        """Count a page, which holds all entities of each of its keys."""
        found = list(entities)
        keys = Counter(entity.uid for entity in found)
        shared = [key for key, number in keys.items() if number > 1]
        return cls(
            read=len(found),
            present={name: sum(name in entity.present for entity in found) for name in names},
            texts=_most_frequent(Counter(e.text_hash for e in found if not e.is_blank)),
            duplicates=sum(keys[key] for key in shared),
            duplicate_keys=tuple(key[:LONGEST_KEY] for key in shared[:MOST_KEYS]),
        )

    def plus(self, other: "Contents") -> "Contents":
        """Add another page."""
        return Contents(
            read=self.read + other.read,
            present={
                name: self.present.get(name, 0) + other.present.get(name, 0)
                for name in {**self.present, **other.present}
            },
            texts=_most_frequent(Counter(self.texts) + Counter(other.texts)),
            duplicates=self.duplicates + other.duplicates,
            duplicate_keys=(*self.duplicate_keys, *other.duplicate_keys)[:MOST_KEYS],
        )

    def to_plain(self) -> dict[str, Any]:
        """Write it down."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_plain(cls, data: Any) -> "Contents":
        """Read what ``to_plain`` wrote."""
        return cls(
            read=int(data["read"]),
            present={str(name): int(number) for name, number in data["present"].items()},
            texts={str(hash_): int(number) for hash_, number in data["texts"].items()},
            duplicates=int(data["duplicates"]),
            duplicate_keys=tuple(str(key) for key in data["duplicate_keys"]),
        )


def present_in(properties: Mapping[str, Any]) -> frozenset[str]:
    """Names of the properties that hold something."""
    return frozenset(name for name, value in properties.items() if value not in (None, "", []))


def _most_frequent(texts: Counter[str]) -> dict[str, int]:
    """Keep at most ``MOST_TEXTS``; counts are lowered by that of the next one (a lower bound)."""
    ordered = texts.most_common(MOST_TEXTS + 1)
    if len(ordered) <= MOST_TEXTS:
        return dict(ordered)
    least = ordered[-1][1]
    return {hash_: number - least for hash_, number in ordered if number > least}
