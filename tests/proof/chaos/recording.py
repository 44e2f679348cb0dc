"""The store of a drain, with a record of every call and traps that close around a write."""

import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

from embed_pipeline.domain import breaker
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import JobStatus, Lease, LeasedJob, NewJob
from embed_pipeline.domain.lifecycle import EnqueueOutcome, Existing
from embed_pipeline.domain.results import (
    Completion,
    CompletionOutcome,
    Failure,
    FailureOutcome,
    LeaseBatch,
    RecoveredJob,
)
from embed_pipeline.operations import wiring
from embed_pipeline.settings import Settings
from embed_pipeline.store import (
    adopt as adopting,
    enqueue as enqueueing,
    lease as leasing,
    queue_admin,
    recover as recovering,
)
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.connection import Driver
from embed_pipeline.store.cypher import entity as cypher_entity, purge as cypher_purge
from embed_pipeline.store.database import to_ms
from embed_pipeline.store.job_store import Neo4jJobStore
from embed_pipeline.store.moves import Change
from embed_pipeline.store.queue import Queue
from embed_pipeline.store.records import Properties
from tests.proof.chaos.history import ANSWER, ASK, ERROR, Log
from tests.proof.chaos.patching import patch
from tests.proof.chaos.plan import (
    FIRST_PAUSE_OF_OUTAGE,
    LONGEST_PAUSE_OF_OUTAGE,
    PROBE_LASTS,
    RETRY,
)
from tests.proof.chaos.scanning import IS_SCANNING

Result = TypeVar("Result")

AUDIT_VECTORS = """
WITH entity, row
MATCH (job:EmbedJob {id: row.id})
SET entity.chaos_writes = coalesce(entity.chaos_writes, [])
  + [row.id + ':' + toString(job.fence) + ':' + toString(row.version)],
  entity.chaos_texts = coalesce(entity.chaos_texts, [])
  + [row.text_hash + ':' + entity.observations[0]]
"""
"""Leaves a trace of every vector that is really committed: job, its fence at that time, version;
and the hash of its text beside what the entity says of itself then."""

AUDIT_PURGE = "CREATE (gone:ChaosPurged) SET gone = properties(job) DETACH DELETE job"
"""Keeps a copy of what a clean-up deletes, in the same transaction."""


@dataclass
class Traps:
    """Faults that wait for the next write of this process."""

    is_stop_set: bool = False
    is_kill_set: bool = False

    def before_write(self, log: Log) -> None:
        if self.is_stop_set:
            self.is_stop_set = False
            log("trap", kind="stop")
            os.kill(os.getpid(), signal.SIGSTOP)

    def after_write(self, log: Log) -> None:
        """The database has answered, and nobody will ever know."""
        if self.is_kill_set:
            log("trap", kind="kill")
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class RecordingStore(Neo4jJobStore):
    """Does what the real one does, and says so."""

    log: Log
    traps: Traps
    recoveries: dict[str, dict[str, int]]
    """What the recovery under way has read under its locks, by job."""

    async def lease(self, **options: Any) -> LeaseBatch:
        batch = await super().lease(**options)
        if batch.jobs:
            self.traps.after_write(self.log)
        self.log("lease", jobs=[_leased(item, batch) for item in batch.jobs])
        return batch

    async def complete(self, rows: Sequence[Completion]) -> list[CompletionOutcome]:
        leases = [row.lease for row in rows]
        return await self._call("complete", leases, super().complete(rows), _words)

    async def fail(self, rows: Sequence[Failure]) -> list[FailureOutcome]:
        leases = [row.lease for row in rows]
        hurt = [row.lease for row in rows if row.category is ErrorCategory.TRANSIENT]
        self.log("transient", leases=[(lease.job_id, lease.fence) for lease in hurt])
        return await self._call("fail", leases, super().fail(rows), _words)

    async def release(self, leases: Sequence[Lease]) -> int:
        return await self._call("release", leases, super().release(leases), lambda count: count)

    async def recover_expired(
        self, *, limit: int, grace: timedelta = timedelta(0)
    ) -> list[RecoveredJob]:
        recovered = await super().recover_expired(limit=limit, grace=grace)
        jobs = [
            {
                "id": job.job_id,
                "uid": job.entity_uid,
                "until": to_ms(job.expired_at),
                "status": job.status.value,
                "attempts": job.attempts,
                **self.recoveries.get(job.job_id, {}),
            }
            for job in recovered
        ]
        if jobs:
            self.log("recover", jobs=jobs)
        return recovered

    async def _call(
        self,
        what: str,
        leases: Sequence[Lease],
        work: Awaitable[Result],
        describe: Callable[[Result], Any],
    ) -> Result:
        call = self.log.new_call()
        pairs = [[lease.job_id, lease.fence] for lease in leases]
        self.log(what, phase=ASK, call=call, leases=pairs)
        self.traps.before_write(self.log)
        try:
            result = await work
        except BaseException as error:
            self.log(what, phase=ERROR, call=call, error=type(error).__name__)
            raise
        self.traps.after_write(self.log)
        self.log(what, phase=ANSWER, call=call, outcome=describe(result))
        return result


