"""Entities and relations as the Memento memory server from npm writes them.

Its driver sends every number as a FLOAT, observations are JSON in a string, and ``null`` stands for
what is current or unknown: Neo4j does not store it.
"""

import json
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, Final, LiteralString

CREATE_ENTITIES: Final[LiteralString] = """
UNWIND $entities AS row
CREATE (:Entity {id: randomUUID(), name: row.name, entityType: row.entityType,
  observations: row.observations, version: 1.0, createdAt: $now, updatedAt: $now, validFrom: $now,
  validTo: null, changedBy: null})
"""
CREATE_RELATIONS: Final[LiteralString] = """
UNWIND $relations AS row
MATCH (a:Entity {name: row.from}), (b:Entity {name: row.to})
CREATE (a)-[:RELATES_TO {id: randomUUID(), relationType: row.relationType, strength: null,
  confidence: null, metadata: null, version: 1.0, createdAt: $now, updatedAt: $now,
  validFrom: $now, validTo: null, changedBy: null}]->(b)
"""


def remember(
    run: Callable[..., object],
    entities: Iterable[dict[str, Any]],
    relations: Iterable[dict[str, str]] = (),
) -> None:
    """Write entities, then relations between entities that are there.

    ``run`` takes a statement and its parameters by name.
    """
    now = float(time.time_ns() // 1_000_000)
    rows = [{**entity, "observations": _as_json(entity["observations"])} for entity in entities]
    run(CREATE_ENTITIES, entities=rows, now=now)
    run(CREATE_RELATIONS, relations=list(relations), now=now)


def chained(names: list[str]) -> list[dict[str, str]]:
    """A relation from each to the next."""
    return [{"from": a, "to": b, "relationType": "knows"} for a, b in pairwise(names)]


def _as_json(observations: list[str]) -> str:
    # JSON.stringify writes no blanks and leaves letters as they are.
    return json.dumps(observations, ensure_ascii=False, separators=(",", ":"))
