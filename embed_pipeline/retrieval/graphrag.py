"""For neo4j-graphrag: ``pip install 'embed-pipeline[graphrag]'``."""
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from typing import TYPE_CHECKING, Any

from neo4j_graphrag.embeddings import Embedder
from neo4j_graphrag.retrievers import VectorRetriever
from neo4j_graphrag.retrievers.base import Retriever

from embed_pipeline.retrieval.live import LiveIndex, LiveModel

if TYPE_CHECKING:
    from neo4j import Driver


class LiveEmbedder(Embedder):
    """Embeds with whatever model is live."""

    def __init__(self, live: LiveModel) -> None:
        super().__init__()
        self.live = live

    def embed_query(self, text: str, **_: Any) -> list[float]:
        return self.live.ask(text)[1]


class LiveVectorRetriever(Retriever):
    """A ``VectorRetriever`` of the live index; made again when the epoch has changed.

    ``options`` are those of ``VectorRetriever``, without index and embedder.
    """

    def __init__(
        self,
        driver: "Driver",
        live: LiveModel | None = None,
        *,
        neo4j_database: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(driver, neo4j_database)
        self.live = live or LiveModel(driver)
        self._options = options
        self._made: tuple[LiveIndex, Any] | None = None

    def get_search_results(
        self,
        query_text: str,
        top_k: int = 5,
        effective_search_ratio: int = 1,
        filters: dict[str, Any] | None = None,
    ) -> Any:
        """Embed the question with the live model, and ask its index."""
        index, vector = self.live.ask(query_text)
        if self._made is None or self._made[0] != index:
            made = VectorRetriever(
                self.driver, index.index, neo4j_database=self.neo4j_database, **self._options
            )
            self._made = index, made
        return self._made[1].get_search_results(
            query_vector=vector,
            top_k=top_k,
            effective_search_ratio=effective_search_ratio,
            filters=filters,
        )
