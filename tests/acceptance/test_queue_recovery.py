"""Recovery, one test per line of the specification."""

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.fairness import Lane
from embed_pipeline.domain.job import JobFilter, JobStatus
from embed_pipeline.domain.lifecycle import (
    GiveBack,
    GiveUp,
    Retry,
    RetryPolicy,
    after_expiry,
    after_failure,
)
from tests.support.queue_harness import LEASE, Neo4jUnderTest, assert_consistent

SECOND = timedelta(seconds=1)
PENDING, PROCESSING, FAILED = JobStatus.PENDING, JobStatus.PROCESSING, JobStatus.FAILED


async def test_m2_recovery_changes_exactly_the_expired_jobs(queue: Neo4jUnderTest) -> None:
    for uid, status in (
        ("completed", JobStatus.COMPLETED),
        ("failed", FAILED),
        ("cancelled", JobStatus.CANCELLED),
    ):
        await queue.in_state(uid, status)
    await queue.leased("expired")
    queue.clock.advance(LEASE)
    await queue.leased("valid")
    await queue.given_jobs("pending")
    queue.clock.advance(SECOND)
    before = {node["entity_uid"]: node for node in await queue.nodes()}

    recovered = await queue.jobs.recover_expired(limit=100)

    after = {node["entity_uid"]: node for node in await queue.nodes()}
    assert [job.entity_uid for job in recovered] == ["expired"]
    assert {uid for uid in before if before[uid] != after[uid]} == {"expired"}
    job = await queue.job("expired")
    assert (job.status, job.attempts, job.lock_owner, job.lock_until) == (PENDING, 1, None, None)


async def test_m8_m12_an_expired_job_is_leasable_by_any_worker_until_it_is_exhausted(
    queue: Neo4jUnderTest,
) -> None:
    await queue.given_jobs("ada")
    seen = []

    for owner in ("a", "b", "c"):
        [item] = (await queue.lease(owner=owner)).jobs
        await queue.expire()
        [recovered] = await queue.jobs.recover_expired(limit=10)
        seen.append((item.attempts, recovered.status))
        queue.clock.advance(timedelta(hours=1))

    assert seen == [(1, PENDING), (2, PENDING), (3, FAILED)]
    job = await queue.job("ada")
    assert (job.status, job.error) == (FAILED, "lease expired on c")
    assert (await queue.lease()).jobs == ()
    assert (await queue.counters())["exhausted"] == 1


async def test_m12_an_exhausted_job_keeps_its_last_error(queue: Neo4jUnderTest) -> None:
    [item] = await queue.leased("ada")
    await queue.fail(item.lease, message="the provider was down")
    queue.clock.advance(timedelta(hours=1))
    for _ in range(2):
        await queue.lease()
        await queue.expire()
        await queue.jobs.recover_expired(limit=10)
        queue.clock.advance(timedelta(hours=1))

    job = await queue.job("ada")

    assert (job.status, job.error) == (FAILED, "the provider was down")


async def test_m13_a_valid_lock_is_untouched_and_not_leasable(queue: Neo4jUnderTest) -> None:
    await queue.leased("ada")
    queue.clock.advance(LEASE)
    [before] = await queue.nodes()

    recovered = await queue.jobs.recover_expired(limit=10)

    assert recovered == []
    assert await queue.nodes() == [before]
    assert (await queue.lease(owner="other")).jobs == ()


async def test_m27_not_leasable_at_299_seconds_and_leasable_after_300(
    queue: Neo4jUnderTest,
) -> None:
    await queue.leased("ada")

    queue.clock.advance(timedelta(seconds=299))
    early = await queue.jobs.recover_expired(limit=10)
    early_lease = await queue.lease(owner="b")
    queue.clock.advance(timedelta(seconds=2))
    late = await queue.jobs.recover_expired(limit=10)
    [item] = (await queue.lease(owner="b")).jobs

    assert (early, early_lease.jobs) == ([], ())
    assert [job.status for job in late] == [PENDING]
    job = await queue.admin.job_status(item.lease.job_id)
    assert (job.status, item.attempts) == (PROCESSING, 2)


async def test_m30_recovery_is_bounded_and_oldest_first(queue: Neo4jUnderTest) -> None:
    for uid in ("first", "second", "third"):
        await queue.leased(uid)
        queue.clock.advance(SECOND)
    await queue.expire()

    recovered = await queue.jobs.recover_expired(limit=2)

    assert [job.entity_uid for job in recovered] == ["first", "second"]


async def test_m30_two_recoveries_at_once_recover_each_job_once(queue: Neo4jUnderTest) -> None:
    await queue.leased(*(f"e{n}" for n in range(60)))
    await queue.expire()

    both = await asyncio.gather(*(queue.jobs.recover_expired(limit=60) for _ in range(4)))

    ids = [job.job_id for recovered in both for job in recovered]
    assert (len(ids), len(set(ids))) == (60, 60)
    assert (await queue.counters())["recovered"] == 60
    assert_consistent(await queue.nodes())


attempts = st.integers(1, 40)


