"""What becomes of long texts: cut, whole, the mean of their pieces, or the best piece.

``python -m benchmarks.passages`` makes documents of 16,600 characters of the topics that every
Python brings for its ``help()``, takes some sentences out of each, and asks which document they are
from. Needs no server.
"""

import asyncio
import platform
import random
import re
import sys
from operator import mul
from pydoc_data.topics import topics
from typing import Final

from benchmarks.machine import size
from embed_pipeline.domain.embedding import PreparedText
from embed_pipeline.domain.models import DEFAULT_MODELS, MODELS, Provider
from embed_pipeline.domain.ports import Embedder
from embed_pipeline.domain.vector import Vector, mean_of, numbers_of
from embed_pipeline.embedding.local import open_local
from embed_pipeline.embedding.tokens import prepare

LENGTH: Final = 16_600
SENTENCES: Final = 4
"""That are taken out of a document."""
PIECE: Final = 256
CUT: Final = 512
SENTENCE: Final = re.compile(r"(?<=\.  )[A-Z][^.]{60,200}\.(?=\s)")


def documents() -> tuple[list[str], list[tuple[str, int]]]:
    """Texts, and sentences that are no longer in them, with the number of the text."""
    dice = random.Random(7)
    whole = "\n\n".join(topics[name] for name in sorted(topics))
    texts = [whole[at : at + LENGTH] for at in range(0, len(whole) - LENGTH, LENGTH)]
    asked: list[tuple[str, int]] = []
    for number, text in enumerate(texts):
        found = SENTENCE.findall(text)
        for sentence in dice.sample(found, min(SENTENCES, len(found))):
            texts[number] = texts[number].replace(sentence, "")
            asked.append((" ".join(sentence.split()), number))
    return texts, asked


async def embedded(embedder: Embedder, texts: list[PreparedText]) -> list[Vector]:
    """One vector for each, asked for in small requests."""
    found: list[Vector] = []
    for start in range(0, len(texts), 32):
        found += (await embedder.embed(texts[start : start + 32])).vectors
    return found


async def rows(embedder: Embedder) -> list[str]:
    """A line of the table for each way."""
    texts, asked = documents()
    about = await embedded(embedder, [prepare(text, max_tokens=CUT) for text, _ in asked])
    questions = [numbers_of(vector) for vector in about]
    split = [prepare(text, max_tokens=PIECE) for text in texts]
    beginnings = [prepare(text, max_tokens=CUT).inputs[0] for text in texts]
    pieces = [await embedded(embedder, list(text.inputs)) for text in split]
    alike = [mean_of(own, [1] * len(own)) for own in pieces]
    weighed = [mean_of(own, text.weights) for own, text in zip(pieces, split, strict=True)]
    whole = await embedded(embedder, [PreparedText(text, LENGTH) for text in texts])
    ways = {
        f"the first {CUT} tokens": [[one] for one in await embedded(embedder, beginnings)],
        "one vector of the whole text": [[one] for one in whole],
        f"mean of pieces of {PIECE}, each alike": [[one] for one in alike],
        f"mean of pieces of {PIECE}, by their tokens": [[one] for one in weighed],
        f"best piece of {PIECE}": pieces,
    }
    lines = [f"{len(texts)} texts, {len(asked)} questions, {sum(map(len, pieces))} pieces"]
    for way, vectors in ways.items():
        numbers = [[numbers_of(one) for one in of_text] for of_text in vectors]
        places: list[int] = []
        for question, (_, right) in zip(questions, asked, strict=True):
            near = [max(sum(map(mul, question, one)) for one in own) for own in numbers]
            places.append(1 + sum(other > near[right] for other in near))
        shares = [f"{sum(at <= most for at in places) / len(places):.2f}" for most in (1, 5)]
        lines.append(f"| {way} | {' | '.join(shares)} |")
    return lines


def main() -> None:
    """Print the table for both models."""
    sys.stdout.write(f"{size()}, Python {platform.python_version()}\n")
    for provider in (Provider.LOCAL, Provider.LOCAL_FAST):
        known = MODELS[DEFAULT_MODELS[provider]]
        embedder = open_local(provider, model=known.name, dimensions=known.dimensions)
        lines = asyncio.run(rows(embedder))
        sys.stdout.write("\n".join([f"{provider.value}: {lines[0]}", *lines[1:], ""]))


if __name__ == "__main__":
    main()
