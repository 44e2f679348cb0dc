"""What the names of neighbours in the text are worth, asked of the sample graph.

``python -m benchmarks.relations`` asks for one end of each relation by its word and the other end
("was born in London"), with and without ``{relations}`` in the text, and prints a table of recall;
the forty questions of ``questions.toml``, which say nothing of relations, show what it costs
others. Needs no server.
"""

import asyncio
import json
import sys
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.local_models import QUESTIONS, SAMPLE, embedded, place
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.models import DEFAULT_MODELS, MODELS, Provider
from embed_pipeline.domain.ports import Embedder
from embed_pipeline.domain.relations import INCOMING, OUTGOING, READ_AS, line_of
from embed_pipeline.domain.text import render_for
from embed_pipeline.embedding.local import open_local

TEMPLATE: Final = "{name} ({entityType})\n{observations}"
SHAPE: Final = EntityShape(template=f"{TEMPLATE}\n{{relations}}")
WAYS: Final = {"none": "", "out": OUTGOING, "both": OUTGOING + INCOMING}
"""Directions whose neighbours are in the text."""
MOST: Final = 10
Places = Mapping[str, Sequence[int]]


def sample(signs: str) -> tuple[list[dict[str, Any]], dict[str, set[str]]]:
    """The entities with their neighbours, and who answers each question about a relation."""
    graph = json.loads(SAMPLE.read_text("utf-8"))
    lines: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    answers: defaultdict[str, set[str]] = defaultdict(set)
    for relation in graph["relations"]:
        start, word, end = relation["from"], relation["relationType"], relation["to"]
        lines[start, OUTGOING].add(line_of(OUTGOING, word, end))
        lines[end, INCOMING].add(line_of(INCOMING, word, start))
        answers[f"{word} {end}"].add(start)
    for entity in graph["entities"]:
        ways = (sorted(lines[entity["name"], sign])[:MOST] for sign in signs)
        entity[READ_AS] = [line for way in ways for line in way]
    return graph["entities"], answers


async def places_of_people(embedder: Embedder, signs: str) -> Places:
    """The same among people alone, as ``embeddings.example.yaml`` has them; relations only."""
    entities, answers = sample(signs)
    people = [entity for entity in entities if entity["entityType"] == "person"]
    names = [entity["name"] for entity in people]
    vectors = await embedded(embedder, [render_for(SHAPE)(entity) for entity in people])
    asked = {text: right & set(names) for text, right in answers.items() if right & set(names)}
    about = await embedded(embedder, list(asked))
    return {
        "relations": [
            min(place(vector, vectors, names.index(name)) for name in right)
            for vector, right in zip(about, asked.values(), strict=True)
        ]
    }


async def places(embedder: Embedder, signs: str) -> Places:
    """The place of the first right answer to each question of both kinds."""
    entities, answers = sample(signs)
    names = [entity["name"] for entity in entities]
    vectors = await embedded(embedder, [render_for(SHAPE)(entity) for entity in entities])
    others = tomllib.loads(QUESTIONS.read_text("utf-8"))["question"]
    asked = {
        "relations": answers,
        "others": {question["en"]: {question["answer"]} for question in others},
    }
    found: dict[str, list[int]] = {}
    for kind, questions in asked.items():
        about = await embedded(embedder, list(questions))
        found[kind] = [
            min(place(vector, vectors, names.index(name)) for name in right)
            for vector, right in zip(about, questions.values(), strict=True)
        ]
    return found


def main() -> None:
    """Print the table."""
    rows = ["| provider | neighbours | relations: recall@1 | @5 | other questions: recall@1 | @5 |"]
    rows.append("|---|---|---|---|---|---|")
    for provider in (Provider.LOCAL, Provider.LOCAL_FAST):
        known = MODELS[DEFAULT_MODELS[provider]]
        embedder = open_local(provider, model=known.name, dimensions=known.dimensions)
        for way, signs in WAYS.items():
            found = asyncio.run(places(embedder, signs))
            shares = [
                f"{sum(at <= most for at in found[kind]) / len(found[kind]):.2f}"
                for kind in ("relations", "others")
                for most in (1, 5)
            ]
            rows.append(f"| {provider.value} | {way} | {' | '.join(shares)} |")
            own = asyncio.run(places_of_people(embedder, signs))["relations"]
            first, five = (sum(at <= most for at in own) / len(own) for most in (1, 5))
            rows.append(f"| {provider.value}, people | {way} | {first:.2f} | {five:.2f} | | |")
    sys.stdout.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
