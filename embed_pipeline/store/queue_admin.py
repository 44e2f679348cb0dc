"""Everyone else's side of the queue."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from embed_pipeline.domain.audit import OperatorAction, describe_filter
from embed_pipeline.domain.errors import ErrorCategory, JobNotFoundError
from embed_pipeline.domain.job import Job, JobFilter, JobStatus, NewJob
from embed_pipeline.domain.lifecycle import MOVES, EnqueueOutcome, Move
from embed_pipeline.domain.metrics import COUNTERS
from embed_pipeline.domain.redact import redact
from embed_pipeline.domain.results import BulkReport, RecoveredJob
from embed_pipeline.store.audit import AuditNote
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import admin as cypher, worker as cypher_worker
from embed_pipeline.store.database import (
    Database,
    Transaction,
    duration_ms,
    fetch,
    fetch_one,
)
from embed_pipeline.store.enqueue import enqueue
from embed_pipeline.store.filtering import change_all, filter_parameters, preview, read_page
from embed_pipeline.store.moves import Change, back_to_pending, cancelled, reopened
from embed_pipeline.store.records import Properties, is_owned, to_job
from embed_pipeline.store.recover import recover_owner
from embed_pipeline.store.transactions import change_jobs, count, lock_jobs, new_token, write_once

logger = logging.getLogger(__name__)

_PAGE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Neo4jQueueAdmin:
    """Enqueue, inspect, cancel, retry, release and recover."""

    database: Database
    config: QueueConfig

    async def enqueue(
        self, jobs: Sequence[NewJob], *, max_attempts: int | None = None
    ) -> list[EnqueueOutcome]:
        """Make sure that each key has its job; one outcome per job, in order."""
        outcomes: list[EnqueueOutcome] = []
        forced = tuple(job.entity_uid for job in jobs if job.force)
        note = self._note(OperatorAction.FORCE, JobFilter(entity_uids=forced)) if forced else None
        for start in range(0, len(jobs), _PAGE):
            outcomes += await self._enqueue_page(
                jobs[start : start + _PAGE],
                max_attempts=max_attempts,
                note=note,
                before=sum(outcome is not EnqueueOutcome.PRESENT for outcome in outcomes),
                is_last=start + _PAGE >= len(jobs),
            )
        return outcomes

    async def retry_failed(self, which: JobFilter, *, preview: bool = False) -> BulkReport:
        """Give failed jobs a fresh start; without categories in the filter not PERMANENT ones."""
        exclude = ErrorCategory.PERMANENT if which.categories is None else None
        return await self._change(
            which,
            Move.RETRY_FAILED,
            _retried,
            note=self._note(OperatorAction.RETRY, which),
            counter="reopened",
            is_preview=preview,
            exclude=exclude,
        )

    async def cancel(
        self, which: JobFilter, *, by: str, reason: str = "", preview: bool = False
    ) -> BulkReport:
        """Cancel what is pending or processing; terminal jobs are left alone."""
        who, why = self._stored(by), self._stored(reason)

        def decide(job: Properties, now: int) -> Change:
            return cancelled(job, now=now, by=who, reason=why)

        note = self._note(OperatorAction.CANCEL, which, reason=reason)
        return await self._change(
            which, Move.CANCEL, decide, note=note, counter="cancelled", is_preview=preview
        )

    async def cancel_job(self, job_id: str, *, by: str, reason: str = "") -> None:
        """Cancel one job.

        Raises:
            JobNotFoundError: no job has this id.
            TransitionRefusedError: the job has ended; the message says how.
        """
        token = new_token()
        note = self._note(OperatorAction.CANCEL, JobFilter(ids=(job_id,)), reason=reason)

        async def work(tx: Transaction) -> None:
            jobs, now = await lock_jobs(tx, [job_id], token=token, now=self.database.now_ms)
            if job_id not in jobs:
                raise JobNotFoundError(f"there is no job {job_id}")
            who, why = self._stored(by), self._stored(reason)
            await change_jobs(tx, [cancelled(jobs[job_id], now=now, by=who, reason=why)])
            await note.write(tx, 1)
            await count(tx, self.config.queue, {"cancelled": 1}, token=token)

        await write_once(self.database, self.config.queue, token, work)
        logger.info("job=%s cancelled by=%s", job_id, self._stored(by))

    async def release_owner(self, owner: str) -> int:
        """Give back, with refund, everything that an owner, or all owners of a run, hold.

        For a worker that stopped in an orderly way. One that died may have been killed by a job:
        use ``recover_owner``, which counts the attempt.
        """
        released = 0
        note = self._note(OperatorAction.RELEASE, JobFilter(owner=owner))
        while page := await self._release_page(owner, note=note, before=released):
            for job in page:
                logger.warning("job=%s released from owner=%s", job["id"], job["lock_owner"])
            released += len(page)
        return released

    async def recover_owner(self, owner: str) -> list[RecoveredJob]:
        """Take everything from an owner that is known to be dead, without waiting for expiry."""
        recovered: list[RecoveredJob] = []
        note = self._note(OperatorAction.RECOVER, JobFilter(owner=owner))
        while page := await recover_owner(
            self.database, self.config, owner, limit=_PAGE, note=note, before=len(recovered)
        ):
            recovered += page
        return recovered

    async def job_status(self, job_id: str) -> Job:
        """Read one job.

        Raises:
            JobNotFoundError: no job has this id.
        """
        jobs = await self.find_jobs(JobFilter(ids=(job_id,)), limit=1)
        if not jobs:
            raise JobNotFoundError(f"there is no job {job_id}")
        return jobs[0]

    async def find_jobs(
        self, which: JobFilter, *, limit: int = 100, after: str | None = None
    ) -> list[Job]:
        """Read a page of jobs, ordered by id, beginning after the id ``after``."""
        parameters = filter_parameters(which)
        page = await self.database.read(
            lambda tx: read_page(tx, parameters, limit=limit, after=after or "")
        )
        return [to_job(job) for job in page]

    async def counts(self) -> Mapping[JobStatus, int]:
        """The number of jobs per state, zeros included."""
        record = await self.database.read(lambda tx: fetch_one(tx, cypher.COUNT_JOBS))
        return {status: record[status.value] for status in JobStatus}

    async def count(self, counts: Mapping[str, int]) -> None:
        """Add what only the worker sees to the counters, such as requests and tokens."""
        if unknown := set(counts) - set(COUNTERS):
            raise ValueError(f"unknown counters: {sorted(unknown)}")
        token = new_token()
        queue = self.config.queue
        await write_once(
            self.database, queue, token, lambda tx: count(tx, queue, counts, token=token)
        )

    async def record_recovery(self) -> None:
        """Count a search for expired leases, whether there were any or not."""
        token, queue = new_token(), self.config.queue
        one = {"recoveries": 1}
        await write_once(self.database, queue, token, lambda tx: count(tx, queue, one, token=token))

    async def find_expired(self, *, limit: int = 100, grace: timedelta = timedelta(0)) -> list[Job]:
        """Read the jobs whose leases have expired, the oldest expiry first; changes nothing."""
        records = await self.database.read(
            lambda tx: fetch(
                tx,
                cypher.READ_EXPIRED,
                now=self.database.now_ms,
                grace=duration_ms(grace),
                limit=limit,
            )
        )
        return [to_job(record["job"]) for record in records]

    async def _change(
        self,
        which: JobFilter,
        move: Move,
        decide: Callable[[Properties, int], Change],
        *,
        note: AuditNote,
        counter: str,
        is_preview: bool,
        exclude: ErrorCategory | None = None,
    ) -> BulkReport:
        """Change all jobs of a filter for which ``MOVES`` has the move."""
        sources = MOVES[move][0]
        statuses = sources if which.statuses is None else which.statuses & sources
        parameters = filter_parameters(replace(which, statuses=statuses), exclude=exclude)
        if is_preview:
            return await preview(self.database, parameters)

        def guarded(job: Properties, now: int) -> Change | None:
            is_excluded = exclude is not None and job.get("error_category") == exclude
            is_wanted = JobStatus(job["status"]) in statuses and not is_excluded
            return decide(job, now) if is_wanted else None

        return await change_all(
            self.database, self.config.queue, parameters, guarded, counter=counter, note=note
        )

    def _stored(self, text: str) -> str:
        # What people write is kept for others to read, also when they have pasted a secret.
        return redact(text, self.config.secrets)

    def _note(self, action: OperatorAction, which: JobFilter, *, reason: str = "") -> AuditNote:
        said = describe_filter(which, reason=reason)
        return AuditNote(self.database, action, said, self.config.secrets)

    async def _enqueue_page(
        self,
        page: Sequence[NewJob],
        *,
        max_attempts: int | None,
        note: AuditNote | None,
        before: int,
        is_last: bool,
    ) -> list[EnqueueOutcome]:
        token = new_token()

        async def work(tx: Transaction) -> list[EnqueueOutcome]:
            now = self.database.now_ms
            outcomes = await enqueue(
                tx, self.config, page, max_attempts=max_attempts, token=token, now=now
            )
            if note:
                changed = sum(outcome is not EnqueueOutcome.PRESENT for outcome in outcomes)
                await note.write(tx, before + changed, is_complete=is_last)
            return outcomes

        return await write_once(self.database, self.config.queue, token, work)

    async def _release_page(self, owner: str, *, note: AuditNote, before: int) -> list[Properties]:
        token = new_token()

        async def work(tx: Transaction) -> list[Properties]:
            records = await fetch(tx, cypher_worker.PICK_OWNED, owner=owner, limit=_PAGE)
            jobs, now = await lock_jobs(
                tx, (record["id"] for record in records), token=token, now=self.database.now_ms
            )
            owned = [job for job in jobs.values() if is_owned(job, owner)]
            changes = [
                back_to_pending(job, Move.RELEASE, now=now, is_refunded=True) for job in owned
            ]
            await change_jobs(tx, changes)
            await note.write(tx, before + len(changes), is_complete=not changes)
            await count(tx, self.config.queue, {"released": len(changes)}, token=token)
            return owned

        return await write_once(self.database, self.config.queue, token, work)


def _retried(job: Properties, now: int) -> Change:
    return reopened(job, Move.RETRY_FAILED, now=now)
