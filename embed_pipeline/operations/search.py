"""From a question to the entities nearest in meaning: the one way for every door."""

from dataclasses import replace
from typing import Final

from embed_pipeline.domain.errors import CutoverError
from embed_pipeline.domain.ports import Embedder, RateLimiter
from embed_pipeline.domain.results import Hit
from embed_pipeline.domain.text import nearest_sentence, sentence_by_words, sentences_of
from embed_pipeline.domain.vector import Vector
from embed_pipeline.operations import wiring
from embed_pipeline.operations.following import Following, read_live
from embed_pipeline.operations.requests import OnWait, check_grant, wait_for_grant
from embed_pipeline.settings import Settings
from embed_pipeline.store.queue import Queue
from embed_pipeline.store.search import search_entities
from embed_pipeline.worker.batching import whole_or_raise

MOST_HITS: Final = 1_000
FLIPS: Final = 5
"""So often a question is embedded again for a flip in between."""


async def search_for(
    queue: Queue,
    settings: Settings,
    text: str,
    *,
    limit: int,
    on_wait: OnWait = lambda _: None,
    is_counted: bool = True,
) -> list[Hit]:
    """Embed ``text`` with the live model and ask its vector index, the nearest first.

    Not ``is_counted``, it is refused where the rate limit is used up, and leaves no trace in it.

    The index is asked only while the model of the question is the live one: if the alias is flipped
    in between, the question is embedded again.

    Raises:
        EmbeddingError: the provider did not embed the question, or no more may be spent for now.
        SchemaError: there is no vector index.
        CutoverError: the alias was flipped again and again.
    """
    for _ in range(FLIPS):
        live = await read_live(queue.database, settings)
        # Its text may be another one also where its queue is the same.
        side = wiring.queue_on(queue.database.driver, live.settings) if live.alias else queue
        hits = await search_side(
            side, live, text, limit=limit, on_wait=on_wait, is_counted=is_counted
        )
        if hits is not None:
            return hits
    raise CutoverError("the live model was changed again and again; ask once more")


async def search_side(
    queue: Queue,
    side: Following,
    text: str,
    *,
    limit: int,
    on_wait: OnWait = lambda _: None,
    is_counted: bool = True,
) -> list[Hit] | None:
    """The same on one side; ``None`` if it is no longer what it was when it was read."""
    settings = side.settings
    limiter = wiring.open_limiter(queue, settings)
    embedder = wiring.open_embedder(settings, for_questions=True)
    try:
        asked = settings.question_prefix + text
        vector = await _embedded(embedder, limiter, asked, on_wait=on_wait, is_counted=is_counted)
        hits = await search_entities(
            queue.database,
            queue.config,
            vector=vector,
            model=settings.model,
            limit=limit,
            alias=side.alias.name if side.alias else "",
            epoch=side.alias.epoch if side.alias else 0,
        )
        if hits is None:
            return None
        if settings.provider.runs_here:
            return [await _with_nearest(embedder, vector, hit) for hit in hits]
    finally:
        await embedder.close()
    return [
        replace(hit, sentence=sentence_by_words(text, sentences_of(hit.passage or hit.text)))
        for hit in hits
    ]


async def _with_nearest(embedder: Embedder, question: Vector, hit: Hit) -> Hit:
    sentences = sentences_of(hit.passage or hit.text)
    prepared = [embedder.prepare(sentence) for sentence in sentences]
    vectors = (await embedder.embed(prepared)).vectors if prepared else []
    return replace(hit, sentence=nearest_sentence(question, sentences, vectors))


async def _embedded(
    embedder: Embedder, limiter: RateLimiter, text: str, *, on_wait: OnWait, is_counted: bool
) -> Vector:
    """Embed one text within the shared limit; a read-only caller only checks it."""
    prepared = embedder.prepare(text)
    if is_counted:
        await wait_for_grant(limiter, tokens=prepared.tokens, on_wait=on_wait)
    else:
        await check_grant(limiter)
    vectors = (await embedder.embed(prepared.inputs)).vectors
    [answer] = whole_or_raise(vectors, [prepared], dimensions=embedder.dimensions)
    return answer
