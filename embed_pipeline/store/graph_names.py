"""Reads the graph's labels and properties, to suggest them where the settings match nothing."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from neo4j.exceptions import Forbidden

from embed_pipeline.domain.entity import EntityShape, is_name
from embed_pipeline.domain.misfits import Names
from embed_pipeline.domain.pieces import PIECE_LABEL
from embed_pipeline.domain.relations import Relations
from embed_pipeline.store.cypher import names as cypher
from embed_pipeline.store.database import Database, Transaction, fetch, fetch_one
from embed_pipeline.store.naming import for_shape

COUNTED: Final = 30
"""Labels, and types of relationships, that are counted, each by a statement of its own."""


async def read_names(database: Database, shape: EntityShape) -> Names:
    """Read labels, the properties of some entities, and types of relationships if they matter.

    The cost does not depend on the graph.

    A user who may not see them has nothing to be offered.
    """

    async def look(tx: Transaction) -> Names:
        labels = [record["label"] for record in await fetch(tx, cypher.LABELS)]
        found = {label: await _count(tx, shape, label) for label in labels[:COUNTED]}
        records = await fetch(tx, for_shape(cypher.PROPERTIES, shape))
        ours = {shape.vector, *shape.provenance}
        types = {}
        if shape.has_relations:
            wanted = shape.relations.types
            named = sorted(await _types(tx), key=lambda name: name not in wanted)
            most = len(wanted) + COUNTED
            types = {name: await _count_type(tx, shape, name) for name in named[:most]}
        return Names(
            labels=_most_first(found),
            relations=_most_first(types),
            properties={r["name"]: r["nodes"] for r in records if r["name"] not in ours},
        )

    try:
        return await database.read(look)
    except Forbidden:
        return Names()


async def read_types(database: Database) -> Mapping[str, int] | None:
    """The types of relationships that there are, uncounted; ``None`` if this user may not ask."""
    try:
        return dict.fromkeys(await database.read(_types), 1)
    except Forbidden:
        return None


async def _types(tx: Transaction) -> list[str]:
    return [record["type"] for record in await fetch(tx, cypher.TYPES)]


async def _count_type(tx: Transaction, shape: EntityShape, name: str) -> int:
    if not is_name(name):
        return 0
    only = replace(shape, relations=Relations(types=(name,), direction="out"))
    return (await fetch_one(tx, for_shape(cypher.COUNT_TYPE, only)))["relations"]


def _most_first(found: Mapping[str, int]) -> dict[str, int]:
    return {name: n for name, n in sorted(found.items(), key=lambda item: -item[1]) if n}


async def _count(tx: Transaction, shape: EntityShape, label: str) -> int:
    if not is_name(label):
        return 0
    # Pieces have a label that no entities can have beside them, and here it is only counted.
    only = replace(shape, label=label, pieces=None)
    found = (await fetch_one(tx, for_shape(cypher.COUNT_LABEL, only)))["nodes"]
    if label == PIECE_LABEL:
        found -= (await fetch_one(tx, cypher.COUNT_PIECES))["nodes"]
    return found
