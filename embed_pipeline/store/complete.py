"""How a vector gets onto its entity, once, and only if it still fits."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from neo4j.exceptions import ClientError

from embed_pipeline.domain.errors import PermanentError
from embed_pipeline.domain.keys import values_of
from embed_pipeline.domain.lifecycle import Move
from embed_pipeline.domain.results import Completion, CompletionOutcome
from embed_pipeline.domain.vector import Vector, can_be_found, dimensions_of, numbers_of, print_of
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import entity as cypher
from embed_pipeline.store.cypher.worker import FINISH_JOBS, LOCK_JOBS
from embed_pipeline.store.database import Database, Transaction, fetch, fetch_one
from embed_pipeline.store.load import (
    BYTES_PER_STATEMENT,
    CurrentEntity,
    ending_reason,
    keys_of,
    read_hashes,
)
from embed_pipeline.store.moves import BY_QUEUE, Change, back_to_pending, ended
from embed_pipeline.store.naming import for_shape
from embed_pipeline.store.pieces import for_switch, stage_pieces, write_pieces
from embed_pipeline.store.records import Properties, is_held, settled_as
from embed_pipeline.store.transactions import change_jobs, count, lock_jobs, new_token, write_once

_COMPLETED, _FENCED = CompletionOutcome.COMPLETED, CompletionOutcome.FENCED
_ENDINGS: Final = frozenset(CompletionOutcome)
_PROCEDURE_FAILED: Final = "Neo.ClientError.Procedure.ProcedureCallFailed"


class _UnfitError(Exception):
    """A row must not be completed: roll back and judge every row separately."""


async def complete(
    database: Database, config: QueueConfig, rows: Sequence[Completion]
) -> list[CompletionOutcome]:
    """Store vectors and finish jobs in one transaction, or say per row why not.

    Nearly always all rows fit. So the first try writes the vectors, which locks the entities, looks
    whether all of them were right, and is rolled back if not; only then each row is judged under
    locks that cost writes of their own. Measured, the first try alone is nearly twice as fast.
    """
    for row in rows:
        check_vector(row.vector, dimensions=config.dimensions)
        for passage in row.passages:
            check_vector(passage.vector, dimensions=config.dimensions)
        await stage_pieces(database, config, row)
    database = for_switch(database, rows)
    # Where vectors of others are to stay, each row is judged before anything is written.
    if all(row.vector is not None for row in rows) and not config.keeps_foreign:
        try:
            return await _complete_all(database, config, rows)
        except _UnfitError:
            pass
    return await _complete_each(database, config, rows)


async def _complete_all(
    database: Database, config: QueueConfig, rows: Sequence[Completion]
) -> list[CompletionOutcome]:
    token = new_token()
    by_uid = sorted(rows, key=lambda row: row.lease.entity_uid)
    uids = [row.lease.entity_uid for row in by_uid]
    if len(set(uids)) < len(uids):
        raise _UnfitError

    async def work(tx: Transaction) -> list[CompletionOutcome]:
        try:
            await _write_vectors(tx, config, by_uid, now=database.now_ms)
        except ClientError as error:
            if error.code != _PROCEDURE_FAILED:
                raise
            # An entity was deleted while its lock was waited for: a SET passes over that, the
            # procedure does not.
            raise _UnfitError from error
        entities = await read_hashes(tx, config, uids)
        if any(_misfit(row, entities) for row in rows):
            raise _UnfitError
        await write_pieces(tx, config, by_uid)
        await _clear_outdated(tx, config, entities, uids, token=token)
        await fetch(tx, LOCK_JOBS, ids=sorted(row.lease.job_id for row in rows), token=token)
        done = await fetch_one(tx, FINISH_JOBS, rows=_finish_rows(rows), now=database.now_ms)
        if done["jobs"] < len(rows):
            raise _UnfitError
        return [_COMPLETED] * len(rows)

    return await database.write(work)


async def _complete_each(
    database: Database, config: QueueConfig, rows: Sequence[Completion]
) -> list[CompletionOutcome]:
    token = new_token()
    uids = sorted({row.lease.entity_uid for row in rows})

    async def work(tx: Transaction) -> list[CompletionOutcome]:
        keys = list(keys_of(uids))
        await fetch(tx, for_shape(cypher.LOCK_ENTITIES, config.shape), keys=keys, token=token)
        jobs, now = await lock_jobs(
            tx, (row.lease.job_id for row in rows), token=token, now=database.now_ms
        )
        entities = await read_hashes(tx, config, uids)
        outcomes = [_judge(jobs.get(row.lease.job_id), row, entities) for row in rows]
        judged = [
            (row, jobs[row.lease.job_id], outcome)
            for row, outcome in zip(rows, outcomes, strict=True)
            if is_held(jobs.get(row.lease.job_id), row.lease)
        ]
        fitting = [row for row, _, outcome in judged if outcome is _COMPLETED]
        await _write_vectors(tx, config, fitting, now=database.now_ms)
        await write_pieces(tx, config, fitting)
        finished = sorted(row.lease.entity_uid for row in fitting)
        await _clear_outdated(tx, config, entities, finished, token=token)
        await fetch(tx, FINISH_JOBS, rows=_finish_rows(fitting), now=database.now_ms)
        changes = [
            _change(job, outcome, entities, now)
            for _, job, outcome in judged
            if outcome is not _COMPLETED
        ]
        await change_jobs(tx, changes)
        await fetch(tx, for_shape(cypher.UNLOCK_ENTITIES, config.shape), keys=keys)
        tally = Counter(outcome for _, _, outcome in judged)
        counts = {
            "fenced": outcomes.count(_FENCED),
            "moved": tally[CompletionOutcome.MOVED],
            "superseded": tally[CompletionOutcome.SUPERSEDED] + tally[CompletionOutcome.GONE],
        }
        await count(tx, config.queue, counts, token=token, has_changes=bool(judged))
        return outcomes

    return await write_once(database, config.queue, token, work)


def check_vector(vector: Vector | None, *, dimensions: int | None = None) -> None:
    """Refuse vectors that the vector index would silently leave out.

    Raises:
        PermanentError: the vector is of another length, all zero, or holds what is no number.
    """
    if vector is None:
        return
    length = dimensions_of(vector)
    if dimensions is not None and length != dimensions:
        raise PermanentError(f"the vector has {length} dimensions, the index {dimensions}")
    if not can_be_found(vector):
        raise PermanentError("the vector is all zero or not finite; no index can find it")


def _misfit(row: Completion, entities: Mapping[str, CurrentEntity]) -> CompletionOutcome | None:
    """Why the vector must not be written to the locked entity, or ``None``."""
    entity = entities[row.lease.entity_uid]
    if not entity.can_be_meant:
        return CompletionOutcome.GONE
    if entity.version != row.lease.version:
        return CompletionOutcome.SUPERSEDED
    if entity.text_hash != row.text_hash:
        return CompletionOutcome.MOVED
    return None


def _judge(
    job: Properties | None, row: Completion, entities: Mapping[str, CurrentEntity]
) -> CompletionOutcome:
    if is_held(job, row.lease):
        return _misfit(row, entities) or _COMPLETED
    ending = settled_as(job, row.lease)
    return CompletionOutcome(ending) if ending in _ENDINGS else _FENCED


def _change(
    job: Properties, outcome: CompletionOutcome, entities: Mapping[str, CurrentEntity], now: int
) -> Change:
    if outcome is CompletionOutcome.MOVED:
        return back_to_pending(job, Move.RELEASE, now=now, is_refunded=True, settled_as=outcome)
    return ended(
        job,
        Move.CANCEL,
        now=now,
        settled_as=outcome,
        cancelled_by=BY_QUEUE,
        error=ending_reason(job, entities),
    )


def _finish_rows(rows: Iterable[Completion]) -> list[dict[str, Any]]:
    return [
        {
            "id": row.lease.job_id,
            "fence": row.lease.fence,
            "owner": row.lease.owner,
            "text_hash": row.text_hash,
            "tokens": row.tokens,
            "pieces": _several(row),
        }
        for row in rows
    ]


def _several(row: Completion) -> int | None:
    return row.pieces if row.pieces > 1 else None


async def _write_vectors(
    tx: Transaction, config: QueueConfig, completions: Sequence[Completion], *, now: int | None
) -> None:
    full = [row for row in completions if row.vector is not None]
    empty = [row for row in completions if row.vector is None]
    statement = for_shape(cypher.WRITE_VECTORS, config.shape)
    for part in _parts(full):
        await fetch(
            tx,
            statement,
            # No name for them here: only the driver holds the lists.
            rows=[_vector_row(row) for row in part],
            vector_property=config.shape.vector,
            now=now,
        )
    if empty:
        rows = [_vector_row(row) for row in empty]
        await fetch(tx, for_shape(cypher.CLEAR_VECTORS, config.shape), rows=rows, now=now)


async def _clear_outdated(
    tx: Transaction,
    config: QueueConfig,
    entities: Mapping[str, CurrentEntity],
    finished: Iterable[str],
    *,
    token: int,
) -> None:
    """Remove the vectors of outdated versions, which other programs would find."""
    uids = [uid for uid in finished if entities[uid].has_outdated]
    if uids and not config.keeps_old:
        await fetch(
            tx,
            for_shape(cypher.CLEAR_OUTDATED, config.shape),
            keys=list(keys_of(uids)),
            foreign=not config.keeps_foreign,
            token=token,
        )


def _parts(rows: Sequence[Completion]) -> Iterator[Sequence[Completion]]:
    longest = max((len(row.vector or b"") for row in rows), default=1)
    size = max(1, BYTES_PER_STATEMENT // longest)
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _vector_row(row: Completion) -> dict[str, Any]:
    return {
        "id": row.lease.job_id,
        "keys": values_of(row.lease.entity_uid),
        "model": row.lease.model,
        "version": row.lease.version,
        "text_hash": row.text_hash,
        "vector": None if row.vector is None else numbers_of(row.vector),
        "print": None if row.vector is None else print_of(row.vector),
        "pieces": _several(row),
    }
