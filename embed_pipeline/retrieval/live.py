"""The live model and its index, read before each search."""

from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from embed_pipeline.domain.embedding import inputs_of
from embed_pipeline.domain.errors import SchemaError
from embed_pipeline.domain.ports import Embedder
from embed_pipeline.domain.vector import numbers_of
from embed_pipeline.operations import wiring
from embed_pipeline.operations.blocking import finish
from embed_pipeline.operations.following import Following, read_live
from embed_pipeline.operations.splitting import text_splitter
from embed_pipeline.settings import Settings
from embed_pipeline.settings.embeddings import chosen_embedding
from embed_pipeline.store.sync_driver import as_async
from embed_pipeline.worker.batching import whole_or_raise

if TYPE_CHECKING:
    from neo4j import Driver

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class LiveIndex:
    """The model and the index of one epoch."""

    epoch: int
    """0 where there has been no cut-over."""
    index: str
    vector: str
    """The property of the entities."""
    label: str
    model: str
    dimensions: int


class LiveModel:
    """Embeds questions with the live model; the provider is opened again after a flip.

    Settings come from the variables, as everywhere; the alias in the database decides what is live.
    Questions do not count against the shared rate limit. May be used from several threads, also
    where an event loop is running.
    """

    def __init__(self, driver: "Driver", settings: Settings | None = None) -> None:
        self._settings = settings or chosen_embedding(None)
        self._driver = as_async(driver)
        self._queue = wiring.queue_on(self._driver, self._settings)
        # An embedder belongs to one event loop at a time.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="live-model")
        self._following: Following | None = None
        self._embedder: Embedder | None = None
        self._index = ""
        """Of a deployment without an alias; whatever its name is."""

    def look(self) -> LiveIndex:
        """Read what is live now."""
        return _index_of(self._run(self._follow()), self._index)

    def ask(self, question: str) -> tuple[LiveIndex, list[float]]:
        """Embed a question with the live model; returns it with the index that it fits.

        Raises:
            EmbeddingError: the provider did not embed it.
        """
        index, [vector] = self._run(self._embed([question], are_questions=True))
        return index, vector

    def embed(self, texts: Sequence[str]) -> tuple[LiveIndex, list[list[float]]]:
        """Embed texts that are not questions.

        Raises:
            EmbeddingError: the provider did not embed them.
        """
        return self._run(self._embed(texts, are_questions=False))

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._worker.submit(finish, work).result()

    async def _follow(self) -> Following:
        following = await read_live(self._queue.database, self._settings)
        if self._following is None or self._following.settings != following.settings:
            self._embedder = None
        self._following = following
        if following.alias is None and not self._index:
            state = await wiring.inspect_schema(self._driver, self._settings)
            if state.vector_index is None:
                raise SchemaError("there is no vector index; run 'embed-pipeline init'")
            self._index = state.vector_index.name
        return following

    async def _embed(
        self, texts: Sequence[str], *, are_questions: bool
    ) -> tuple[LiveIndex, list[list[float]]]:
        following = await self._follow()
        settings = following.settings
        embedder = self._embedder or wiring.open_embedder(settings, for_questions=are_questions)
        if settings.provider.runs_here:
            # Loading a model takes seconds; a client of HTTP ends with the loop of this call.
            self._embedder = embedder
        try:
            if are_questions:
                prepared = [embedder.prepare(settings.question_prefix + text) for text in texts]
            else:
                prepared = [*map(text_splitter(settings, embedder), texts)]
            vectors = (await embedder.embed(inputs_of(prepared))).vectors
        finally:
            if not settings.provider.runs_here:
                await embedder.close()
        whole = whole_or_raise(vectors, prepared, dimensions=embedder.dimensions)
        return _index_of(following, self._index), [numbers_of(vector) for vector in whole]


def _index_of(following: Following, index: str) -> LiveIndex:
    settings, alias = following.settings, following.alias
    return LiveIndex(
        epoch=alias.epoch if alias else 0,
        index=alias.live.index if alias else index,
        vector=settings.entity_vector,
        label=settings.entity_label,
        model=settings.model,
        dimensions=settings.dimensions,
    )
