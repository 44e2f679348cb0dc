"""Other programs through their own code: they write, we embed, they search."""

import asyncio
import os
from typing import Final

import pytest

from embed_pipeline.domain.coverage import Coverage
from tests.clients.conftest import LENGTH, Deployment, documented, meaning
from tests.support.mcp_client import mcp_server
from tests.support.project import BIN

TEXTS: Final = {"a": "Ada wrote the first program", "b": "Paris has a tower of iron"}
QUESTION: Final = "who wrote a program"
FOREIGN: Final = [1.0] * LENGTH
"""A vector that nobody made of a text."""
CHUNK: Final = {
    "EMBED_ENTITY_LABEL": "Chunk",
    "EMBED_ENTITY_KEY": "id",
    "EMBED_ENTITY_TEMPLATE": "{text}",
}


async def models(deployment: Deployment, key: str = "id") -> dict[str, str]:
    """Which entities carry a vector of ours."""
    rows = await deployment.graph.run(
        "MATCH (n) WHERE n.embedding IS NOT NULL RETURN n[$key] AS key, n.embedding_model AS model",
        key=key,
    )
    return {row["key"]: row["model"] for row in rows}


@pytest.mark.proof
async def test_neo4j_graphrag_finds_its_chunks_by_our_vectors(deployment: Deployment) -> None:
    deployment.set(**documented("neo4j-graphrag"))
    index = await deployment.init()
    await deployment.script("graphrag", "write", texts=TEXTS, with_id=True)

    scan, _ = await deployment.embed()
    vector = meaning(QUESTION)
    found = await deployment.script("graphrag", "search", index=index, vector=vector)

    assert (index, scan.report.entities) == ("chunks", 2)
    assert set(await models(deployment)) == set(TEXTS)
    assert [TEXTS["a"] in content for content in found] == [True]


async def test_m120_neo4j_graphrag_walks_from_our_pieces_to_their_entity(
    deployment: Deployment,
) -> None:
    deployment.set(EMBED_PIECES="nodes", EMBED_PIECES_TOKENS="16")
    await deployment.init()
    [looked] = [x for x in await deployment.doctor() if x.subject == "Index of pieces"]
    await deployment.graph.run(
        "UNWIND $names AS name CREATE (:Entity {name: name, version: 1, observations: $texts})",
        names=["Ada", "Bob"],
        texts=[*TEXTS.values(), "Nothing else is said here, in some words more"],
    )
    await deployment.graph.run("MATCH (bob:Entity {name: 'Bob'}) SET bob.observations = ['sleeps']")

    await deployment.embed()
    vector = meaning("- " + TEXTS["b"])
    found = await deployment.script("graphrag", "passages", index="chunk_embeddings", vector=vector)

    assert looked.detail.startswith("chunk_embeddings")
    assert ["Ada | " in content and TEXTS["b"] in content for content in found] == [True]


@pytest.mark.proof
async def test_langchain_finds_texts_by_our_vectors(deployment: Deployment) -> None:
    deployment.set(**CHUNK)
    texts = list(TEXTS.values())
    await deployment.script("langchain", "write", texts=texts, vector=FOREIGN)
    index = await deployment.init()

    scan, _ = await deployment.embed()
    vector = meaning(QUESTION)
    found = await deployment.script("langchain", "search", index=index, vector=vector)

    # Its own index, and its own vectors, which are replaced.
    assert (index, scan.report.entities) == ("vector", 2)
    assert set((await models(deployment)).values()) == {"text-embedding-3-small"}
    assert found == [TEXTS["a"]]


@pytest.mark.proof
async def test_llama_index_finds_texts_by_our_vectors(deployment: Deployment) -> None:
    deployment.set(**CHUNK)
    keys = await deployment.script("llama_index", "write", texts=TEXTS, deleted=[], vector=FOREIGN)
    index = await deployment.init()
    await deployment.embed()
    changed = {"a": "Grace wrote a compiler"}
    await deployment.script("llama_index", "write", texts=changed, deleted=["b"], vector=FOREIGN)

    scan, _ = await deployment.embed()
    found = await deployment.script("llama_index", "search", vector=meaning("a compiler"))

    assert (keys, index, scan.report.entities) == (["a", "b"], "vector", 1)
    assert await models(deployment) == {"a": "text-embedding-3-small"}
    assert found == [changed["a"]]


async def test_mcp_neo4j_memory_is_embedded_and_reads_its_graph_as_before(
    deployment: Deployment,
) -> None:
    deployment.set(**documented("mcp-neo4j-memory"))
    await deployment.init()
    entities = [
        {"name": "Ada", "type": "person", "observations": ["wrote a program"]},
        {"name": "Paris", "type": "city", "observations": []},
        {"name": "Nobody", "type": "person", "observations": ["does nothing"]},
    ]
    visited = [{"source": "Ada", "target": "Paris", "relationType": "VISITED"}]
    await deployment.script("neo4j_memory", "write", entities=entities, relations=visited)
    await deployment.embed()
    more = [{"entityName": "Ada", "observations": ["met Babbage"]}]
    await deployment.script("neo4j_memory", "change", observations=more, deleted=["Nobody"])

    scan, report = await deployment.embed()
    after, _ = await deployment.embed()
    names = await deployment.script("neo4j_memory", "read")
    command = [str(BIN / "embed-pipeline"), "mcp"]
    with mcp_server(command, os.environ) as agent:
        answer = await asyncio.to_thread(agent.call, "search_graph", question=QUESTION, limit=1)

    assert (scan.report.counts[Coverage.STALE], report.completed) == (1, 1)
    assert (after.report.entities, after.report.counts[Coverage.CURRENT]) == (2, 2)
    assert names == ["Ada", "Paris"]
    [hit] = answer["hits"]
    assert (hit["name"], hit["type"], hit["because"]) == ("Ada", "person", "wrote a program")
    assert hit["relations"] == ["Ada visited Paris"]
