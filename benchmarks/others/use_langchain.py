"""LangChain embeds the nodes of a graph that have no vector yet, as its documentation shows."""
# pyright: reportMissingImports=false

import time

from asked import ASKED, answer
from langchain_neo4j import Neo4jVector
from langchain_openai import OpenAIEmbeddings

embeddings = OpenAIEmbeddings(
    model=ASKED["model"],
    base_url=ASKED["provider"],
    api_key=ASKED["key"],
    # Its tokenizer downloads its vocabulary; these texts are short.
    check_embedding_ctx_length=False,
)
began = time.perf_counter()
Neo4jVector.from_existing_graph(
    embeddings,
    node_label="Entity",
    embedding_node_property="embedding",
    text_node_properties=["name", "entityType", "observations"],
    index_name=ASKED["index"],
    url=ASKED["uri"],
    username=ASKED["auth"][0],
    password=ASKED["auth"][1],
    database=ASKED["database"],
)
answer(time.perf_counter() - began)
