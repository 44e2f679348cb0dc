"""Leaves the edges that vectors are judged by out of the texts of their ends.

Where ``{relations}`` is in the text, joined entities name each other, and their vectors are near
whatever the model is worth. For each edge the texts of both ends are embedded as they are and
without the other end. The difference is taken off the stored vector: what was damaged in the store
is still damaged then, which a vector that was made anew would hide. That takes up to four texts for
an edge: 1,600 of a reading, once a day, where they are short 160,000 tokens.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from embed_pipeline.domain.errors import EmbeddingError
from embed_pipeline.domain.quality import Edge, Sample
from embed_pipeline.domain.relations import READ_AS, without_neighbour
from embed_pipeline.domain.text import render_for
from embed_pipeline.domain.vector import numbers_of
from embed_pipeline.operations import wiring
from embed_pipeline.operations.measuring import moved
from embed_pipeline.operations.requests import send_counted
from embed_pipeline.operations.splitting import text_splitter
from embed_pipeline.worker.batching import pack

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from embed_pipeline.settings import Settings
    from embed_pipeline.store.queue import Queue


async def without_edges(queue: Queue, settings: Settings, sample: Sample) -> Sample | None:
    """The sample with separate vectors for the ends of each edge; None if no text names them.

    Holds the first edges whose texts limit and budget granted and the provider embedded.
    """
    if not queue.config.shape.has_relations:
        return None
    render = render_for(queue.config.shape)

    def apart(end: int, other: int) -> str:
        said = dict(sample.properties[end])
        said[READ_AS] = without_neighbour(said.get(READ_AS) or (), sample.names[other])
        return render(said)

    def ends(edge: Edge) -> Iterator[tuple[int, str]]:
        yield edge.start, apart(edge.start, edge.end)
        yield edge.end, apart(edge.end, edge.start)

    probed = [list(ends(edge)) for edge in sample.edges]
    changed = [
        text
        for pair in probed
        for end, alone in pair
        if alone != sample.texts[end]
        for text in (sample.texts[end], alone)
    ]
    known = await _embedded(queue, settings, list(dict.fromkeys(changed)))
    vectors: list[list[float]] = []
    texts: list[str] = []
    edges: list[Edge] = []
    for edge, pair in zip(sample.edges, probed, strict=True):
        of_ends: list[list[float]] = []
        for end, alone in pair:
            away, towards = known.get(sample.texts[end]), known.get(alone)
            if alone == sample.texts[end]:
                of_ends.append(list(sample.vectors[end]))
            elif away and towards and len(away) == len(sample.vectors[end]):
                of_ends.append(moved(sample.vectors[end], away=away, towards=towards))
        if len(of_ends) < len(pair):
            break
        edges.append(replace(edge, start=len(vectors), end=len(vectors) + 1))
        vectors += of_ends
        texts += [alone for _, alone in pair]
    # Pairs without an edge are made of the same vectors, or a line less would tell them apart.
    placed_starts = {sample.edges[place].start: edge.start for place, edge in enumerate(edges)}
    placed_ends = {sample.edges[place].end: edge.end for place, edge in enumerate(edges)}
    others = [
        Edge(placed_starts[pair.start], placed_ends[pair.end])
        for pair in sample.non_edges
        if pair.start in placed_starts and pair.end in placed_ends
    ]
    return replace(sample, vectors=vectors, texts=texts, edges=edges, non_edges=others)


async def _embedded(
    queue: Queue, settings: Settings, texts: list[str]
) -> Mapping[str, list[float]]:
    """Embed, in order, as many as limit, budget and provider allow now."""
    embedder = wiring.open_embedder(settings)
    limiter = wiring.open_limiter(queue, settings)
    prepare = text_splitter(settings, embedder)
    found: dict[str, list[float]] = {}
    try:
        prepared = [prepare(text) for text in texts if text.strip()]
        for request in pack(prepared, embedder.limits, lambda text: text):
            tokens = sum(text.tokens for text in request)
            if not (await limiter.acquire(tokens=tokens)).is_granted:
                break
            vectors = await send_counted(queue, settings, embedder, limiter, request)
            found |= {
                text.text: numbers_of(vector) for text, vector in zip(request, vectors, strict=True)
            }
    except EmbeddingError:
        pass
    finally:
        await embedder.close()
    return found
