"""The graph after a run, as the checker reads it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from neo4j import AsyncDriver


@dataclass(frozen=True, slots=True)
class Graph:
    """All entities, all jobs with their labels, and copies of the jobs that were cleaned up."""

    entities: list[dict[str, Any]]
    jobs: list[dict[str, Any]]
    purged: list[dict[str, Any]]

    def save(self, folder: Path) -> None:
        (folder / "graph.json").write_text(json.dumps(asdict(self)))


def load_graph(folder: Path) -> Graph:
    return Graph(**json.loads((folder / "graph.json").read_text()))


async def dump(driver: AsyncDriver) -> Graph:
    async with driver.session() as session:

        async def rows(statement: Any) -> list[dict[str, Any]]:
            return [record["row"] async for record in await session.run(statement)]

        return Graph(
            entities=await rows("MATCH (e:Entity) RETURN e {.*} AS row"),
            jobs=await rows("MATCH (j:EmbedJob) RETURN j {.*, labels: labels(j)} AS row"),
            purged=await rows("MATCH (j:ChaosPurged) RETURN j {.*} AS row"),
        )
