"""The sample graph: a few hundred entities from science, technology, nature and art."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from neo4j import AsyncDriver

from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.store.sample import count_entities, load_graph


@cache
def _graph() -> dict[str, list[dict[str, Any]]]:
    return json.loads(
        files("embed_pipeline.devserver").joinpath("sample_graph.json").read_text("utf-8")
    )


async def load_sample(driver: AsyncDriver, *, database: str, shape: EntityShape) -> int:
    """Add what is missing of the sample graph; return how many entities are new."""
    graph = _graph()
    # As the Memento memory server keeps them: a JSON list in a string. People have a second label.
    entities = [
        {
            **entity,
            "observations": json.dumps(entity["observations"], ensure_ascii=False),
            "labels": ["Person"] if entity["entityType"] == "person" else [],
        }
        for entity in graph["entities"]
    ]
    return await load_graph(
        driver, database=database, shape=shape, entities=entities, relations=graph["relations"]
    )


async def load_into_empty_graph(driver: AsyncDriver, *, database: str, shape: EntityShape) -> int:
    """Load the sample only where there are no entities at all."""
    if await count_entities(driver, database=database, shape=shape):
        return 0
    return await load_sample(driver, database=database, shape=shape)
