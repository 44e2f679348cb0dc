"""Measures how good the stored vectors are: the one way for asset and command line."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from embed_pipeline.domain.embedding import inputs_of, whole_vectors
from embed_pipeline.domain.errors import EmbeddingError
from embed_pipeline.domain.quality import Quality
from embed_pipeline.domain.vector import numbers_of
from embed_pipeline.operations import wiring
from embed_pipeline.operations.measuring import measure, smallest_cosine
from embed_pipeline.store.quality import last_quality, probe_texts, sample_edges, save_quality

if TYPE_CHECKING:
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.queue import Queue


async def grade(queue: Queue, settings: Settings) -> Quality:
    """Sample edges, embed a few texts again, and keep what came of it.

    The texts count against the limit and the budget; where those grant nothing, or the provider
    does not answer, there is no word about drift.
    """
    left_out = settings.quality_left_out
    sample = await sample_edges(queue, settings.model, left_out=left_out)
    quality = measure(settings.model, sample)
    quality = replace(quality, drift=await _drift(queue, settings))
    await save_quality(queue, quality)
    return await last_quality(queue, settings.model) or quality


async def _drift(queue: Queue, settings: Settings) -> float | None:
    probes = await probe_texts(queue, settings.model)
    if not probes:
        return None
    embedder = wiring.open_embedder(settings)
    try:
        prepared = [embedder.prepare(text) for text, _ in probes]
        tokens = sum(text.tokens for text in prepared)
        limiter = wiring.open_limiter(queue, settings)
        if not (await limiter.acquire(tokens=tokens)).is_granted:
            return None
        embedded = await embedder.embed(inputs_of(prepared))
        await limiter.correct(counted=tokens, charged=embedded.tokens)
        price = settings.price.nano_usd(embedded.tokens)
        charged = {"requests": 1, "tokens": embedded.tokens, "cost_nano_usd": price}
        await queue.admin.count(charged)
    except EmbeddingError:
        return None
    finally:
        await embedder.close()
    if len(embedded.vectors) != len(inputs_of(prepared)):
        return None
    anew = [numbers_of(vector) for vector in whole_vectors(embedded.vectors, prepared)]
    if [len(vector) for vector in anew] != [len(vector) for _, vector in probes]:
        return None
    return smallest_cosine([vector for _, vector in probes], anew)
