"""neo4j-graphrag or LangChain search by meaning; a question per line, an answer per line."""
# pyright: reportMissingImports=false

import json
import sys
from typing import Any

from neo4j import GraphDatabase

asked: dict[str, Any] = json.loads(sys.stdin.readline())
# Last: what is locked here wins, the library and what else is missing comes from there.
sys.path.append(asked["packages"])
auth = tuple(asked["auth"])

from embed_pipeline.retrieval import LiveModel  # noqa: E402

with GraphDatabase.driver(asked["uri"], auth=auth) as driver:
    live = LiveModel(driver)
    if asked["library"] == "graphrag":
        from neo4j_graphrag.retrievers.base import Retriever

        from embed_pipeline.retrieval.graphrag import LiveEmbedder, LiveVectorRetriever

        retriever = LiveVectorRetriever(
            driver, live, neo4j_database=asked["database"], return_properties=["name"]
        )
        assert isinstance(retriever, Retriever)

        def search(question: str) -> tuple[str, int]:
            [item] = retriever.search(query_text=question, top_k=1).items
            return item.content, len(LiveEmbedder(live).embed_query(question))
    else:
        from embed_pipeline.retrieval.langchain import LiveEmbeddings, LiveRetriever

        options = {"url": asked["uri"], "username": auth[0], "password": auth[1]}
        retrieved = "RETURN node.name AS text, score, {} AS metadata"
        chain = LiveRetriever(
            live=live,
            k=1,
            options={**options, "database": asked["database"], "retrieval_query": retrieved},
        )

        def search(question: str) -> tuple[str, int]:
            [document] = chain.invoke(question)
            return document.page_content, len(LiveEmbeddings(live).embed_query(question))

    for line in sys.stdin:
        print(json.dumps(search(json.loads(line))), flush=True)  # noqa: T201 - the answer