@given(
    attempts=attempts,
    max_attempts=attempts,
    expiries=st.integers(1, 10),
    roll=st.floats(0, 1),
    base=st.integers(1, 10**6),
)
def test_m31_failure_and_expiry_follow_one_policy(
    attempts: int, max_attempts: int, expiries: int, roll: float, base: int
) -> None:
    policy = RetryPolicy(base=timedelta(milliseconds=base))
    common = {"attempts": attempts, "max_attempts": max_attempts, "policy": policy, "roll": roll}

    failure = after_failure(ErrorCategory.TRANSIENT, **common)
    expiry = after_expiry(expiries=expiries, **common)

    if isinstance(failure, GiveUp) and expiries == 1 and max_attempts > 1:
        assert expiry == GiveBack()
    elif isinstance(failure, GiveUp):
        assert expiry == failure
    elif expiries == 1:
        assert expiry == Retry(timedelta(0))
    else:
        assert expiry == failure


async def test_m31_the_store_applies_the_same_policy_to_both(queue: Neo4jUnderTest) -> None:
    """The second failure and the second expiry wait equally long."""
    [failing] = await queue.leased("failing")
    await queue.fail(failing.lease)
    queue.clock.advance(timedelta(hours=1))
    [failing] = (await queue.lease()).jobs
    await queue.fail(failing.lease)
    failed_at, failing_job = queue.clock.now, await queue.job("failing")

    await queue.leased("expiring")
    await queue.expire()
    await queue.jobs.recover_expired(limit=10)
    assert (await queue.job("expiring")).run_after is None
    await queue.lease(limit=1, lane=Lane.SUSPECT)
    await queue.expire()
    await queue.jobs.recover_expired(limit=10)

    expiring_job = await queue.job("expiring")
    assert failing_job.run_after is not None
    assert expiring_job.run_after is not None
    assert failing_job.run_after - failed_at == expiring_job.run_after - queue.clock.now
    assert failing_job.attempts == expiring_job.attempts == 2


async def test_m41_the_grace_is_respected(queue: Neo4jUnderTest) -> None:
    await queue.leased("ada")
    await queue.expire()

    within = await queue.jobs.recover_expired(limit=10, grace=timedelta(minutes=1))
    after = await queue.jobs.recover_expired(limit=10, grace=timedelta(milliseconds=999))

    assert (len(within), len(after)) == (0, 1)


async def test_m41_processing_without_expiry_is_reported_and_not_changed(
    queue: Neo4jUnderTest,
) -> None:
    await queue.leased("ada")
    await queue.run("MATCH (j:EmbedJob) REMOVE j.lock_until")
    await queue.expire()

    assert await queue.jobs.recover_expired(limit=10) == []

    assert (await queue.queue.metrics.read()).without_lock == 1
    strange = JobFilter(statuses=frozenset({PROCESSING}), has_lock=False)
    assert [job.entity_uid for job in await queue.admin.find_jobs(strange)] == ["ada"]


async def test_m42_recovery_tells_job_owner_heartbeat_and_new_state(
    queue: Neo4jUnderTest,
) -> None:
    [item] = await queue.leased("ada", owner="run-1/a")
    queue.clock.advance(timedelta(minutes=1))
    await queue.jobs.heartbeat([item.lease], duration=LEASE)
    beat = queue.clock.now
    await queue.expire()

    [recovered] = await queue.jobs.recover_expired(limit=10)

    assert recovered.job_id == item.lease.job_id
    assert (recovered.former_owner, recovered.last_heartbeat) == ("run-1/a", beat)
    assert (recovered.status, recovered.expired_at) == (PENDING, beat + LEASE)


async def test_r14_a_job_that_kills_its_worker_fails_and_takes_nobody_along(
    queue: Neo4jUnderTest,
) -> None:
    """Ten jobs are leased together; one of them kills every worker that holds it."""
    await queue.given_jobs("poison", *(f"e{n}" for n in range(9)))

    for worker in range(40):
        batch = await queue.lease(owner=f"worker-{worker}", limit=10)
        if any(item.lease.entity_uid == "poison" for item in batch.jobs):
            await queue.expire()
            await queue.jobs.recover_expired(limit=10)
        elif batch.jobs:
            await queue.complete(*(item.lease for item in batch.jobs))
        queue.clock.advance(timedelta(minutes=20))

    counts = await queue.admin.counts()
    assert counts[JobStatus.COMPLETED] == 9
    assert (await queue.job("poison")).status is FAILED
    assert (await queue.job("poison")).attempts == 3


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_server_clock_that_jumps_leaves_no_job_behind(
    queue: Neo4jUnderTest, hours: int
) -> None:
    await queue.jobs.recover_expired(limit=10)
    [item] = await queue.leased("ada")

    queue.clock.advance(timedelta(hours=hours))
    await queue.jobs.recover_expired(limit=10)
    await queue.expire()
    await queue.jobs.recover_expired(limit=10)
    [again] = (await queue.lease(owner="b")).jobs

    assert again.lease.fence > item.lease.fence
    assert [o.value for o in await queue.complete(item.lease)] == ["fenced"]
