"""From a question to the entities nearest in meaning: the one way for every door."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Final

from embed_pipeline import wiring
from embed_pipeline.domain.errors import EmbeddingError
from embed_pipeline.domain.ports import Embedder, RateLimiter
from embed_pipeline.domain.rate_window import Grant
from embed_pipeline.domain.results import Hit
from embed_pipeline.domain.sentences import nearest_sentence, sentence_by_words, sentences_of
from embed_pipeline.domain.vector import Vector
from embed_pipeline.settings import Settings
from embed_pipeline.store.queue import Queue
from embed_pipeline.store.search import search_entities
from embed_pipeline.worker.batching import judge_answer
from embed_pipeline.worker.processing import LOOK_AGAIN

OnWait = Callable[[Grant], None]
"""Is told each time the rate limit makes the question wait."""
MOST_HITS: Final = 1_000


async def search_for(
    queue: Queue,
    settings: Settings,
    text: str,
    *,
    limit: int,
    on_wait: OnWait = lambda _: None,
) -> list[Hit]:
    """Embed ``text`` with the model of the queue and ask the vector index, the nearest first.

    Raises:
        EmbeddingError: the provider did not embed the question.
        SchemaError: there is no vector index.
    """
    limiter = wiring.open_limiter(queue, settings)
    embedder = wiring.open_embedder(settings)
    try:
        vector = await _embedded(embedder, limiter, text, on_wait=on_wait)
        hits = await search_entities(
            queue.database, queue.config, vector=vector, model=settings.model, limit=limit
        )
        if settings.provider.runs_here:
            return [await _with_nearest(embedder, vector, hit) for hit in hits]
    finally:
        await embedder.close()
    return [replace(hit, sentence=sentence_by_words(text, sentences_of(hit.text))) for hit in hits]


async def _with_nearest(embedder: Embedder, question: Vector, hit: Hit) -> Hit:
    sentences = sentences_of(hit.text)
    prepared = [embedder.prepare(sentence) for sentence in sentences]
    vectors = (await embedder.embed(prepared)).vectors if prepared else []
    return replace(hit, sentence=nearest_sentence(question, sentences, vectors))


async def _embedded(
    embedder: Embedder, limiter: RateLimiter, text: str, *, on_wait: OnWait
) -> Vector:
    """Embed one text; it counts against the limit that all workers share."""
    prepared = embedder.prepare(text)
    while not (grant := await limiter.acquire(tokens=prepared.tokens)).is_granted:
        on_wait(grant)
        await asyncio.sleep(min(grant.wait, LOOK_AGAIN) / timedelta(seconds=1))
    vectors = (await embedder.embed([prepared])).vectors
    [answer] = judge_answer(vectors, expected=1, dimensions=embedder.dimensions)
    if isinstance(answer, EmbeddingError):
        raise answer
    return answer
