"""Samples edges and vectors, and keeps what they said."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from embed_pipeline.domain.quality import PAIRS, PROBES, REMEMBERED, Auc, Edge, Quality, Sample
from embed_pipeline.domain.text import LONGEST_TEXT, render_for
from embed_pipeline.store.cypher import quality as cypher
from embed_pipeline.store.database import Transaction, fetch, fetch_one, moment
from embed_pipeline.store.load import ANY_LENGTH
from embed_pipeline.store.naming import for_shape
from embed_pipeline.store.queue import Queue
from embed_pipeline.store.transactions import new_token

SPARE: Final = 20
"""So many times the wanted edges are looked at: some lead to what is not embedded."""
TRIES: Final = 4
"""Pairs drawn for each pair without an edge; some are joined after all."""

Row = Mapping[str, Any]


async def sample_edges(queue: Queue, model: str, *, left_out: Sequence[str] = ()) -> Sample:
    """Edges between embedded entities, pairs without one, and their vectors; changes nothing."""
    shape = queue.config.shape

    async def work(tx: Transaction) -> tuple[list[Row], list[tuple[str, str]], list[Row]]:
        total = (await fetch_one(tx, cypher.COUNT_RELATIONSHIPS))["edges"]
        edges = await fetch(
            tx,
            for_shape(cypher.SAMPLE_EDGES, shape),
            share=min(1.0, SPARE * PAIRS / max(1, total)),
            pairs=PAIRS,
            model=model,
            left_out=list(left_out),
        )
        drawn = _drawn(edges)
        joined = await fetch(tx, cypher.JOINED, pairs=[list(pair) for pair in drawn])
        apart = set(drawn) - {(pair[0], pair[1]) for pair in (row["pair"] for row in joined)}
        non_edges = [pair for pair in drawn if pair in apart][: len(edges)]
        ids = sorted({row[side] for row in edges for side in ("start", "end")})
        return [*edges], non_edges, await _vectors(tx, queue, ids)

    edges, non_edges, rows = await queue.database.read(work)
    place = {row["id"]: number for number, row in enumerate(rows)}
    render = render_for(shape)
    return Sample(
        [row["vector"] for row in rows],
        [str(row["hash"]) for row in rows],
        [render(row["text"]) for row in rows],
        [
            Edge(place[row["start"]], place[row["end"]], row["type"])
            for row in edges
            if row["start"] in place and row["end"] in place
        ],
        [Edge(place[one], place[two]) for one, two in non_edges if one in place and two in place],
    )


def _drawn(edges: Sequence[Row]) -> list[tuple[str, str]]:
    """Pairs of nodes from different edges: their degrees are those of the edges' own nodes."""
    starts, ends = [row["start"] for row in edges], [row["end"] for row in edges]
    drawn: list[tuple[str, str]] = []
    for _ in range(TRIES):
        random.shuffle(ends)
        drawn += zip(starts, ends, strict=True)
    return [pair for pair in dict.fromkeys(drawn) if pair[0] != pair[1]]


async def _vectors(tx: Transaction, queue: Queue, ids: list[str]) -> list[Row]:
    statement = for_shape(cypher.READ_VECTORS, queue.config.shape)
    rows = await fetch(tx, statement, ids=ids, longest=ANY_LENGTH, most=LONGEST_TEXT)
    lengths = [len(row["vector"]) for row in rows]
    usual = max(set(lengths), key=lengths.count, default=0)
    return [row.data() for row in rows if len(row["vector"]) == usual]


async def probe_texts(queue: Queue, model: str) -> list[tuple[str, list[float]]]:
    """Texts to embed again, with their stored vectors; only those whose text is unchanged."""
    shape = queue.config.shape

    async def work(tx: Transaction) -> list[Row]:
        found = await fetch(tx, for_shape(cypher.PROBES, shape), model=model, most=PROBES)
        return await _vectors(tx, queue, [row["id"] for row in found])

    render = render_for(shape)
    rows = await queue.database.read(work)
    fitting = [row for row in rows if queue.config.hash_of(row["text"]) == row["hash"]]
    return [(render(row["text"]), row["vector"]) for row in fitting]


async def save_quality(queue: Queue, quality: Quality) -> None:
    """Keep a reading for checks and history."""
    token = new_token()
    kept = asdict(replace(quality, earlier=(), at=None))
    await queue.database.write(
        lambda tx: fetch(
            tx,
            cypher.SAVE_QUALITY,
            queue=queue.config.queue,
            model=quality.model,
            quality=json.dumps(kept),
            auc=quality.auc.value if quality.auc else None,
            most=REMEMBERED,
            token=token,
            now=queue.database.now_ms,
        )
    )


async def last_quality(queue: Queue, model: str) -> Quality | None:
    """The last reading, with the values of those before it."""
    records = await queue.database.read(
        lambda tx: fetch(tx, cypher.READ_QUALITY, queue=queue.config.queue, model=model)
    )
    if not records:
        return None
    [found] = records
    kept = json.loads(found["quality"])
    kept["auc"] = Auc(**kept["auc"]) if kept["auc"] else None
    kept["types"] = {name: Auc(**value) for name, value in kept["types"].items()}
    kept["earlier"] = tuple(found["earlier"])
    return Quality(**{**kept, "at": moment(found["at"])})
