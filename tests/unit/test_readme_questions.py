"""The questions of the README have the answers it promises, with the model of the first hour."""

import asyncio
import json
import re
from importlib.resources import files

import numpy as np

from embed_pipeline.domain.models import Provider
from embed_pipeline.domain.text import memento_text
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
