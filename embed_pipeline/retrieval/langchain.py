"""For LangChain: ``pip install 'embed-pipeline[langchain]'``."""
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_neo4j import Neo4jVector
from pydantic import PrivateAttr

from embed_pipeline.retrieval.live import LiveIndex, LiveModel


class LiveEmbeddings(Embeddings):
    """Embeds with whatever model is live."""

    def __init__(self, live: LiveModel) -> None:
        self.live = live

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.live.embed(texts)[1]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


class LiveRetriever(BaseRetriever):
    """Documents from the live index; its ``Neo4jVector`` is made again when the epoch has changed.

    ``options`` are those of ``Neo4jVector.from_existing_index``: connection, ``retrieval_query``,
    ``text_node_property``; without index and embedding.
    """

    live: Any
    """A ``LiveModel``."""
    options: dict[str, Any]
    k: int = 4
    _made: tuple[LiveIndex, Any] | None = PrivateAttr(default=None)

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Any]:  # noqa: ARG002
        index, vector = self.live.ask(query)
        if self._made is None or self._made[0] != index:
            made = Neo4jVector.from_existing_index(
                LiveEmbeddings(self.live), index_name=index.index, **self.options
            )
            self._made = index, made
        return self._made[1].similarity_search_by_vector(vector, k=self.k, query=query)
