"""Pieces of texts as nodes: staged in parts if they are many, and switched with the completion."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

from embed_pipeline.domain.pieces import Passage, PieceChange, StoredPiece, compare_pieces
from embed_pipeline.domain.results import Completion
from embed_pipeline.domain.vector import BYTES_PER_NUMBER, Vector, numbers_of, print_of, vector_of
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import pieces as cypher
from embed_pipeline.store.cypher.worker import COUNT_HELD, LOCK_JOBS
from embed_pipeline.store.database import Database, Transaction, fetch, fetch_one
from embed_pipeline.store.load import BYTES_PER_STATEMENT, keys_of
from embed_pipeline.store.naming import for_shape
from embed_pipeline.store.records import lease_rows
from embed_pipeline.store.transactions import new_token

logger = logging.getLogger(__name__)

PIECES_PER_WRITE: Final = 512
"""New pieces of one entity that are written by the completion itself, or by one part of it."""
SLOWER: Final = 6
"""So many times longer the statements of a switch of more pieces may take."""
LONG_COMMIT: Final = timedelta(minutes=5)
"""So long the switch of one entity's pieces is waited for, nearly all of it the vector index.

Measured with 6,400 pieces of 1,536 numbers in place of as many others, at a load of 10 on 2 cores:
4 s for the statements, 40 s for the commit. Whoever gives up before asks again, waits for the locks
of his own commit, and ends the drain over a completion that was made.
"""


async def find_pieces(
    database: Database, hashes: Sequence[str], model: str, dimensions: int
) -> Mapping[str, Vector]:
    """Look up vectors of pieces that were embedded before, a few at a time."""
    wanted = sorted(set(hashes))
    size = max(1, BYTES_PER_STATEMENT // (BYTES_PER_NUMBER * dimensions))

    async def look(tx: Transaction) -> dict[str, Vector]:
        vectors: dict[str, Vector] = {}
        for start in range(0, len(wanted), size):
            part = wanted[start : start + size]
            found = await fetch(
                tx, cypher.FIND_PIECES, hashes=part, model=model, dimensions=dimensions
            )
            for record in found:
                vector = vector_of(record["vector"])
                # Somebody else's vector may stand beside our print.
                if print_of(vector) == record["print"]:
                    vectors[record["hash"]] = vector
        return vectors

    return await database.read(look)


async def known_pieces(
    database: Database, hashes: Sequence[str], model: str, dimensions: int
) -> set[str]:
    """Which pieces were embedded before, whatever text they stand in."""
    if not hashes:
        return set()
    found = await database.read(
        lambda tx: fetch_one(
            tx,
            cypher.KNOWN_PIECES,
            hashes=sorted(set(hashes)),
            model=model,
            dimensions=dimensions,
        )
    )
    return set(found["hashes"])


async def stage_pieces(database: Database, config: QueueConfig, row: Completion) -> None:
    """Write the new pieces of an entity in parts, if they are too many for one transaction.

    Each part holds the job: one that another worker holds by now gets nothing more. What is staged
    is not found by any search; this completion takes it, or that of the next worker.
    """
    if len(row.passages) <= PIECES_PER_WRITE:
        return
    stored = await database.read_latest(lambda tx: _stored(tx, config, [row]))
    new = list(_change(row, stored).new)
    if len(new) <= PIECES_PER_WRITE:
        return
    for start in range(0, len(new), PIECES_PER_WRITE):
        part = new[start : start + PIECES_PER_WRITE]
        if not await database.write(lambda tx, part=part: _stage(tx, row, part)):
            return


def for_switch(database: Database, rows: Sequence[Completion]) -> Database:
    """The database with as much patience as the switch of so many pieces takes."""
    if max(len(row.passages) for row in rows) <= PIECES_PER_WRITE:
        return database
    return replace(
        database,
        timeout=SLOWER * database.timeout,
        patience=database.patience + LONG_COMMIT,
        commit=LONG_COMMIT,
    )


async def _stage(tx: Transaction, row: Completion, places: Sequence[int]) -> bool:
    await fetch(tx, LOCK_JOBS, ids=[row.lease.job_id], token=new_token())
    held = await fetch_one(tx, COUNT_HELD, leases=lease_rows([row.lease]))
    if held["jobs"]:
        for rows in _in_statements((row, place) for place in places):
            await fetch(tx, cypher.STAGE_PIECES, rows=rows)
    return bool(held["jobs"])


class _Stored:
    """The pieces that the graph has for one completion."""

    def __init__(self) -> None:
        self.placed: dict[str, StoredPiece] = {}
        self.staged: list[StoredPiece] = []
        self.outdated: set[str] = set()
        """Those on versions that are history."""
        self.links: Counter[str] = Counter()
        """To how many current nodes each leads."""
        self.nodes = 0
        """How many current nodes share the key; one, if all is well."""

    @property
    def all(self) -> list[StoredPiece]:
        return [*self.placed.values(), *self.staged]


async def _stored(
    tx: Transaction, config: QueueConfig, rows: Sequence[Completion]
) -> dict[str, _Stored]:
    found = {row.lease.job_id: _Stored() for row in rows}
    uid_of_key = keys_of(row.lease.entity_uid for row in rows)
    job_of_uid = {row.lease.entity_uid: row.lease.job_id for row in rows}
    statement = for_shape(cypher.READ_PIECES, config.shape)
    keys = list(uid_of_key)
    for record in await fetch(tx, statement, keys=keys, outdated=not config.keeps_old):
        own = found[job_of_uid[uid_of_key[record["key"]]]]
        own.nodes += record["nodes"]
        for *piece, is_current in record["pieces"]:
            stored = StoredPiece(*piece)
            id_ = stored.id
            own.placed[id_] = stored
            if is_current:
                own.links[id_] += 1
            else:
                own.outdated.add(id_)
    for record in await fetch(tx, cypher.READ_STAGED, jobs=list(found)):
        own = found[record["job"]]
        own.staged += [StoredPiece(*piece, is_staged=True) for piece in record["pieces"]]
    return found


def _change(row: Completion, stored: Mapping[str, _Stored]) -> PieceChange:
    return compare_pieces(row.passages, stored[row.lease.job_id].all, row.lease.model)


async def write_pieces(tx: Transaction, config: QueueConfig, rows: Sequence[Completion]) -> None:
    """Put the pieces of texts in place of the ones before; their entities are locked.

    A piece whose text is still there stays the node that it is, with its vector and with whatever
    others have attached to it, unless another vector was asked for.
    """
    if config.shape.pieces is None or not rows:
        return
    stored = await _stored(tx, config, rows)
    changes = [_change(row, stored) for row in rows]
    new = [(row, place) for row, x in zip(rows, changes, strict=True) for place in x.new]
    created: dict[str, str] = {}
    for written in _in_statements(new):
        records = await fetch(tx, cypher.CREATE_PIECES, rows=written)
        created |= {record["uid"]: record["id"] for record in records}
    adopted: list[str] = []
    removed: list[str] = []
    moved: list[str] = []
    placed: list[dict[str, Any]] = []
    links: list[dict[str, Any]] = []
    missing: list[dict[str, Any]] = []
    pairs: list[list[str]] = []
    for row, change in zip(rows, changes, strict=True):
        own = stored[row.lease.job_id]
        staged = {piece.id for piece in own.staged}
        ids = [id_ or created[_uid(row, place)] for place, id_ in enumerate(change.taken)]
        adopted += [id_ for id_ in ids if id_ in staged]
        removed += [id_ for id_ in change.unused if id_ not in staged]
        moved += [id_ for id_ in ids if id_ in own.outdated]
        placed += [
            {"id": id_, "index": index, "start": passage.start, "end": passage.end}
            for index, (id_, passage) in enumerate(zip(ids, row.passages, strict=True))
        ]
        keys = list(keys_of([row.lease.entity_uid]))
        links.append({"keys": keys, "ids": [id_ for id_ in ids if not own.links[id_]]})
        if some := [id_ for id_ in ids if 0 < own.links[id_] < own.nodes]:
            missing.append({"keys": keys, "ids": some})
        pairs += [[one, other] for one, other in pairwise(ids)]
    shape = config.shape
    await fetch(tx, cypher.ADOPT_STAGED, ids=adopted)
    await fetch(tx, cypher.REMOVE_PIECES, ids=removed)
    await fetch(tx, cypher.REMOVE_STAGED, jobs=list(stored))
    await fetch(tx, cypher.PLACE_PIECES, rows=placed)
    if moved:
        await fetch(tx, for_shape(cypher.UNLINK_OUTDATED, shape), ids=moved)
    await fetch(tx, for_shape(cypher.LINK_PIECES, shape), rows=links)
    if missing:
        await fetch(tx, for_shape(cypher.LINK_MISSING, shape), rows=missing)
    await fetch(tx, cypher.CHAIN_PIECES, pairs=pairs)


async def sweep_pieces(database: Database, config: QueueConfig) -> int:
    """Remove pieces without an entity, and stale staged ones; returns how many."""
    statements = (for_shape(cypher.SWEEP_PIECES, config.shape), cypher.SWEEP_STAGED)
    if config.shape.pieces is None:
        statements = (cypher.REMOVE_ALL,)
    removed = 0
    for statement in statements:
        [record] = await database.run_in_batches(statement)
        removed += record["pieces"]
    if removed:
        logger.info("queue=%s removed %d pieces of no entity", config.queue, removed)
    return removed


def _uid(row: Completion, place: int) -> str:
    """Unique for ever, because the fence is."""
    return f"{row.lease.job_id}/{row.lease.fence}/{place}"


def _in_statements(new: Iterable[tuple[Completion, int]]) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    size = 0
    for row, place in new:
        passage = row.passages[place]
        size += len(passage.vector) + len(passage.text)
        if rows and size > BYTES_PER_STATEMENT:
            yield rows
            rows, size = [], len(passage.vector) + len(passage.text)
        rows.append(_written(row, passage, place))
    if rows:
        yield rows


def _written(row: Completion, passage: Passage, place: int) -> dict[str, Any]:
    return {
        "uid": _uid(row, place),
        "job": row.lease.job_id,
        "vector": numbers_of(passage.vector),
        "properties": {
            "text": passage.text,
            "text_hash": passage.text_hash,
            "model": row.lease.model,
            "print": print_of(passage.vector),
        },
    }
