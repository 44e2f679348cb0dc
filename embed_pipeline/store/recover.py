"""How jobs come back from workers that have gone silent."""

import logging
from collections.abc import Callable, Iterable
from datetime import timedelta

from embed_pipeline.domain.batch import is_batch
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.lifecycle import GiveBack, GiveUp, Move, after_expiry
from embed_pipeline.domain.results import RecoveredJob
from embed_pipeline.store.adoption import Neo4jAdoption
from embed_pipeline.store.audit import AuditNote
from embed_pipeline.store.clock import follow_clock, note_clock
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import worker as cypher
from embed_pipeline.store.database import Database, Transaction, duration_ms, fetch, from_ms, moment
from embed_pipeline.store.moves import Change, ErrorNote, back_to_pending, ended
from embed_pipeline.store.records import Properties, is_moved, is_owned
from embed_pipeline.store.transactions import change_jobs, count, lock_jobs, new_token, write_once

logger = logging.getLogger(__name__)

IsLost = Callable[[Properties, int], bool]
"""A locked job and the time: may its lease be taken away?"""


async def recover_expired(
    database: Database, config: QueueConfig, *, limit: int, grace: timedelta
) -> list[RecoveredJob]:
    """Take away expired leases, oldest first, at most ``limit``."""
    token, grace_ms = new_token(), duration_ms(grace)

    def is_lost(job: Properties, now: int) -> bool:
        until = job.get("lock_until")
        return until is not None and until < now - grace_ms

    async def work(tx: Transaction) -> tuple[list[RecoveredJob], list[str]]:
        records = await fetch(
            tx, cypher.PICK_EXPIRED, now=database.now_ms, grace=grace_ms, limit=limit
        )
        recovered = await _recover(
            tx, database, config, (r["id"] for r in records), is_lost, token=token
        )
        await note_clock(tx, database, config)
        return recovered, [r["element"] for r in records if not r["is_leased"]]

    adoption = Neo4jAdoption(database, config)
    # A lease that was ended already is none that expires.
    await adoption.strays()
    await follow_clock(database, config)
    recovered, odd = await write_once(database, config.queue, token, work)
    await adoption.these(odd)
    return recovered


async def recover_owner(
    database: Database, config: QueueConfig, owner: str, *, limit: int, note: AuditNote, before: int
) -> list[RecoveredJob]:
    """Take away all leases of an owner that is known to be dead, expired or not.

    ``before`` of them were taken by the pages before this one; an empty page is the last.
    """
    token = new_token()

    def is_lost(job: Properties, _now: int) -> bool:
        return is_owned(job, owner)

    async def work(tx: Transaction) -> list[RecoveredJob]:
        records = await fetch(tx, cypher.PICK_OWNED, owner=owner, limit=limit)
        ids = [record["id"] for record in records]
        recovered = await _recover(tx, database, config, ids, is_lost, token=token)
        await note.write(tx, before + len(recovered), is_complete=not recovered)
        return recovered

    recovered = await write_once(database, config.queue, token, work)
    for job in recovered:
        logger.warning("%s", job.line)
    return recovered


async def _recover(
    tx: Transaction,
    database: Database,
    config: QueueConfig,
    ids: Iterable[str],
    is_lost: IsLost,
    *,
    token: int,
) -> list[RecoveredJob]:
    jobs, now = await lock_jobs(tx, ids, token=token, now=database.now_ms)
    lost = [
        job
        for job in jobs.values()
        if job.get("status") == JobStatus.PROCESSING and is_lost(job, now)
    ]
    lost.sort(key=lambda job: (job.get("lock_until") or 0, job["id"]))
    changes = [_decide(job, config, now) for job in lost]
    await change_jobs(tx, changes)
    exhausted = sum(change.after is JobStatus.FAILED for change in changes)
    counts = {"recovered": len(changes), "exhausted": exhausted}
    await count(tx, config.queue, counts, token=token)
    return [
        RecoveredJob(
            job_id=job["id"],
            entity_uid=job["entity_uid"],
            former_owner=job.get("lock_owner"),
            last_heartbeat=from_ms(job.get("heartbeat_at") or job.get("started_at")),
            expired_at=moment(job.get("lock_until") or now),
            status=change.after,
            attempts=job["attempts"],
        )
        for job, change in zip(lost, changes, strict=True)
    ]


def _decide(job: Properties, config: QueueConfig, now: int) -> Change:
    of_batch = is_batch(job.get("lock_owner"))
    decision = after_expiry(
        attempts=job["attempts"],
        max_attempts=job["max_attempts"],
        expiries=job["expiries"] + 1,
        policy=config.retry,
        roll=config.roll(),
        is_moved=is_moved(job),
        is_batch=of_batch,
    )
    if isinstance(decision, GiveBack):
        return back_to_pending(
            job, Move.RECOVER, now=now, is_refunded=True, is_expired=not of_batch
        )
    if isinstance(decision, GiveUp):
        note = None
        if job.get("error") is None:
            message = f"lease expired on {job.get('lock_owner')}"
            note = ErrorNote(ErrorCategory.TRANSIENT, message)
        return ended(job, Move.EXHAUST, now=now, note=note, expiries=job["expiries"] + 1)
    return back_to_pending(
        job, Move.RECOVER, now=now, delay_ms=duration_ms(decision.delay), is_expired=True
    )
