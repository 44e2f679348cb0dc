"""neo4j-graphrag embeds nodes: its embedder takes one text at a time, ``upsert_vectors`` many."""
# pyright: reportMissingImports=false

import time

from asked import ASKED, answer
from neo4j import GraphDatabase
from neo4j_graphrag.embeddings import OpenAIEmbeddings
from neo4j_graphrag.indexes import upsert_vectors

BATCH = 500
embedder = OpenAIEmbeddings(model=ASKED["model"], base_url=ASKED["provider"], api_key=ASKED["key"])
began = time.perf_counter()
with GraphDatabase.driver(ASKED["uri"], auth=tuple(ASKED["auth"])) as driver:
    rows = driver.execute_query(
        "MATCH (e:Entity) WHERE e.embedding IS NULL RETURN elementId(e) AS id, "
        "e.name + '\n' + e.entityType + '\n' + e.observations AS text LIMIT $most",
        most=ASKED["most"],
        database_=ASKED["database"],
    ).records
    for first in range(0, len(rows), BATCH):
        part = rows[first : first + BATCH]
        upsert_vectors(
            driver,
            ids=[row["id"] for row in part],
            embedding_property="embedding",
            embeddings=[embedder.embed_query(row["text"]) for row in part],
            neo4j_database=ASKED["database"],
        )
answer(time.perf_counter() - began)
