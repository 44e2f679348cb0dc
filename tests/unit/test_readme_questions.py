"""The questions of the README have the answers it promises, with the model of the first hour."""

import asyncio
import json
import re
from importlib.resources import files

import numpy as np
import yaml

from benchmarks.relations import WAYS, sample
from embed_pipeline.domain.models import Provider
from embed_pipeline.domain.text import memento_text, template_text
from embed_pipeline.domain.vector import numbers_of
from embed_pipeline.embedding.local import open_local
from tests.support.project import ROOT


def test_m97_the_ten_questions_of_the_readme_have_their_answers() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    promised = re.findall(r'"([^"]+)" → \*\*([^*]+)\*\*', readme)
    sample = files("embed_pipeline.devserver").joinpath("sample_graph.json").read_text("utf-8")
    entities = json.loads(sample)["entities"]
    model = open_local(Provider.LOCAL, model="use-multilingual-3", dimensions=512)
    texts = [memento_text(entity) for entity in entities] + [question for question, _ in promised]

    embedded = asyncio.run(model.embed([model.prepare(text) for text in texts])).vectors

    vectors = np.array([numbers_of(vector) for vector in embedded])
    graph, asked = vectors[: len(entities)], vectors[len(entities) :]
    nearest = (asked @ graph.T).argmax(axis=1).tolist()
    answers = [entities[place]["name"] for place in nearest]
    assert len(promised) == 10
    assert answers == [answer for _, answer in promised]


def test_m115_the_question_of_the_readme_is_answered_by_the_names_of_neighbours() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    asked = re.search(r'people search "([^"]+)"` finds ([^,]+), who is (\d+)th', readme)
    assert asked is not None
    example = yaml.safe_load((ROOT / "embeddings.example.yaml").read_text(encoding="utf-8"))
    template = example["embeddings"][1]["text"]
    model = open_local(Provider.LOCAL_FAST, model="wordllama-256", dimensions=256)

    def place(ways: str) -> int:
        people = [one for one in sample(WAYS[ways])[0] if one["entityType"] == "person"]
        texts = [*(template_text(one, template) for one in people), asked[1]]
        vectors = asyncio.run(model.embed([model.prepare(text) for text in texts])).vectors
        *near, question = np.array([numbers_of(vector) for vector in vectors])
        order = np.argsort([-(one @ question) for one in near]).tolist()
        return 1 + [people[number]["name"] for number in order].index(asked[2])

    assert (place("out"), place("none")) == (1, int(asked[3]))
