"""What users of other queues ran into, each told by its issue: none of it happens here.

Two of them need more than a store: a run that only looks alive (dagster #4937) and a fresh instance
started by several (dagster #27390) are in ``tests/e2e``; one bad text that sends a whole batch back
(pgedge-vectorizer #78) is ``test_one_poisoned_text_fails_alone`` of the drain.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.results import CompletionOutcome, FailureOutcome
from embed_pipeline.domain.vector import vector_of
from embed_pipeline.store import recover as recovering
from tests.support.queue_harness import LEASE, NUMBERS, VECTOR, Neo4jUnderTest

OTHER_VECTOR = vector_of([0.1, 0.2, 0.3, 0.4])


def between_scan_and_lock(
    monkeypatch: pytest.MonkeyPatch, event: Callable[[], Awaitable[Any]]
) -> None:
    """Let something happen when the next recovery has picked its candidates."""
    lock_jobs = recovering.lock_jobs

    async def late(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(recovering, "lock_jobs", lock_jobs)
        await event()
        return await lock_jobs(*args, **options)

    monkeypatch.setattr(recovering, "lock_jobs", late)


async def test_river_1302_recovery_leaves_a_job_that_completed_after_the_scan(
    queue: Neo4jUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    [item] = await queue.leased("ada")
    await queue.expire()
    between_scan_and_lock(monkeypatch, lambda: queue.complete(item.lease))

    recovered = await queue.jobs.recover_expired(limit=10)

    assert recovered == []
    assert await queue.statuses("ada") == [JobStatus.COMPLETED]


async def test_river_1302_recovery_leaves_a_lease_that_was_extended_after_the_scan(
    queue: Neo4jUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    [item] = await queue.leased("ada")
    await queue.expire()
    between_scan_and_lock(monkeypatch, lambda: queue.jobs.heartbeat([item.lease], duration=LEASE))

    recovered = await queue.jobs.recover_expired(limit=10)

    assert recovered == []
    assert await queue.complete(item.lease) == [CompletionOutcome.COMPLETED]


async def test_procrastinate_1408_a_recovery_that_stalls_does_not_stop_the_next(
    queue: Neo4jUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.leased("ada", "bob")
    await queue.expire()
    has_stalled, goes_on = asyncio.Event(), asyncio.Event()

    async def stall() -> None:
        has_stalled.set()
        await goes_on.wait()

    between_scan_and_lock(monkeypatch, stall)
    stalled = asyncio.create_task(queue.jobs.recover_expired(limit=10))
    await has_stalled.wait()

    recovered = await queue.jobs.recover_expired(limit=10)
    goes_on.set()

    assert {job.entity_uid for job in recovered} == {"ada", "bob"}
    assert await stalled == []


async def test_procrastinate_1518_a_worker_of_the_same_name_does_not_keep_old_leases_alive(
    queue: Neo4jUnderTest,
) -> None:
    [old] = await queue.leased("ada", owner="pod-1")
    queue.clock.advance(LEASE / 2)
    [new] = await queue.leased("bob", owner="pod-1")

    queue.clock.advance(LEASE / 2)
    await queue.jobs.heartbeat([new.lease], duration=LEASE)
    queue.clock.advance(timedelta(seconds=1))
    recovered = await queue.jobs.recover_expired(limit=10)

    assert [job.job_id for job in recovered] == [old.lease.job_id]


async def test_river_1318_a_page_of_jobs_that_cannot_come_back_does_not_block_the_rest(
    queue: Neo4jUnderTest,
) -> None:
    """Five that are exhausted and five that have no expiry stand before five others."""
    exhausted, broken, others = ([f"{kind}{n}" for n in range(5)] for kind in "xyz")
    await queue.leased(*exhausted)
    await queue.run("MATCH (j:EmbedJob) SET j.max_attempts = 1")
    await queue.leased(*broken)
    await queue.run("MATCH (j:EmbedJob) WHERE j.entity_uid STARTS WITH 'y' SET j.lock_until = null")
    queue.clock.advance(timedelta(seconds=1))
    await queue.leased(*others)
    await queue.expire()

    first = await queue.jobs.recover_expired(limit=5)
    second = await queue.jobs.recover_expired(limit=5)

    assert {job.entity_uid for job in first} == set(exhausted)
    assert {job.entity_uid for job in second} == set(others)


async def test_project_nomad_1269_a_worker_taken_for_dead_leaves_no_second_vector(
    queue: Neo4jUnderTest,
) -> None:
    [stale] = await queue.leased("ada", owner="pod-1")
    await queue.expire()
    await queue.jobs.recover_expired(limit=10)
    [fresh] = (await queue.lease(owner="pod-1")).jobs

    first = await queue.complete(stale.lease, vector=OTHER_VECTOR)
    second = await queue.complete(fresh.lease, vector=VECTOR)

    assert (first, second) == ([CompletionOutcome.FENCED], [CompletionOutcome.COMPLETED])
    assert await queue.vector("ada") == NUMBERS


async def test_bull_1416_a_stale_worker_does_not_write_its_error_over_the_new_owner(
    queue: Neo4jUnderTest,
) -> None:
    """Although both have the same name, as pods and repeated runs have."""
    [stale] = await queue.leased("ada", owner="pod-1")
    await queue.expire()
    await queue.jobs.recover_expired(limit=10)
    [fresh] = (await queue.lease(owner="pod-1")).jobs

    outcome = await queue.fail(stale.lease, message="from the grave")

    job = await queue.job("ada")
    assert outcome == [FailureOutcome.FENCED]
    assert (job.status, job.lock_owner, job.error) == (JobStatus.PROCESSING, "pod-1", None)
    assert await queue.complete(fresh.lease) == [CompletionOutcome.COMPLETED]
