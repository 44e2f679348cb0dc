"""The graph after a run, as the checker reads it."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, LiteralString

from neo4j import AsyncDriver

PIECES: Final[LiteralString] = """
COLLECT {
  MATCH (e)<-[:FROM_DOCUMENT]-(piece:EmbedPiece)
  RETURN [piece.index, piece.start, piece.`end`, piece.text, piece.model, piece.embedding]
  ORDER BY piece.index
}"""
ENTITIES: Final[LiteralString] = "MATCH (e:Entity) RETURN e {.*, pieces: " + PIECES + "} AS row"


@dataclass(frozen=True, slots=True)
class Graph:
    """All entities with their pieces, all jobs with their labels, and copies of the jobs that were
    cleaned up; ``relations`` lead from a name to another."""

    entities: list[dict[str, Any]]
    jobs: list[dict[str, Any]]
    purged: list[dict[str, Any]]
    relations: list[list[str]] = field(default_factory=list)
    unscanned: list[dict[str, Any]] = field(default_factory=list)
    """The entities as they were before the last scan, when nothing was left to do."""

    def save(self, folder: Path) -> None:
        (folder / "graph.json").write_text(json.dumps(asdict(self)))


def load_graph(folder: Path) -> Graph:
    return Graph(**json.loads((folder / "graph.json").read_text()))


async def rows_of(driver: AsyncDriver, statement: LiteralString) -> list[Any]:
    async with driver.session() as session:
        return [record["row"] async for record in await session.run(statement)]


async def dump(driver: AsyncDriver, unscanned: list[dict[str, Any]]) -> Graph:
    return Graph(
        entities=await rows_of(driver, ENTITIES),
        jobs=await rows_of(driver, "MATCH (j:EmbedJob) RETURN j {.*, labels: labels(j)} AS row"),
        purged=await rows_of(driver, "MATCH (j:ChaosPurged) RETURN j {.*} AS row"),
        relations=await rows_of(
            driver, "MATCH (a:Entity)-[:KNOWS]->(b:Entity) RETURN [a.name, b.name] AS row"
        ),
        unscanned=unscanned,
    )
