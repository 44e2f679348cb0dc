"""How well the models that come in wheels find what people ask for, and how fast they are.

``python -m benchmarks.local_models`` asks the forty questions of ``questions.toml`` about the
sample graph, in English and in German, and prints a table; needs no server.
"""

import asyncio
import json
import sys
import time
import tomllib
from collections.abc import Sequence
from operator import mul
from pathlib import Path
from typing import Any, Final

from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.models import DEFAULT_MODELS, MODELS, Provider
from embed_pipeline.domain.ports import Embedder
from embed_pipeline.domain.text import render_for
from embed_pipeline.domain.vector import numbers_of
from embed_pipeline.embedding.local import open_local
from tests.support.project import ROOT

LANGUAGES: Final = ("en", "de")
QUESTIONS: Final = Path(__file__).with_name("questions.toml")
SAMPLE: Final = ROOT / "embed_pipeline" / "devserver" / "sample_graph.json"


async def ranks(embedder: Embedder) -> tuple[dict[str, list[int]], float]:
    """The place of the right answer for each question, and texts per CPU second."""
    entities: list[dict[str, Any]] = json.loads(SAMPLE.read_text("utf-8"))["entities"]
    questions = tomllib.loads(QUESTIONS.read_text("utf-8"))["question"]
    render = render_for(EntityShape())
    await embedded(embedder, ["loads the model and the vocabulary"])
    began = time.process_time()
    vectors = await embedded(embedder, [render(entity) for entity in entities])
    rate = len(entities) / (time.process_time() - began)
    found: dict[str, list[int]] = {}
    for language in LANGUAGES:
        asked = await embedded(embedder, [question[language] for question in questions])
        found[language] = [
            place(vector, vectors, [e["name"] for e in entities].index(question["answer"]))
            for vector, question in zip(asked, questions, strict=True)
        ]
    return found, rate


async def embedded(embedder: Embedder, texts: Sequence[str]) -> list[list[float]]:
    """The vectors of short texts."""
    answer = await embedder.embed([embedder.prepare(text) for text in texts])
    return [numbers_of(vector) for vector in answer.vectors]


def place(question: list[float], vectors: list[list[float]], right: int) -> int:
    """How many are nearer than the right one, and one."""
    near = [sum(map(mul, question, vector)) for vector in vectors]
    return 1 + sum(other > near[right] for other in near)


def main() -> None:
    """Print the table."""
    rows = ["| provider | model | language | first hit | among three | texts per CPU s |"]
    rows.append("|---|---|---|---|---|---|")
    for provider in (Provider.LOCAL, Provider.LOCAL_FAST):
        known = MODELS[DEFAULT_MODELS[provider]]
        embedder = open_local(provider, model=known.name, dimensions=known.dimensions)
        found, rate = asyncio.run(ranks(embedder))
        for language, places in found.items():
            first, three = (sum(place <= most for place in places) for most in (1, 3))
            rows.append(
                f"| {provider.value} | {known.name} | {language} | {first} of {len(places)} "
                f"| {three} | {rate:,.0f} |"
            )
    sys.stdout.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
