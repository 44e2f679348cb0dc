"""The memory of mcp-neo4j-memory: the module that writes, without the server around it."""
# pyright: reportMissingImports=false, reportOptionalMemberAccess=false, reportGeneralTypeIssues=false

import asyncio
import importlib.util
from typing import Any

from asked import ASKED, answer
from neo4j import AsyncGraphDatabase

[folder] = importlib.util.find_spec("mcp_neo4j_memory").submodule_search_locations
spec: Any = importlib.util.spec_from_file_location("neo4j_memory", f"{folder}/neo4j_memory.py")
memory: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(memory)


async def act() -> Any:
    async with AsyncGraphDatabase.driver(ASKED["uri"], auth=tuple(ASKED["auth"])) as driver:
        store = memory.Neo4jMemory(driver)
        match ASKED["action"]:
            case "write":
                await store.create_fulltext_index()
                await store.create_entities([memory.Entity(**e) for e in ASKED["entities"]])
                await store.create_relations([memory.Relation(**r) for r in ASKED["relations"]])
            case "change":
                added = [memory.ObservationAddition(**o) for o in ASKED["observations"]]
                await store.add_observations(added)
                await store.delete_entities(ASKED["deleted"])
            case _:
                graph = await store.read_graph()
                return sorted(entity.name for entity in graph.entities)
    return None


answer(asyncio.run(act()))