def _words(outcomes: Sequence[CompletionOutcome | FailureOutcome]) -> list[str]:
    return [outcome.value for outcome in outcomes]


def _leased(item: LeasedJob, batch: LeaseBatch) -> dict[str, Any]:
    assert batch.lock_until is not None
    return {
        "id": item.lease.job_id,
        "uid": item.lease.entity_uid,
        "version": item.lease.version,
        "fence": item.lease.fence,
        "attempts": item.attempts,
        "max": item.max_attempts,
        "until": to_ms(batch.lock_until),
    }


def record_everything(log: Log, traps: Traps) -> None:
    """Let every queue that this process opens be a recorded one.

    The statements get an audit that commits with them: what was applied is read from the graph,
    and not from what somebody was told.
    """
    recoveries: dict[str, dict[str, int]] = {}
    _hurry()
    _audit()
    _note_recoveries(recoveries, log)
    _note_given_back(log)
    _note_adoptions(log)
    _note_scans(log)
    queue_config, queue_on = wiring.queue_config, wiring.queue_on

    def impatient(settings: Settings) -> QueueConfig:
        return replace(queue_config(settings), retry=RETRY)

    def recorded(driver: Driver, settings: Settings) -> Queue:
        queue = queue_on(driver, settings)
        jobs = RecordingStore(queue.database, queue.config, log, traps, recoveries)
        return replace(queue, jobs=jobs)

    wiring.queue_config = impatient
    wiring.queue_on = recorded


def _hurry() -> None:
    patch(breaker, "FIRST_PAUSE_OF_OUTAGE", lambda _: FIRST_PAUSE_OF_OUTAGE)
    patch(breaker, "LONGEST_PAUSE_OF_OUTAGE", lambda _: LONGEST_PAUSE_OF_OUTAGE)
    patch(leasing, "PROBE_LASTS", lambda _: PROBE_LASTS)


def _audit() -> None:
    patch(cypher_entity, "WRITE_VECTORS", lambda statement: statement + AUDIT_VECTORS)
    patch(cypher_purge, "INNER", lambda s: s.replace("DETACH DELETE job", AUDIT_PURGE))


def _note_recoveries(recoveries: dict[str, dict[str, int]], log: Log) -> None:
    """Remember what only the recovery knows: fence, expiry and time, all under the lock."""

    def noting(decide: Callable[..., Change]) -> Callable[..., Change]:
        def noted(job: Properties, config: QueueConfig, now: int) -> Change:
            change = decide(job, config, now)
            recoveries[job["id"]] = {"fence": job["fence"], "until": job["lock_until"], "at": now}
            if change.properties.get("attempts", job["attempts"]) < job["attempts"]:
                _note_refund(log, job)
            return change

        return noted

    patch(recovering, "_decide", noting)


def _note_given_back(log: Log) -> None:
    """After an outage a drain gives back whatever carries its name, and hears only a number."""

    def noting(give_back: Callable[..., Change]) -> Callable[..., Change]:
        def noted(job: Properties, *args: Any, **options: Any) -> Change:
            _note_refund(log, job)
            return give_back(job, *args, **options)

        return noted

    patch(queue_admin, "back_to_pending", noting)


def _note_adoptions(log: Log) -> None:
    """A lease that somebody else's query took away is an expiry: it may refund, or be the last."""

    def noting(adopted: Callable[..., Any]) -> Callable[..., Any]:
        def noted(job: Properties, *args: Any, was_leased: bool, **options: Any) -> Any:
            status, properties = adopted(job, *args, was_leased=was_leased, **options)
            if was_leased and status is JobStatus.FAILED:
                log("exhausted", id=job["id"], fence=job["fence"])
            elif was_leased and properties["attempts"] < job.get("attempts", 0):
                _note_refund(log, job)
            return status, properties

        return noted

    patch(adopting, "adopted", noting)


def _note_scans(log: Log) -> None:
    """Which finished jobs a scan begins anew; others are told of by those who ask for it."""

    def noting(decide: Callable[..., EnqueueOutcome]) -> Callable[..., EnqueueOutcome]:
        def noted(existing: Existing, wish: NewJob) -> EnqueueOutcome:
            outcome = decide(existing, wish)
            if outcome is EnqueueOutcome.REVIVED and IS_SCANNING.get():
                is_put_off = wish.delay is not None
                log("revived", uid=wish.entity_uid, version=wish.version, is_put_off=is_put_off)
            return outcome

        return noted

    patch(enqueueing, "on_enqueue", noting)


def _note_refund(log: Log, job: Properties) -> None:
    """Before the commit: what may be refunded is known, whatever becomes of the transaction."""
    log("refund", leases=[[job["id"], job["fence"]]])
