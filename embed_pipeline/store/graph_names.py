"""Asks the graph for its labels and properties: what to offer to somebody whose settings miss."""

from dataclasses import replace
from typing import Final

from neo4j.exceptions import Forbidden

from embed_pipeline.domain.entity import EntityShape, is_name
from embed_pipeline.domain.misfits import Names
from embed_pipeline.store.cypher import names as cypher
from embed_pipeline.store.database import Database, Transaction, fetch, fetch_one
from embed_pipeline.store.naming import for_shape

COUNTED: Final = 30
"""Labels whose nodes are counted, each by a statement of its own."""


async def read_names(database: Database, shape: EntityShape) -> Names:
    """Read labels, and the properties of some entities; the cost does not depend on the graph.

    A user who may not see them has nothing to be offered.
    """

    async def look(tx: Transaction) -> Names:
        labels = [record["label"] for record in await fetch(tx, cypher.LABELS)]
        found = {label: await _count(tx, shape, label) for label in labels[:COUNTED]}
        records = await fetch(tx, for_shape(cypher.PROPERTIES, shape))
        ours = {shape.vector, *shape.provenance}
        return Names(
            labels={
                label: number
                for label, number in sorted(found.items(), key=lambda item: -item[1])
                if number
            },
            properties={r["name"]: r["nodes"] for r in records if r["name"] not in ours},
        )

    try:
        return await database.read(look)
    except Forbidden:
        return Names()


async def _count(tx: Transaction, shape: EntityShape, label: str) -> int:
    if not is_name(label):
        return 0
    statement = for_shape(cypher.COUNT_LABEL, replace(shape, label=label))
    return (await fetch_one(tx, statement))["nodes"]
