"""neo4j-graphrag writes a lexical graph, or searches."""
# pyright: reportMissingImports=false

import asyncio

from asked import ASKED, answer
from neo4j import GraphDatabase
from neo4j_graphrag.components.kg_writer import Neo4jWriter
from neo4j_graphrag.components.lexical_graph import LexicalGraphBuilder
from neo4j_graphrag.components.types import DocumentInfo, TextChunk, TextChunks
from neo4j_graphrag.retrievers import VectorCypherRetriever, VectorRetriever


async def write(driver, texts: dict[str, str], *, with_id: bool) -> None:
    chunks = [
        TextChunk(text=text, index=index, uid=uid, metadata={"id": uid} if with_id else None)
        for index, (uid, text) in enumerate(texts.items())
    ]
    document = DocumentInfo(path="a.txt", uid="document")
    built = await LexicalGraphBuilder().run(TextChunks(chunks=chunks), document_info=document)
    await Neo4jWriter(driver, ASKED["database"]).run(built.graph)


with GraphDatabase.driver(ASKED["uri"], auth=tuple(ASKED["auth"])) as driver:
    if ASKED["action"] == "write":
        asyncio.run(write(driver, ASKED["texts"], with_id=ASKED["with_id"]))
        answer(None)
    elif ASKED["action"] == "passages":
        retriever = VectorCypherRetriever(
            driver,
            ASKED["index"],
            retrieval_query="MATCH (node)-[:FROM_DOCUMENT]->(entity) "
            "RETURN entity.name + ' | ' + node.text AS found",
            neo4j_database=ASKED["database"],
        )
        found = retriever.search(query_vector=ASKED["vector"], top_k=1)
        answer([item.content for item in found.items])
    else:
        retriever = VectorRetriever(
            driver, ASKED["index"], return_properties=["text"], neo4j_database=ASKED["database"]
        )
        found = retriever.search(query_vector=ASKED["vector"], top_k=1)
        answer([item.content for item in found.items])
