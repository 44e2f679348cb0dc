"""Measures how good the stored vectors are: the one way for asset and command line."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from embed_pipeline.domain.errors import EmbeddingError
from embed_pipeline.domain.quality import FEWEST, Quality, Sample
from embed_pipeline.domain.vector import numbers_of
from embed_pipeline.operations import wiring
from embed_pipeline.operations.measuring import measure, smallest_cosine
from embed_pipeline.operations.probing_edges import without_edges
from embed_pipeline.operations.requests import send_counted
from embed_pipeline.operations.splitting import text_splitter
from embed_pipeline.store.quality import (
    last_quality,
    probe_texts,
    sample_both,
    sample_edges,
    save_quality,
)

if TYPE_CHECKING:
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.queue import Queue


async def grade(queue: Queue, settings: Settings) -> Quality:
    """Sample edges, embed a few texts again, and store the result.

    The texts count against the limit and the budget; where those grant nothing, or the provider
    does not answer, there is no word about drift.
    """
    left_out = settings.quality_left_out
    sample = await sample_edges(queue, settings.model, left_out=left_out)
    quality = _judged(settings, sample, await without_edges(queue, settings, sample))
    quality = replace(quality, drift=await _drift(queue, settings))
    await save_quality(queue, quality)
    return await last_quality(queue, settings.model) or quality


async def grade_sides(
    live: Queue, candidate: Queue, settings: tuple[Settings, Settings]
) -> tuple[Quality, Quality]:
    """Compare the stored vectors of both sides on the same edges."""
    own, _ = settings
    samples = await sample_both(live, candidate, own.model, left_out=own.quality_left_out)
    sides = zip((live, candidate), settings, samples, strict=True)
    probed = [await without_edges(*side) for side in sides]
    # What could be probed on one side only is compared on none.
    most = min((len(one.edges) for one in probed if one), default=None)

    def cut(sample: Sample) -> Sample:
        return replace(sample, edges=sample.edges[:most])

    before, after = (
        _judged(own, cut(sample), cut(one) if one else None)
        for sample, one in zip(samples, probed, strict=True)
    )
    return before, after


def _judged(settings: Settings, sample: Sample, probed: Sample | None) -> Quality:
    quality = measure(settings.model, sample, probed)
    is_withheld = probed is not None and len(probed.edges) < FEWEST <= len(sample.edges)
    return replace(quality, is_withheld=is_withheld)


async def _drift(queue: Queue, settings: Settings) -> float | None:
    probes = await probe_texts(queue, settings.model)
    if not probes:
        return None
    embedder = wiring.open_embedder(settings)
    try:
        prepare = text_splitter(settings, embedder)
        prepared = [prepare(text) for text, _ in probes]
        tokens = sum(text.tokens for text in prepared)
        limiter = wiring.open_limiter(queue, settings)
        if not (await limiter.acquire(tokens=tokens)).is_granted:
            return None
        vectors = await send_counted(queue, settings, embedder, limiter, prepared)
    except EmbeddingError:
        return None
    finally:
        await embedder.close()
    anew = [numbers_of(vector) for vector in vectors]
    if [len(vector) for vector in anew] != [len(vector) for _, vector in probes]:
        return None
    return smallest_cosine([vector for _, vector in probes], anew)
