"""Numbers and other people's texts as words that fit into a sentence and a cell."""

import unicodedata
from datetime import datetime
from typing import Final

MOST_CHARACTERS: Final = 400
_INVISIBLE: Final = frozenset({"Cc", "Cs"})
_TURNS_ROUND: Final = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the direction of what follows, beyond the end of their own text."""


def at(moment: datetime) -> str:
    """A time to the minute."""
    return f"{moment:%Y-%m-%d %H:%M}"


def plain(text: str) -> str:
    """Untrusted text in one short line without invisible characters."""
    line = " ".join("".join(map(_visible, text)).split())
    return line if len(line) <= MOST_CHARACTERS else f"{line[: MOST_CHARACTERS - 1]}…"


def _visible(character: str) -> str:
    if character.isspace():
        return " "
    is_hidden = unicodedata.category(character) in _INVISIBLE or character in _TURNS_ROUND
    return "\N{REPLACEMENT CHARACTER}" if is_hidden else character
