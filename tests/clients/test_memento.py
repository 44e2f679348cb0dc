"""The Memento memory server from npm, driven over MCP, on a graph that we keep embedded."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.operations.doctor import Mark
from embed_pipeline.settings import load_settings
from tests.clients.conftest import Deployment, documented
from tests.clients.packages import memento_folder
from tests.support.mcp_client import McpClient, mcp_server
from tests.support.openai_server import KEY

TO_LOOPBACK = Path(__file__).parent / "scripts" / "to_loopback.mjs"
"""Memento knows one provider address, which stands in its code."""

QUESTION = {"query": "Name: Ada, Type: person, wrote the first program", "min_similarity": 0.8}
ENTITIES = [
    {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]},
    {"name": "Paris", "entityType": "city", "observations": ["has a tower of iron"]},
    {"name": "Nobody", "entityType": "person", "observations": []},
]


@pytest.fixture(params=[True, False], ids=["with a key", "without a key"])
def has_key(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
def memento(deployment: Deployment, *, has_key: bool) -> Iterator[McpClient]:
    """The server; without a key it stores random vectors as if they meant something."""
    packages = memento_folder()
    environment = {
        "PATH": os.environ["PATH"],
        **deployment.server.environment,
        "LOOPBACK": deployment.provider.base_url,
        "AXIOS": str(packages / "axios" / "index.js"),
    }
    if has_key:
        environment["OPENAI_API_KEY"] = KEY
    main = packages / "@gannonh" / "memento-mcp" / "dist" / "index.js"
    command = ["node", "--import", str(TO_LOOPBACK), str(main)]
    with mcp_server(command, environment) as client:
        yield client


async def test_m135_what_memento_writes_is_embedded_with_the_default_settings(
    memento: McpClient, deployment: Deployment, *, has_key: bool
) -> None:
    settings = load_settings()
    defaults = {"EMBEDDING_MODEL": settings.model, "EMBEDDING_DIMENSIONS": str(settings.dimensions)}
    assert documented("Memento") == defaults
    index = await deployment.init()
    await asyncio.to_thread(memento.call, "create_entities", entities=ENTITIES)
    relation = {"from": "Ada", "to": "Paris", "relationType": "visited"}
    await asyncio.to_thread(memento.call, "create_relations", relations=[relation])

    first, _ = await deployment.embed()
    seen = await current(deployment)
    more = {"entityName": "Ada", "contents": ["met Babbage"]}
    await asyncio.to_thread(memento.call, "add_observations", observations=[more])
    await asyncio.to_thread(memento.call, "delete_entities", entityNames=["Nobody"])
    second, _ = await deployment.embed()
    third, _ = await deployment.embed()

    assert index == "entity_embeddings"
    assert first.report.entities == 3
    assert first.report.counts[Coverage.UNEMBEDDABLE] == 0
    assert seen == {"Ada": 1, "Paris": 1, "Nobody": 1}
    assert second.report.entities == 2
    assert await current(deployment) == {"Ada": 2, "Paris": 1}
    assert third.report.counts[Coverage.CURRENT] == 2
    old = await deployment.graph.run(
        "MATCH (e:Entity) WHERE e.validTo IS NOT NULL RETURN e.embedding IS NULL AS is_bare"
    )
    assert old == [{"is_bare": True}]
    hits = await asyncio.to_thread(memento.call, "semantic_search", **QUESTION)
    # Without a key its question is a random vector, too.
    assert not has_key or [hit["name"] for hit in hits["entities"]] == ["Ada"]
    assert [f for f in await deployment.doctor() if f.mark in (Mark.WARNING, Mark.BAD)] == []


async def current(deployment: Deployment) -> dict[str, int]:
    """The versions of which current entities carry a vector of ours."""
    rows = await deployment.graph.run(
        """
        MATCH (e:Entity) WHERE e.validTo IS NULL AND e.embedding_model = 'text-embedding-3-small'
        RETURN e.name AS name, e.embedding_version AS version, e.version = e.embedding_version AS ok
        """
    )
    assert all(row["ok"] for row in rows)
    return {row["name"]: row["version"] for row in rows}
