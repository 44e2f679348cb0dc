"""Lease, fence, heartbeat and release, one test per line of the specification."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from neo4j import AsyncManagedTransaction

from embed_pipeline.domain.errors import TransitionRefusedError
from embed_pipeline.domain.job import JobStatus, LeasedJob
from embed_pipeline.domain.results import CompletionOutcome, FailureOutcome
from embed_pipeline.domain.vector import vector_of
from tests.support.queue_harness import LEASE, Neo4jUnderTest, assert_consistent

PENDING, PROCESSING, COMPLETED = JobStatus.PENDING, JobStatus.PROCESSING, JobStatus.COMPLETED


async def test_m3_m16_what_was_not_started_is_given_back_in_one_query(
    queue: Neo4jUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = await queue.leased(*(f"e{n}" for n in range(10)))
    await queue.complete(*(item.lease for item in items[:3]))
    transactions = []
    begin = AsyncManagedTransaction.run

    async def run(tx: AsyncManagedTransaction, *arguments: Any, **parameters: Any) -> Any:
        transactions.append(tx)
        return await begin(tx, *arguments, **parameters)

    with monkeypatch.context() as patched:
        patched.setattr(AsyncManagedTransaction, "run", run)
        released = await queue.jobs.release([item.lease for item in items])

    assert released == 7
    assert len(set(transactions)) == 1
    # Lock, change, count: however many jobs there are.
    assert len(transactions) <= 4
    counts = await queue.admin.counts()
    assert (counts[COMPLETED], counts[PENDING], counts[PROCESSING]) == (3, 7, 0)
    for item in items[3:]:
        job = await queue.admin.job_status(item.lease.job_id)
        assert (job.attempts, job.lock_owner, job.lock_until) == (0, None, None)
    assert len((await queue.lease(owner="next", limit=10)).jobs) == 7


async def test_m17_release_ignores_jobs_of_other_owners(queue: Neo4jUnderTest) -> None:
    mine = await queue.leased("2", "3", owner="a")
    [theirs] = await queue.leased("5", owner="b")
    before = await queue.job("5")
    stolen = [item.lease for item in (*mine, theirs)]
    pretended = [
        type(lease)(lease.job_id, lease.entity_uid, lease.model, lease.version, "a", lease.fence)
        for lease in stolen
    ]

    assert await queue.jobs.release(pretended) == 2
    assert await queue.job("5") == before


async def test_m18_releasing_nothing_returns_0_and_sends_no_query(
    queue: Neo4jUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_session(*_: Any, **__: Any) -> None:
        raise AssertionError("a query was sent")

    monkeypatch.setattr(queue.driver, "session", no_session)

    assert await queue.jobs.release([]) == 0


async def test_m28_a_job_three_times_as_long_as_its_lease_completes_once(
    queue: Neo4jUnderTest,
) -> None:
    [item] = await queue.leased("ada", owner="slow")

    for _ in range(9):
        queue.clock.advance(LEASE / 3)
        assert (await queue.jobs.heartbeat([item.lease], duration=LEASE)).held == (item.lease,)
        assert await queue.jobs.recover_expired(limit=10) == []
        assert (await queue.lease(owner="rival")).jobs == ()
    outcome = await queue.complete(item.lease)

    job = await queue.job("ada")
    assert outcome == [CompletionOutcome.COMPLETED]
    assert (job.fence, job.attempts, job.last_owner) == (1, 1, "slow")


async def test_m32_an_old_fence_changes_nothing_and_is_counted(queue: Neo4jUnderTest) -> None:
    [stale] = await queue.leased("ada", owner="same")
    await queue.expire()
    await queue.jobs.recover_expired(limit=10)
    [fresh] = (await queue.lease(owner="same")).jobs
    [before] = await queue.nodes()

    beat = await queue.jobs.heartbeat([stale.lease], duration=timedelta(minutes=50))
    completed = await queue.complete(stale.lease)
    failed = await queue.fail(stale.lease)
    released = await queue.jobs.release([stale.lease])

    [after] = await queue.nodes()
    del before["_lock"], after["_lock"]
    assert after == before
    assert fresh.lease.fence == stale.lease.fence + 1
    assert beat.lost == (stale.lease,)
    assert (completed, failed, released) == (
        [CompletionOutcome.FENCED],
        [FailureOutcome.FENCED],
        0,
    )
    assert await queue.vector("ada") is None
    assert (await queue.counters())["fenced"] == 4


async def test_m48_m50_completion_cancel_and_recovery_at_once_have_one_winner(
    queue: Neo4jUnderTest,
) -> None:
    uids = [f"e{n}" for n in range(30)]
    items = await queue.leased(*uids)
    await queue.expire()

    async def cancel(job_id: str) -> bool:
        try:
            await queue.admin.cancel_job(job_id, by="operator")
        except TransitionRefusedError:
            return False
        return True

    async def watch() -> None:
        for item in items:
            assert_consistent([await queue.locked_node(item.lease.job_id)])

    async def race(item: LeasedJob) -> tuple[bool, bool]:
        outcome, is_cancelled = await asyncio.gather(
            queue.complete(item.lease), cancel(item.lease.job_id)
        )
        return outcome == [CompletionOutcome.COMPLETED], is_cancelled

    results: list[Any] = await asyncio.gather(
        *(race(item) for item in items),
        *(queue.jobs.recover_expired(limit=10) for _ in range(3)),
        watch(),
    )

    wins = dict(zip(uids, results[:30], strict=True))
    recovered = {job.entity_uid for result in results[30:33] for job in result}
    for uid in uids:
        completed, cancelled = wins[uid]
        job = await queue.job(uid)
        assert (await queue.vector(uid) is not None) == completed == (job.status is COMPLETED)
        # A recovered job is pending, and so may still be cancelled.
        assert completed + (cancelled or uid in recovered) == 1
    assert_consistent(await queue.nodes())


async def test_m52_one_vector_write_per_job(queue: Neo4jUnderTest) -> None:
    [stale] = await queue.leased("ada")
    await queue.expire()
    await queue.jobs.recover_expired(limit=10)
    [fresh] = (await queue.lease(owner="b")).jobs

    outcomes = [
        (await queue.complete(lease, vector=vector_of([float(n), 1, 1, 1])))[0].value
        for n, lease in enumerate([stale.lease, fresh.lease, stale.lease, fresh.lease], 1)
    ]

    assert outcomes == ["fenced", "completed", "fenced", "completed"]
    assert await queue.vector("ada") == [2.0, 1.0, 1.0, 1.0]


async def test_fairness_the_oldest_job_is_not_starved_by_urgent_ones(
    queue: Neo4jUnderTest,
) -> None:
    await queue.given_jobs("old-1", "old-2", priority=-5)
    leased: list[str] = []

    for n in range(20):
        await queue.given_jobs(f"urgent-{n}", f"urgent-{n}b", priority=9)
        [item] = (await queue.lease(limit=1)).jobs
        leased.append(item.lease.entity_uid)

    assert [n for n, uid in enumerate(leased) if uid.startswith("old")] == [9, 19]


async def test_i12_a_lease_repeated_while_the_first_is_in_flight_returns_the_same(
    queue: Neo4jUnderTest,
) -> None:
    await queue.given_jobs(*(f"e{n}" for n in range(30)))

    batches = await asyncio.gather(*(queue.lease(limit=5, request="one") for _ in range(4)))

    assert [len(batch.jobs) for batch in batches] == [5, 5, 5, 5]
    assert len({item.lease for batch in batches for item in batch.jobs}) == 5
    assert (await queue.admin.counts())[PROCESSING] == 5
