"""The worker's side of the queue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

from embed_pipeline.domain.errors import ConfigurationError, InvalidJobError
from embed_pipeline.domain.fairness import Lane
from embed_pipeline.domain.job import LONGEST_LEASE, JobStatus, Lease
from embed_pipeline.domain.lifecycle import Move
from embed_pipeline.domain.results import (
    Beat,
    Completion,
    CompletionOutcome,
    Failure,
    FailureOutcome,
    LeaseBatch,
    LoadedEntity,
    RecoveredJob,
)
from embed_pipeline.domain.text import share_of
from embed_pipeline.domain.vector import Vector
from embed_pipeline.store.complete import complete
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import worker as cypher
from embed_pipeline.store.database import (
    Database,
    Transaction,
    duration_ms,
    fetch,
    fetch_one,
    from_ms,
)
from embed_pipeline.store.fail import fail
from embed_pipeline.store.lease import lease
from embed_pipeline.store.load import find_forced, find_vectors, load
from embed_pipeline.store.moves import back_to_pending
from embed_pipeline.store.pieces import find_pieces
from embed_pipeline.store.records import is_held, lease_rows, settled_as
from embed_pipeline.store.recover import recover_expired
from embed_pipeline.store.transactions import change_jobs, count, lock_jobs, new_token, write_once
from embed_pipeline.tracing import note

RECEIVED: Final = {"messaging.operation.name": "lease", "messaging.operation.type": "receive"}
"""What a trace calls a lease."""


@dataclass(frozen=True, slots=True)
class Neo4jJobStore:
    """Leases, and everything that takes one; ``JobStore`` says what each method does."""

    database: Database
    config: QueueConfig

    async def lease(
        self,
        *,
        owner: str,
        model: str,
        limit: int,
        duration: timedelta,
        lane: Lane = Lane.ANY,
        request: str | None = None,
    ) -> LeaseBatch:
        if not owner or not model or limit < 1:
            raise InvalidJobError("a lease needs an owner, a model and a limit of at least 1")
        _check_duration(duration)
        token = request or uuid4().hex
        tries = 0
        last: list[LeaseBatch] = []

        async def work(tx: Transaction) -> LeaseBatch:
            nonlocal tries
            tries += 1
            batch = await lease(
                tx,
                self.config,
                owner=owner,
                model=model,
                limit=limit,
                duration=duration,
                lane=lane,
                request=token,
                is_repeated=request is not None or tries > 1,
                now=self.database.now_ms,
            )
            note({**RECEIVED, "messaging.batch.message_count": len(batch.jobs)})
            if last and {x.lease for x in batch.jobs} == {x.lease for x in last[-1].jobs}:
                # The same jobs; only the first answer had them in the order of urgency.
                return last[-1]
            last.append(batch)
            return batch

        return await self.database.write(work)

    async def heartbeat(self, leases: Sequence[Lease], *, duration: timedelta) -> Beat:
        """Extend the leases that are still held; say which are lost, cancelled or settled.

        The beat may cross a completion of the same worker: that is no lost lease.
        """
        if not leases:
            return Beat()
        _check_duration(duration)
        token, rows = new_token(), lease_rows(leases)

        async def work(tx: Transaction) -> Beat:
            await fetch(tx, cypher.LOCK_JOBS, ids=[row["id"] for row in rows], token=token)
            extended = await fetch_one(
                tx,
                cypher.EXTEND_LEASES,
                leases=rows,
                duration=duration_ms(duration),
                now=self.database.now_ms,
            )
            lock_until = from_ms(extended["lock_until"])
            if extended["jobs"] == len(rows):
                return Beat(held=tuple(leases), lock_until=lock_until)
            beat = replace(await _look(tx, leases, rows), lock_until=lock_until)
            lost = len(beat.lost) + len(beat.cancelled)
            await count(tx, self.config.queue, {"fenced": lost}, token=token)
            return beat

        return await write_once(self.database, self.config.queue, token, work)

    async def check(self, leases: Sequence[Lease]) -> Beat:
        if not leases:
            return Beat()
        rows = lease_rows(leases)
        return await self.database.read_latest(lambda tx: _look(tx, leases, rows))

    async def load(
        self, leases: Sequence[Lease], *, longest: int | None = None
    ) -> list[LoadedEntity]:
        if not leases:
            return []
        longest = share_of(len(leases)) if longest is None else longest
        return await load(self.database, self.config, leases, longest=longest)

    async def find_vectors(
        self, hashes: Sequence[str], *, model: str, dimensions: int
    ) -> Mapping[str, Vector]:
        return await find_vectors(self.database, self.config, hashes, model, dimensions)

    async def find_pieces(
        self, hashes: Sequence[str], *, model: str, dimensions: int
    ) -> Mapping[str, Vector]:
        return await find_pieces(self.database, hashes, model, dimensions)

    async def find_forced(self, leases: Sequence[Lease]) -> set[Lease]:
        return await find_forced(self.database, leases)

    async def complete(self, rows: Sequence[Completion]) -> list[CompletionOutcome]:
        return await complete(self.database, self.config, rows) if rows else []

    async def fail(self, rows: Sequence[Failure]) -> list[FailureOutcome]:
        return await fail(self.database, self.config, rows) if rows else []

    async def release(self, leases: Sequence[Lease]) -> int:
        if not leases:
            return 0
        token = new_token()

        async def work(tx: Transaction) -> int:
            jobs, now = await lock_jobs(
                tx, (lease.job_id for lease in leases), token=token, now=self.database.now_ms
            )
            held = [jobs[x.job_id] for x in leases if is_held(jobs.get(x.job_id), x)]
            endings = [settled_as(jobs.get(x.job_id), x) for x in leases]
            repeated = endings.count(Move.RELEASE)
            changes = [
                back_to_pending(
                    job, Move.RELEASE, now=now, is_refunded=True, settled_as=Move.RELEASE
                )
                for job in held
            ]
            await change_jobs(tx, changes)
            # What the worker itself has completed or failed is not lost, only settled.
            fenced = endings.count(None) - len(held)
            counts = {"released": len(held), "fenced": fenced}
            await count(tx, self.config.queue, counts, token=token)
            return len(held) + repeated

        return await write_once(self.database, self.config.queue, token, work)

    async def recover_expired(
        self, *, limit: int, grace: timedelta = timedelta(0)
    ) -> list[RecoveredJob]:
        return await recover_expired(self.database, self.config, limit=limit, grace=grace)


async def _look(tx: Transaction, leases: Sequence[Lease], rows: list[dict[str, Any]]) -> Beat:
    counted = await fetch_one(tx, cypher.COUNT_HELD, leases=rows)
    if counted["jobs"] == len(leases):
        return Beat(held=tuple(leases))
    records = await fetch(tx, cypher.READ_LEASES, leases=rows)
    found = {record["id"]: record.data() for record in records}
    held: list[Lease] = []
    cancelled: list[Lease] = []
    lost: list[Lease] = []
    settled: dict[Lease, str] = {}
    for lease_ in leases:
        record = found.get(lease_.job_id)
        if ending := settled_as(record, lease_):
            settled[lease_] = ending
        elif record is None or record["fence"] != lease_.fence:
            lost.append(lease_)
        elif record["owner"] == lease_.owner:
            held.append(lease_)
        elif record["status"] == JobStatus.CANCELLED:
            cancelled.append(lease_)
        else:
            lost.append(lease_)
    return Beat(tuple(held), tuple(cancelled), tuple(lost), settled)


def _check_duration(duration: timedelta) -> None:
    if not timedelta(0) < duration <= LONGEST_LEASE:
        raise ConfigurationError(f"a lease lasts more than 0 and at most {LONGEST_LEASE}")
