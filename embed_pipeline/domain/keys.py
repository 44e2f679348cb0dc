"""Keys and versions as clients write them: which a job can have, and why it cannot have others.

JavaScript knows no whole numbers: ``version: 1`` arrives as 1.0, and so does a key. To Neo4j a job
with version 1.0 would be another one than that with version 1, so both are made one type here: a
job's ``entity_uid`` is text, its ``version`` a whole number.
``store.cypher.trigger`` has the same rule in Cypher; a test compares the two.
"""

import re
from enum import StrEnum
from typing import Final

FIRST_VERSION: Final = 1
"""The version of an entity that has none, or one in words."""
MAX_KEY_LENGTH: Final = 512
"""Characters; Neo4j's indexes refuse keys of more than about 8,000 bytes."""
LARGEST_EXACT: Final = 2**53 - 1
"""Beyond it a float may stand for several whole numbers, and the client may have meant any."""
_LARGEST_INTEGER: Final = 2**63 - 1
_WHOLE: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_VERSION: Final = re.compile(r"[0-9]{1,15}", re.ASCII)

KeyValue = str | int | float
"""What a key property holds when it can be used."""


class Unfit(StrEnum):
    """Why a current entity cannot have a job."""

    KEY_MISSING = "key_missing"
    KEY_EMPTY = "key_empty"
    KEY_LONG = "key_long"
    KEY_NUMBER = "key_number"
    KEY_TYPE = "key_type"
    VERSION = "version"
    DUPLICATE = "duplicate"
    UNREADABLE = "unreadable"

    @property
    def words(self) -> str:
        """The reason for people."""
        return _WORDS[self]


_WORDS: Final = {
    Unfit.KEY_MISSING: "the key is missing",
    Unfit.KEY_EMPTY: "the key is an empty text",
    Unfit.KEY_LONG: f"the key has more than {MAX_KEY_LENGTH} characters",
    Unfit.KEY_NUMBER: "the key is not a whole number, or too large to be exact",
    Unfit.KEY_TYPE: "the key is neither text nor a number",
    Unfit.VERSION: "the version is neither text nor a whole number from 0 on",
    Unfit.DUPLICATE: "several current entities have this key, and they differ",
    Unfit.UNREADABLE: "the database cannot hand out its text",
}


def uid_of(key: object) -> str | Unfit:
    """The key of an entity as jobs have it, or why they cannot."""
    match key:
        case None:
            return Unfit.KEY_MISSING
        case bool():
            return Unfit.KEY_TYPE
        case int() | float():
            whole = whole_number(key)
            return Unfit.KEY_NUMBER if whole is None else str(whole)
        case "":
            return Unfit.KEY_EMPTY
        case str():
            return key if len(key) <= MAX_KEY_LENGTH else Unfit.KEY_LONG
        case _:
            return Unfit.KEY_TYPE


def values_of(uid: str) -> list[KeyValue]:
    """What the key property of an entity may hold so that its jobs have this uid.

    An index that is asked for 42 finds 42.0, too.
    """
    if not _WHOLE.fullmatch(uid) or abs(number := int(uid)) > _LARGEST_INTEGER:
        return [uid]
    return [uid, number]


def other_values_of(key: KeyValue, uid: str) -> list[KeyValue]:
    """Keys of the other type (text or number) that would share the job of this one."""
    return [value for value in values_of(uid) if isinstance(value, str) is not isinstance(key, str)]


def version_of(value: object) -> int | None:
    """The version of an entity as jobs have it; ``None`` if they cannot.

    A version in words orders nothing: which one is current, the entity itself says.
    """
    if value is None:
        return FIRST_VERSION
    if isinstance(value, str):
        return int(value) if _VERSION.fullmatch(value) else FIRST_VERSION
    whole = whole_number(value)
    return whole if whole is not None and whole >= 0 else None


def whole_number(value: object) -> int | None:
    """A whole number, also one that came as a float; ``None`` if it is none, or not exact.

    Nor is -0.0 one: to an index it is another key than 0.
    """
    if type(value) is int:
        return value
    if type(value) is float and abs(value) <= LARGEST_EXACT and value == int(value):
        return None if is_negative_zero(value) else int(value)
    return None


def is_negative_zero(value: object) -> bool:
    """Whether it is -0.0, which an index treats as another key than 0."""
    return value == 0 and str(value) == "-0.0"
