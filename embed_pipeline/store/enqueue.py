"""How jobs come into being, also inside a transaction of the caller."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from embed_pipeline.domain.job import JobStatus, NewJob
from embed_pipeline.domain.lifecycle import EnqueueOutcome, Existing, Move, on_enqueue
from embed_pipeline.store.adopt import adopting
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import admin as cypher
from embed_pipeline.store.database import Transaction, duration_ms
from embed_pipeline.store.identity import checking
from embed_pipeline.store.load import hashing
from embed_pipeline.store.moves import BY_QUEUE, cancelled, forced, promoted, reopened
from embed_pipeline.store.records import Properties
from embed_pipeline.store.steps import Steps, ask, run
from embed_pipeline.store.transactions import changing, counting, locking, new_token
from embed_pipeline.store.wishes import in_place_of_keys, wishes_for


async def enqueue(
    tx: Transaction,
    config: QueueConfig,
    jobs: Sequence[NewJob],
    *,
    max_attempts: int | None = None,
    token: int | None = None,
    now: int | None = None,
) -> list[EnqueueOutcome]:
    """Make sure that each key has its job; commits together with whatever else ``tx`` does.

    Write the entity before the call: entities are locked before jobs everywhere.
    """
    return await run(tx, enqueueing(config, jobs, max_attempts=max_attempts, token=token, now=now))


def enqueueing(
    config: QueueConfig,
    jobs: Sequence[NewJob],
    *,
    max_attempts: int | None = None,
    token: int | None = None,
    now: int | None = None,
) -> Steps[list[EnqueueOutcome]]:
    """The steps of ``enqueue``."""
    token = token or new_token()
    attempts = max_attempts or config.max_attempts
    wishes = _merge(jobs)
    outcomes: dict[tuple[str, str, int], EnqueueOutcome] = {}
    existing: dict[str, NewJob] = {}
    locked: dict[str, Properties] = {}
    at, missing = 0, wishes
    foreign = 0
    while missing:
        found, strays = yield from _ensure(
            missing, outcomes, max_attempts=attempts, token=token, now=now
        )
        if strays:
            # Made by another program under this very key: it is adopted first.
            foreign += (yield from adopting(config, strays, token=new_token(), now=now)).count
            continue
        held, then = yield from locking(found, token=token, now=now)
        existing, locked, at = existing | found, locked | held, max(at, then)
        # Deleted by a clean-up between the look and the lock: the next look makes a new one.
        missing = [wish for id_, wish in found.items() if id_ not in held]
    for id_, job in locked.items():
        outcomes[existing[id_].key] = on_enqueue(_existing(job), existing[id_])
    reopenings = [
        reopened(
            job,
            Move.REVIVE,
            now=at,
            priority=existing[id_].priority,
            text_hash=existing[id_].text_hash,
            max_attempts=attempts,
            is_forced=existing[id_].force,
            delay_ms=_delay_ms(existing[id_]),
        )
        for id_, job in locked.items()
        if outcomes[existing[id_].key] is EnqueueOutcome.REVIVED
    ]
    patches = [
        {"id": id_, "properties": properties}
        for id_, job in locked.items()
        if (properties := _patch(job, existing[id_], outcomes[existing[id_].key], now=at))
    ]
    yield from changing(reopenings)
    if patches:
        yield from ask(cypher.PATCH_JOBS, rows=patches)
    superseded = yield from _supersede(
        [_row(index, wish) for index, wish in enumerate(wishes) if _is_new(outcomes[wish.key])],
        token=token,
        now=now,
    )
    counts = {"revived": len(reopenings), "superseded": superseded, "adopted": foreign}
    yield from counting(config.queue, counts, token=token, has_changes=bool(patches))
    return _in_order(jobs, outcomes)


def enqueueing_entities(
    config: QueueConfig,
    entities: Sequence[str | NewJob],
    *,
    model: str,
    priority: int = 0,
    force: bool = False,
    now: int | None = None,
) -> Steps[list[EnqueueOutcome]]:
    """Enqueue entities as the transaction sees them: by their keys, or jobs as they are.

    Raises:
        QueueError: there is no entity with one of the keys.
        InvalidJobError: a job is for another model.
        ModelMismatchError: the queue belongs to another model.
    """
    yield from checking(config)
    keys = [entity for entity in entities if isinstance(entity, str)]
    found = (yield from hashing(config, sorted(set(keys)))) if keys else {}
    wishes = wishes_for(keys, found, config, model=model, priority=priority, force=force)
    jobs = in_place_of_keys(entities, wishes, model=model)
    return (yield from enqueueing(config, jobs, now=now))


def _ensure(
    wishes: Sequence[NewJob],
    outcomes: dict[tuple[str, str, int], EnqueueOutcome],
    *,
    max_attempts: int,
    token: int,
    now: int | None,
) -> Steps[tuple[dict[str, NewJob], list[str]]]:
    """Record the outcome of each wish.

    Returns those whose jobs are worth a lock, by job id, and the nodes that are not adopted yet.
    """
    rows = [_row(index, wish) for index, wish in enumerate(wishes)]
    records = yield from ask(
        cypher.ENSURE_JOBS, rows=rows, max_attempts=max_attempts, token=token, now=now
    )
    worth_a_lock: dict[str, NewJob] = {}
    if strays := [record["stray"] for record in records if record["stray"] is not None]:
        return worth_a_lock, strays
    for record in records:
        wish = wishes[record["index"]]
        outcomes[wish.key] = EnqueueOutcome.CREATED if record["created"] else EnqueueOutcome.PRESENT
        if not record["created"] and _may_change(record["job"], wish):
            worth_a_lock[record["job"]["id"]] = wish
    return worth_a_lock, []


def _supersede(rows: list[dict[str, Any]], *, token: int, now: int | None) -> Steps[int]:
    if not any(row["version"] > 1 for row in rows):
        return 0
    records = yield from ask(cypher.PICK_OLDER, rows=rows)
    newer = {record["id"]: record["version"] for record in records}
    jobs, at = yield from locking(newer, token=token, now=now)
    changes = [
        cancelled(job, now=at, by=BY_QUEUE, reason=f"superseded by version {newer[id_]}")
        for id_, job in jobs.items()
        if job["status"] == JobStatus.PENDING
    ]
    yield from changing(changes)
    return len(changes)


def _merge(jobs: Sequence[NewJob]) -> list[NewJob]:
    """One wish per key, in lock order."""
    merged: dict[tuple[str, str, int], NewJob] = {}
    for job in jobs:
        other = merged.get(job.key)
        merged[job.key] = (
            job
            if other is None
            else replace(
                job,
                priority=max(job.priority, other.priority),
                text_hash=job.text_hash or other.text_hash,
                force=job.force or other.force,
                is_lost=job.is_lost or other.is_lost,
                delay=None if None in (job.delay, other.delay) else job.delay,
            )
        )
    return [merged[key] for key in sorted(merged)]


def _row(index: int, wish: NewJob) -> dict[str, Any]:
    return {
        "index": index,
        "entity_uid": wish.entity_uid,
        "model": wish.model,
        "version": wish.version,
        "priority": wish.priority,
        "text_hash": wish.text_hash,
        "forced_fence": 0 if wish.force else None,
        "delay": _delay_ms(wish),
        "put_off": None if wish.delay is None else True,
    }


def _delay_ms(wish: NewJob) -> int | None:
    return None if wish.delay is None else duration_ms(wish.delay)


def _existing(job: Properties) -> Existing:
    return Existing(
        status=JobStatus(job["status"]),
        priority=job["priority"],
        text_hash=job.get("text_hash"),
        is_cancelled_by_operator=job.get("cancelled_by") not in (None, BY_QUEUE),
        is_put_off=bool(job.get("put_off")),
    )


def _may_change(job: Properties, wish: NewJob) -> bool:
    """Decide from an unlocked read whether the job is worth a lock.

    A pending job that is not promoted needs none: whatever happens to it next, its completion
    compares the text under the lock of the entity.
    """
    if job["status"] == JobStatus.PENDING:
        is_hurried = bool(job.get("put_off")) and wish.delay is None
        return wish.priority > job["priority"] or wish.force or is_hurried
    is_other = wish.text_hash is not None and wish.text_hash != job.get("text_hash")
    is_asked = wish.force or wish.is_lost
    return is_asked or is_other or job["status"] == JobStatus.CANCELLED


def _patch(job: Properties, wish: NewJob, outcome: EnqueueOutcome, *, now: int) -> dict[str, Any]:
    is_live = outcome in (EnqueueOutcome.PROMOTED, EnqueueOutcome.PRESENT)
    force = forced(job) if wish.force and is_live else {}
    if outcome is EnqueueOutcome.PROMOTED:
        return promoted(job, now=now, priority=wish.priority) | force
    return _patch_of_present(job, wish, outcome) | force


def _patch_of_present(job: Properties, wish: NewJob, outcome: EnqueueOutcome) -> dict[str, Any]:
    is_waiting = job["status"] == JobStatus.PENDING
    if outcome is not EnqueueOutcome.PRESENT or is_waiting or wish.text_hash is None:
        return {}
    # A failure of the text in flight must not count against the one asked for now, and a job
    # cancelled before its text was known notices the next change.
    if job["status"] == JobStatus.PROCESSING and job.get("text_hash") != wish.text_hash:
        return {"text_hash": wish.text_hash, "moved_fence": job["fence"]}
    return {"text_hash": wish.text_hash} if job.get("text_hash") is None else {}


def _is_new(outcome: EnqueueOutcome) -> bool:
    return outcome in (EnqueueOutcome.CREATED, EnqueueOutcome.REVIVED)


def _in_order(
    jobs: Sequence[NewJob], outcomes: dict[tuple[str, str, int], EnqueueOutcome]
) -> list[EnqueueOutcome]:
    """The outcome of each wish in the caller's order; repetitions find the job present."""
    seen: set[tuple[str, str, int]] = set()
    answers: list[EnqueueOutcome] = []
    for job in jobs:
        answers.append(EnqueueOutcome.PRESENT if job.key in seen else outcomes[job.key])
        seen.add(job.key)
    return answers
