"""LangChain's Neo4jVector adds texts, or searches."""
# pyright: reportMissingImports=false

from asked import ASKED, answer
from langchain_core.embeddings import Embeddings
from langchain_neo4j import Neo4jVector


class Given(Embeddings):
    """Vectors that were made before."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [ASKED["vector"] for _ in texts]

    def embed_query(self, text: str) -> list[float]:
        return ASKED["vector"]


connection = {
    "url": ASKED["uri"],
    "username": ASKED["auth"][0],
    "password": ASKED["auth"][1],
    "database": ASKED["database"],
}
if ASKED["action"] == "write":
    Neo4jVector.from_texts(ASKED["texts"], Given(), **connection)
    answer(None)
else:
    store = Neo4jVector.from_existing_index(Given(), index_name=ASKED["index"], **connection)
    answer([found.page_content for found in store.similarity_search("a question", k=1)])
