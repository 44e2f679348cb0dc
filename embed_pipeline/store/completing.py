"""How a vector gets onto its entity, once, and only if it still fits."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from embed_pipeline.domain.errors import PermanentError
from embed_pipeline.domain.job import Lease
from embed_pipeline.domain.lifecycle import Move
from embed_pipeline.domain.results import (
    Completion,
    CompletionOutcome,
    EntityFate,
    LoadedEntity,
)
from embed_pipeline.store import cypher_entity as cypher
from embed_pipeline.store.changes import BY_QUEUE, Change, back_to_pending, cancelled, ended
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher_worker import READ_JOBS
from embed_pipeline.store.database import Database, Transaction, fetch
from embed_pipeline.store.records import Properties, QuietList, is_held, settled_as
from embed_pipeline.store.shape import for_shape
from embed_pipeline.store.transactions import change_jobs, count, lock_jobs, new_token

ENTITY_DELETED = "entity deleted"
# Vectors are stored as 32-bit floats.
_SMALLEST_NORM, _LARGEST_NORM = 1e-30, 3e38
_FENCED = CompletionOutcome.FENCED
_ENDINGS = frozenset(CompletionOutcome)
_NOTHING_LEFT = (EntityFate.GONE, EntityFate.SUPERSEDED)


async def complete(
    database: Database, config: QueueConfig, rows: Sequence[Completion]
) -> list[CompletionOutcome]:
    """Lock entities, then jobs; judge each row; write all that passed in one go."""
    for row in rows:
        check_vector(row.vector, dimensions=config.dimensions)
    token = new_token()
    shape = config.shape
    uids = sorted({row.lease.entity_uid for row in rows})

    async def work(tx: Transaction) -> list[CompletionOutcome]:
        await fetch(tx, for_shape(cypher.LOCK_ENTITIES, shape), uids=uids, token=token)
        jobs, now = await lock_jobs(
            tx, (row.lease.job_id for row in rows), token=token, now=database.now_ms
        )
        entities = await _read_entities(tx, config, uids)
        outcomes = [_judge(jobs.get(row.lease.job_id), row, entities, config) for row in rows]
        judged = [
            (row, jobs[row.lease.job_id], outcome)
            for row, outcome in zip(rows, outcomes, strict=True)
            if is_held(jobs.get(row.lease.job_id), row.lease)
        ]
        await _write_vectors(tx, config, judged)
        await change_jobs(tx, [_change(*item, entities, now) for item in judged])
        written = {row.lease.entity_uid for row, _, o in judged if o is CompletionOutcome.COMPLETED}
        if untouched := [uid for uid in uids if uid not in written]:
            await fetch(tx, for_shape(cypher.UNLOCK_ENTITIES, shape), uids=untouched)
        tally = Counter(outcomes)
        counts = {
            "fenced": tally[CompletionOutcome.FENCED],
            "moved": tally[CompletionOutcome.MOVED],
            "superseded": tally[CompletionOutcome.SUPERSEDED] + tally[CompletionOutcome.GONE],
        }
        await count(tx, config.queue, counts, token=token)
        return outcomes

    return await database.write(work)


async def load(
    database: Database, config: QueueConfig, leases: Sequence[Lease]
) -> list[LoadedEntity]:
    """Read what is to be embedded, and cancel the jobs that have nothing left to embed."""
    uids = sorted({lease.entity_uid for lease in leases})
    ids = sorted(lease.job_id for lease in leases)
    token = new_token()

    async def look(tx: Transaction) -> list[LoadedEntity]:
        records = await fetch(tx, READ_JOBS, ids=ids, now=database.now_ms)
        jobs = {record["job"]["id"]: record["job"] for record in records}
        entities = await _read_entities(tx, config, uids)
        return [_fate(jobs.get(lease.job_id), lease, entities) for lease in leases]

    async def cancel(tx: Transaction) -> list[LoadedEntity]:
        jobs, now = await lock_jobs(tx, ids, token=token, now=database.now_ms)
        entities = await _read_entities(tx, config, uids)
        loaded = [_fate(jobs.get(lease.job_id), lease, entities) for lease in leases]
        over = [jobs[x.lease.job_id] for x in loaded if x.fate in _NOTHING_LEFT]
        changes = [
            cancelled(job, now=now, by=BY_QUEUE, reason=_reason(job, entities)) for job in over
        ]
        await change_jobs(tx, changes)
        fenced = sum(x.fate is EntityFate.FENCED for x in loaded)
        counts = {"superseded": len(changes), "fenced": fenced}
        await count(tx, config.queue, counts, token=token)
        return loaded

    loaded = await database.read(look)
    if all(x.fate is EntityFate.CURRENT for x in loaded):
        return loaded
    return await database.write(cancel)


async def find_vectors(
    database: Database, config: QueueConfig, hashes: Sequence[str], model: str, dimensions: int
) -> Mapping[str, list[float]]:
    """Look up vectors of texts that were embedded before."""
    if not hashes:
        return {}
    statement = for_shape(cypher.FIND_VECTORS, config.shape)
    wanted = sorted(set(hashes))
    records = await database.read(
        lambda tx: fetch(tx, statement, hashes=wanted, model=model, dimensions=dimensions)
    )
    return {record["hash"]: record["vector"] for record in records}


def check_vector(vector: Sequence[float] | None, *, dimensions: int | None = None) -> None:
    """Refuse what the vector index would leave out without a word.

    Raises:
        PermanentError: the vector is of another length, all zero, or holds what is no number.
    """
    if vector is None:
        return
    if dimensions is not None and len(vector) != dimensions:
        raise PermanentError(f"the vector has {len(vector)} dimensions, the index {dimensions}")
    # One pass in C; a NaN or an infinity anywhere makes the norm one, too.
    norm = math.hypot(*vector)
    if not _SMALLEST_NORM < norm < _LARGEST_NORM:
        raise PermanentError("the vector is all zero or not finite; no index can find it")


def _judge(
    job: Properties | None, row: Completion, entities: Mapping[str, Any], config: QueueConfig
) -> CompletionOutcome:
    if job is None or not is_held(job, row.lease):
        ending = settled_as(job, row.lease)
        return CompletionOutcome(ending) if ending in _ENDINGS else _FENCED
    entity = entities[row.lease.entity_uid]
    if not entity["exists"]:
        return CompletionOutcome.GONE
    if entity["version"] != job["version"]:
        return CompletionOutcome.SUPERSEDED
    if config.hash_of(entity["text"]) != row.text_hash:
        return CompletionOutcome.MOVED
    return CompletionOutcome.COMPLETED


def _change(
    row: Completion,
    job: Properties,
    outcome: CompletionOutcome,
    entities: Mapping[str, Any],
    now: int,
) -> Change:
    ending = outcome.value
    if outcome is CompletionOutcome.COMPLETED:
        return ended(
            job,
            Move.COMPLETE,
            now=now,
            settled_as=ending,
            text_hash=row.text_hash,
            tokens=row.tokens,
            truncated=row.truncated,
        )
    if outcome is CompletionOutcome.MOVED:
        return back_to_pending(job, Move.RELEASE, now=now, is_refunded=True, settled_as=ending)
    return ended(
        job,
        Move.CANCEL,
        now=now,
        settled_as=ending,
        cancelled_by=BY_QUEUE,
        error=_reason(job, entities),
    )


async def _write_vectors(
    tx: Transaction,
    config: QueueConfig,
    judged: Iterable[tuple[Completion, Properties, CompletionOutcome]],
) -> None:
    rows = QuietList(
        {
            "id": job["id"],
            "uid": job["entity_uid"],
            "model": job["model"],
            "version": job["version"],
            "text_hash": row.text_hash,
            "vector": row.vector,
        }
        for row, job, outcome in judged
        if outcome is CompletionOutcome.COMPLETED
    )
    full = QuietList(row for row in rows if row["vector"] is not None)
    empty = QuietList(row for row in rows if row["vector"] is None)
    if full:
        statement = for_shape(cypher.WRITE_VECTORS, config.shape)
        await fetch(tx, statement, rows=full, vector_property=config.shape.vector)
    if empty:
        await fetch(tx, for_shape(cypher.CLEAR_VECTORS, config.shape), rows=empty)


async def _read_entities(
    tx: Transaction, config: QueueConfig, uids: list[str]
) -> dict[str, Mapping[str, Any]]:
    records = await fetch(tx, for_shape(cypher.READ_ENTITIES, config.shape), uids=uids)
    return {record["uid"]: record.data() for record in records}


def _fate(
    job: Properties | None, lease: Lease, entities: Mapping[str, Mapping[str, Any]]
) -> LoadedEntity:
    if job is None or not is_held(job, lease):
        return LoadedEntity(lease, EntityFate.FENCED)
    entity = entities[lease.entity_uid]
    if not entity["exists"]:
        return LoadedEntity(lease, EntityFate.GONE)
    if entity["version"] != job["version"]:
        return LoadedEntity(lease, EntityFate.SUPERSEDED)
    return LoadedEntity(lease, EntityFate.CURRENT, entity["text"])


def _reason(job: Properties, entities: Mapping[str, Mapping[str, Any]]) -> str:
    entity = entities[job["entity_uid"]]
    return f"superseded by version {entity['version']}" if entity["exists"] else ENTITY_DELETED
