"""Samples edges and vectors, and keeps what they said."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.keys import uid_of
from embed_pipeline.domain.quality import PAIRS, PROBES, REMEMBERED, Auc, Edge, Quality, Sample
from embed_pipeline.domain.text import LONGEST_TEXT, render_for, share_of
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

    async def work(tx: Transaction) -> tuple[_Pairs, list[Row]]:
        pairs = await _pairs(tx, queue, model, left_out)
        return pairs, await _vectors(tx, queue, pairs.ids)

    pairs, rows = await queue.database.read(work)
    return _sample(queue, pairs, rows)


async def sample_both(
    live: Queue, other: Queue, model: str, *, left_out: Sequence[str] = ()
) -> tuple[Sample, Sample]:
    """The same with the vectors of two sides; only of entities that have both."""

    async def work(tx: Transaction) -> tuple[_Pairs, list[dict[str, Row]]]:
        pairs = await _pairs(tx, live, model, left_out)
        sides = [await _vectors(tx, side, pairs.ids) for side in (live, other)]
        return pairs, [{row["id"]: row for row in rows} for rows in sides]

    pairs, sides = await live.database.read(work)
    ids = [id_ for id_ in pairs.ids if all(id_ in rows for rows in sides)]
    return _sample(live, pairs, [sides[0][id_] for id_ in ids]), _sample(
        other, pairs, [sides[1][id_] for id_ in ids]
    )


async def sample_texts(
    queue: Queue, shapes: Sequence[EntityShape], *, left_out: Sequence[str] = ()
) -> tuple[list[str], list[list[str]], list[Edge], list[Edge]]:
    """The same for all current entities, embedded or not: keys, texts per shape, edges, pairs.

    Entities without a text in one of the shapes are left out.
    """

    async def work(tx: Transaction) -> tuple[_Pairs, list[dict[str, Row]]]:
        pairs = await _pairs(tx, queue, None, left_out)
        return pairs, [await _texts(tx, shape, pairs.ids) for shape in shapes]

    pairs, read = await queue.database.read(work)
    rendered = [
        {id_: render_for(shape)(row["text"]) for id_, row in rows.items()}
        for shape, rows in zip(shapes, read, strict=True)
    ]
    ids = [id_ for id_ in pairs.ids if all(texts.get(id_, "").strip() for texts in rendered)]
    edges, non_edges = pairs.placed(ids)
    keys = [str(uid_of(read[0][id_]["key"])) for id_ in ids]
    return keys, [[texts[id_] for id_ in ids] for texts in rendered], edges, non_edges


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Edges and pairs without an edge, by the ids of their nodes."""

    edges: Sequence[Row]
    non_edges: Sequence[tuple[str, str]]

    @property
    def ids(self) -> list[str]:
        return sorted({row[side] for row in self.edges for side in ("start", "end")})

    def placed(self, ids: Sequence[str]) -> tuple[list[Edge], list[Edge]]:
        """The pairs whose nodes are among ``ids``, by index."""
        place = {id_: number for number, id_ in enumerate(ids)}
        edges = [
            Edge(place[row["start"]], place[row["end"]], row["type"])
            for row in self.edges
            if row["start"] in place and row["end"] in place
        ]
        apart = [pair for pair in self.non_edges if pair[0] in place and pair[1] in place]
        return edges, [Edge(place[one], place[two]) for one, two in apart]


def _sample(queue: Queue, pairs: _Pairs, rows: Sequence[Row]) -> Sample:
    edges, non_edges = pairs.placed([row["id"] for row in rows])
    render = render_for(queue.config.shape)
    return Sample(
        [row["vector"] for row in rows],
        [str(row["hash"]) for row in rows],
        [render(row["text"]) for row in rows],
        edges,
        non_edges,
        [row["text"] for row in rows],
        [row["name"] for row in rows],
    )


async def _pairs(
    tx: Transaction, queue: Queue, model: str | None, left_out: Sequence[str]
) -> _Pairs:
    total = (await fetch_one(tx, cypher.COUNT_RELATIONSHIPS))["edges"]
    edges = await fetch(
        tx,
        for_shape(cypher.SAMPLE_EDGES, queue.config.shape),
        share=min(1.0, SPARE * PAIRS / max(1, total)),
        pairs=PAIRS,
        model=model,
        left_out=list(left_out),
    )
    drawn = _drawn(edges)
    joined = await fetch(tx, cypher.JOINED, pairs=[list(pair) for pair in drawn])
    apart = set(drawn) - {(pair[0], pair[1]) for pair in (row["pair"] for row in joined)}
    return _Pairs(edges, [pair for pair in drawn if pair in apart][: len(edges)])


def _drawn(edges: Sequence[Row]) -> list[tuple[str, str]]:
    """Pairs of nodes from different edges, so that degrees are distributed as among edges."""
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


async def _texts(tx: Transaction, shape: EntityShape, ids: list[str]) -> dict[str, Row]:
    most = min(LONGEST_TEXT, share_of(len(ids)))
    statement = for_shape(cypher.READ_TEXTS, shape)
    rows = await fetch(tx, statement, ids=ids, longest=ANY_LENGTH, most=most)
    return {row["id"]: row for row in rows}


async def probe_texts(queue: Queue, model: str) -> list[tuple[str, list[float]]]:
    """Texts to embed again, with their stored vectors; only texts that are unchanged."""
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
