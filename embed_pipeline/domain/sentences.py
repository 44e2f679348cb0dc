"""Which sentence of a text answers a question: for people who look at what a search has found."""

import re
from collections.abc import Sequence
from operator import mul
from typing import Final

from embed_pipeline.domain.vector import Vector, numbers_of

MOST_SENTENCES: Final = 30
"""Of one text; the rest of a long one is not looked at."""
LONGEST_SENTENCE: Final = 300
_HEADING: Final = re.compile(r"^(Name|Type): |^Observations:$")
_END: Final = re.compile(r"(?<=[.!?])\s+|\n+")
_WORD: Final = re.compile(r"\w{3,}")


def sentences_of(text: str) -> list[str]:
    """Sentences and lines of a text, without the headings that the default text has."""
    lines = (line for line in text[: MOST_SENTENCES * LONGEST_SENTENCE].split("\n"))
    facts = "\n".join(line.removeprefix("- ") for line in lines if not _HEADING.match(line))
    found = (part.strip()[:LONGEST_SENTENCE] for part in _END.split(facts))
    return [part for part in found if part][:MOST_SENTENCES]


def nearest_sentence(
    question: Vector, sentences: Sequence[str], vectors: Sequence[Vector]
) -> str | None:
    """The sentence whose vector is nearest to that of the question."""
    asked = numbers_of(question)
    near = [sum(map(mul, asked, numbers_of(vector))) for vector in vectors]
    return sentences[near.index(max(near))] if near else None


def sentence_by_words(question: str, sentences: Sequence[str]) -> str | None:
    """The sentence that shares most words with the question; the first if none shares any.

    Where a vector costs money, nobody pays for how a hit is shown.
    """
    asked = set(_WORD.findall(question.casefold()))
    return max(
        sentences,
        key=lambda sentence: len(asked & set(_WORD.findall(sentence.casefold()))),
        default=None,
    )
