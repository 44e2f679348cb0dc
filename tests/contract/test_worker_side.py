"""What a worker may rely on, whatever holds the queue."""

from datetime import timedelta

import pytest

from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.fairness import Lane
from embed_pipeline.domain.job import JobStatus, NewJob
from embed_pipeline.domain.results import CompletionOutcome, EntityFate, FailureOutcome, LeaseBatch
from tests.support.queue_harness import LEASE, MODEL, NUMBERS, VECTOR, QueueUnderTest, hash_for

PENDING, PROCESSING, COMPLETED = JobStatus.PENDING, JobStatus.PROCESSING, JobStatus.COMPLETED


async def test_a_lease_gives_owner_fence_and_expiry(queue: QueueUnderTest) -> None:
    await queue.given_jobs("ada")

    batch = await queue.lease(owner="run-1/a", limit=5)

    [item] = batch.jobs
    assert batch.lock_until == queue.clock.now + LEASE
    assert (item.lease.owner, item.lease.fence) == ("run-1/a", 1)
    assert item.attempts == 1
    job = await queue.job("ada")
    assert (job.status, job.attempts, job.run_id) == (PROCESSING, 1, "run-1")
    assert job.lock_until == queue.clock.now + LEASE


async def test_a_leased_job_is_not_leased_again(queue: QueueUnderTest) -> None:
    await queue.leased("ada")

    assert (await queue.lease(owner="run-2")).jobs == ()


async def test_a_repeated_request_returns_what_it_holds(queue: QueueUnderTest) -> None:
    await queue.given_jobs("ada", "bob", "cyd")

    first = await queue.lease(limit=2, request="same")
    again = await queue.lease(limit=2, request="same")

    assert {x.lease for x in first.jobs} == {x.lease for x in again.jobs}
    assert len((await queue.lease(limit=5)).jobs) == 1


async def test_urgent_jobs_go_first(queue: QueueUnderTest) -> None:
    await queue.given_jobs("low", priority=-1)
    await queue.given_jobs("normal")
    await queue.given_jobs("high", priority=5)

    batch = await queue.lease(limit=3)

    assert [x.lease.entity_uid for x in batch.jobs] == ["high", "normal", "low"]


async def test_a_heartbeat_extends_every_lease(queue: QueueUnderTest) -> None:
    leases = [x.lease for x in await queue.leased("ada", "bob")]
    queue.clock.advance(timedelta(minutes=4))

    beat = await queue.jobs.heartbeat(leases, duration=LEASE)

    assert set(beat.held) == set(leases)
    assert (await queue.job("bob")).lock_until == queue.clock.now + LEASE


@pytest.mark.parametrize("how", ["complete", "fail", "release"])
async def test_a_heartbeat_that_crosses_a_completion_loses_nothing(
    queue: QueueUnderTest, how: str
) -> None:
    [ended, held] = [item.lease for item in await queue.leased("ended", "held")]
    endings = {"complete": queue.complete, "fail": queue.fail}
    if how == "release":
        await queue.jobs.release([ended])
    else:
        await endings[how](ended)

    beat = await queue.jobs.heartbeat([ended, held], duration=LEASE)

    assert (beat.held, beat.cancelled, beat.lost) == ((held,), (), ())
    assert beat.settled == {ended: {"complete": "completed", "fail": "retry"}.get(how, how)}
    assert (await queue.counters())["fenced"] == 0


async def test_a_failure_after_the_own_completion_is_refused_but_no_lost_lease(
    queue: QueueUnderTest,
) -> None:
    [item] = await queue.leased("ada")
    await queue.complete(item.lease)

    assert await queue.fail(item.lease) == [FailureOutcome.FENCED]

    assert (await queue.job("ada")).status is COMPLETED
    assert (await queue.counters())["fenced"] == 0


async def test_a_heartbeat_tells_lost_from_cancelled(queue: QueueUnderTest) -> None:
    held, cancelled = await queue.leased("ada", "bob")
    [lost] = await queue.leased("cyd", owner="run-2")
    await queue.admin.cancel_job(cancelled.lease.job_id, by="operator")
    await queue.admin.release_owner("run-2")

    beat = await queue.jobs.heartbeat([held.lease, cancelled.lease, lost.lease], duration=LEASE)

    assert (beat.held, beat.cancelled, beat.lost) == (
        (held.lease,),
        (cancelled.lease,),
        (lost.lease,),
    )
    assert (await queue.counters())["fenced"] == 2


async def test_a_check_changes_nothing(queue: QueueUnderTest) -> None:
    [item] = await queue.leased("ada")
    before = await queue.job("ada")

    assert (await queue.jobs.check([item.lease])).held == (item.lease,)
    assert await queue.job("ada") == before


async def test_loading_gives_the_text_of_the_entity(queue: QueueUnderTest) -> None:
    [item] = await queue.leased("ada")

    [loaded] = await queue.jobs.load([item.lease])

    assert loaded.fate is EntityFate.CURRENT
    assert loaded.properties["name"] == "ada"


async def test_of_a_text_that_is_longer_than_asked_for_only_the_size_is_loaded(
    queue: QueueUnderTest,
) -> None:
    long, short = await queue.leased("ada", "bob")
    await queue.put_entity("ada", "x" * 100)

    first = await queue.jobs.load([long.lease, short.lease], longest=50)
    [again] = await queue.jobs.load([long.lease], longest=first[0].size)

    assert [x.fate for x in first] == [EntityFate.LONG, EntityFate.CURRENT]
    assert first[0].properties == {}
    assert first[0].size == again.size > 100
    assert again.properties["observations"] == ["x" * 100]
    assert await queue.statuses("ada", "bob") == [JobStatus.PROCESSING] * 2


async def test_loading_cancels_jobs_with_nothing_left_to_embed(queue: QueueUnderTest) -> None:
    gone, newer = await queue.leased("ada", "bob")
    await queue.delete_entity("ada")
    await queue.put_entity("bob", version=4)

    loaded = await queue.jobs.load([gone.lease, newer.lease])

    assert [x.fate for x in loaded] == [EntityFate.GONE, EntityFate.SUPERSEDED]
    assert (await queue.job("ada")).error == "entity deleted"
    assert (await queue.job("bob")).error == "superseded by version 4"
    assert await queue.statuses("ada", "bob") == [JobStatus.CANCELLED] * 2


async def test_completion_stores_the_vector(queue: QueueUnderTest) -> None:
    [item] = await queue.leased("ada")

    assert await queue.complete(item.lease) == [CompletionOutcome.COMPLETED]

    job = await queue.job("ada")
    assert (job.status, job.lock_owner, job.tokens) == (COMPLETED, None, 3)
    assert job.text_hash == hash_for("ada")
    assert await queue.vector("ada") == pytest.approx(NUMBERS)


async def test_completion_without_a_vector_removes_the_old_one(queue: QueueUnderTest) -> None:
    [item] = await queue.leased("ada")
    await queue.complete(item.lease)
    await queue.put_entity("ada", "other")
    await queue.admin.enqueue([NewJob("ada", MODEL, text_hash=hash_for("ada", "other"))])
    [again] = (await queue.lease()).jobs

    await queue.complete(again.lease, text="other", vector=None)

    assert await queue.vector("ada") is None
    assert (await queue.job("ada")).status is COMPLETED


async def test_completion_of_a_newer_version_is_superseded(queue: QueueUnderTest) -> None:
    [item] = await queue.leased("ada")
    await queue.put_entity("ada", version=2)

    assert await queue.complete(item.lease) == [CompletionOutcome.SUPERSEDED]
    assert await queue.vector("ada") is None
    assert await queue.statuses("ada") == [JobStatus.CANCELLED]


async def test_completion_of_a_deleted_entity_is_gone(queue: QueueUnderTest) -> None:
    [item] = await queue.leased("ada")
    await queue.delete_entity("ada")

    assert await queue.complete(item.lease) == [CompletionOutcome.GONE]
    assert await queue.statuses("ada") == [JobStatus.CANCELLED]


async def test_completion_for_another_text_gives_the_job_back(queue: QueueUnderTest) -> None:
    [item] = await queue.leased("ada")
    await queue.put_entity("ada", "changed without a version")

    assert await queue.complete(item.lease) == [CompletionOutcome.MOVED]

    job = await queue.job("ada")
    assert (job.status, job.attempts) == (PENDING, 0)
    assert await queue.vector("ada") is None


async def test_one_batch_may_hold_every_outcome(queue: QueueUnderTest) -> None:
    done, newer, gone, moved, stolen = await queue.leased("a", "b", "c", "d", "e")
    await queue.put_entity("b", version=2)
    await queue.delete_entity("c")
    await queue.put_entity("d", "moved")
    await queue.jobs.release([stolen.lease])

    outcomes = await queue.complete(stolen.lease, moved.lease, gone.lease, newer.lease, done.lease)

    assert outcomes == [
        CompletionOutcome.FENCED,
        CompletionOutcome.MOVED,
        CompletionOutcome.GONE,
        CompletionOutcome.SUPERSEDED,
        CompletionOutcome.COMPLETED,
    ]


async def test_a_repeated_completion_is_the_same_completion(queue: QueueUnderTest) -> None:
    [item] = await queue.leased("ada")
    await queue.complete(item.lease)

    assert await queue.complete(item.lease) == [CompletionOutcome.COMPLETED]
    assert (await queue.counters())["fenced"] == 0


async def test_a_transient_failure_waits_and_comes_back(queue: QueueUnderTest) -> None:
    [item] = await queue.leased("ada")

    assert await queue.fail(item.lease) == [FailureOutcome.RETRY]

    job = await queue.job("ada")
    assert (job.status, job.attempts, job.error) == (PENDING, 1, "boom")
    assert job.run_after == queue.clock.now + timedelta(seconds=5)
    assert (await queue.lease()).jobs == ()
    queue.clock.advance(timedelta(seconds=5))
    assert len((await queue.lease()).jobs) == 1


async def test_a_permanent_failure_is_final(queue: QueueUnderTest) -> None:
    [item] = await queue.leased("ada")

    assert await queue.fail(item.lease, category=ErrorCategory.PERMANENT) == [FailureOutcome.FAILED]
    assert (await queue.job("ada")).status is JobStatus.FAILED


async def test_a_critical_failure_costs_the_job_nothing(queue: QueueUnderTest) -> None:
    [item] = await queue.leased("ada")

    outcome = await queue.fail(item.lease, category=ErrorCategory.CRITICAL)

    job = await queue.job("ada")
    assert outcome == [FailureOutcome.GIVEN_BACK]
    assert (job.status, job.attempts) == (PENDING, 0)
    assert (job.error, job.error_category) == ("boom", ErrorCategory.CRITICAL)


async def test_a_critical_failure_pinned_to_one_job_fails_it(queue: QueueUnderTest) -> None:
    [item] = await queue.leased("ada")

    outcome = await queue.fail(item.lease, category=ErrorCategory.CRITICAL, is_pinned=True)

    assert outcome == [FailureOutcome.FAILED]


async def test_a_failure_of_an_old_text_does_not_fail_the_new_one(queue: QueueUnderTest) -> None:
    [item] = await queue.leased("ada")
    await queue.put_entity("ada", "new")
    await queue.admin.enqueue([NewJob("ada", MODEL, text_hash=hash_for("ada", "new"))])

    outcome = await queue.fail(
        item.lease, category=ErrorCategory.PERMANENT, text_hash=hash_for("ada")
    )

    assert outcome == [FailureOutcome.GIVEN_BACK]
    assert await queue.statuses("ada") == [PENDING]


async def test_a_repeated_failure_counts_once(queue: QueueUnderTest) -> None:
    [item] = await queue.leased("ada")
    await queue.fail(item.lease)
    before = await queue.job("ada")

    assert await queue.fail(item.lease) == [FailureOutcome.RETRY]
    assert await queue.job("ada") == before


async def test_release_refunds_the_attempt_and_keeps_the_place(queue: QueueUnderTest) -> None:
    first, _ = await queue.leased("ada", "bob")
    await queue.given_jobs("cyd")

    assert await queue.jobs.release([first.lease]) == 1

    job = await queue.job("ada")
    assert (job.status, job.attempts, job.lock_owner, job.lock_until) == (PENDING, 0, None, None)
    assert [x.lease.entity_uid for x in (await queue.lease(limit=1)).jobs] == ["ada"]


async def test_a_repeated_release_says_the_same(queue: QueueUnderTest) -> None:
    [item] = await queue.leased("ada")

    assert [await queue.jobs.release([item.lease]) for _ in range(2)] == [1, 1]
    assert (await queue.job("ada")).attempts == 0


async def test_an_expired_lease_that_nobody_took_may_still_complete(queue: QueueUnderTest) -> None:
    [item] = await queue.leased("ada")
    await queue.expire()

    assert await queue.complete(item.lease) == [CompletionOutcome.COMPLETED]


async def test_worker_that_lost_its_lease_cannot_overwrite_the_new_holder(
    queue: QueueUnderTest,
) -> None:
    [stale] = await queue.leased("ada", owner="same-name")
    await queue.expire()
    await queue.jobs.recover_expired(limit=10)
    [fresh] = (await queue.lease(owner="same-name")).jobs

    assert fresh.lease.fence > stale.lease.fence
    assert await queue.complete(stale.lease) == [CompletionOutcome.FENCED]
    assert await queue.fail(stale.lease) == [FailureOutcome.FENCED]
    assert await queue.jobs.release([stale.lease]) == 0
    assert (await queue.jobs.heartbeat([stale.lease], duration=LEASE)).lost == (stale.lease,)
    assert await queue.complete(fresh.lease) == [CompletionOutcome.COMPLETED]
    assert (await queue.counters())["fenced"] == 4


def kinds_of(batch: LeaseBatch) -> str:
    """The first letters of the entities' names."""
    return "".join(sorted(item.lease.entity_uid[0] for item in batch.jobs))


async def test_suspects_are_leased_only_with_suspects_and_starve_nobody(
    queue: QueueUnderTest,
) -> None:
    await queue.leased(*(f"s{n}" for n in range(9)))
    await queue.expire()
    await queue.jobs.recover_expired(limit=10)
    await queue.given_jobs(*(f"h{n}" for n in range(6)))

    batches = [await queue.lease(limit=3) for _ in range(6)]

    assert [kinds_of(batch) for batch in batches] == ["sss", "hhh", "sss", "hhh", "sss", ""]


async def test_m71_at_most_64_suspects_are_leased_at_once(queue: QueueUnderTest) -> None:
    await queue.leased(*(f"s{n}" for n in range(100)))
    await queue.expire()
    await queue.jobs.recover_expired(limit=100)

    batches = [await queue.lease(limit=2_048) for _ in range(3)]

    assert [len(batch.jobs) for batch in batches] == [64, 36, 0]


async def test_m71_the_last_attempt_of_a_suspect_is_made_alone(queue: QueueUnderTest) -> None:
    await queue.leased("s1", "s2", "s3")
    await queue.expire()
    await queue.jobs.recover_expired(limit=10)
    [_, _, _] = (await queue.lease(limit=10)).jobs
    await queue.expire()
    await queue.jobs.recover_expired(limit=10)
    queue.clock.advance(timedelta(hours=1))
    await queue.leased("s4", "s5", owner="another")
    await queue.expire()
    await queue.jobs.recover_expired(limit=10)

    batches = [await queue.lease(limit=10) for _ in range(5)]

    ready = [sorted(item.lease.entity_uid for item in batch.jobs) for batch in batches]
    assert sorted(ready) == [[], ["s1"], ["s2"], ["s3"], ["s4", "s5"]]
    alone = [item for batch in batches for item in batch.jobs if item.is_last_attempt]
    assert len(alone) == 3


async def test_a_worker_may_ask_for_one_lane(queue: QueueUnderTest) -> None:
    await queue.leased("s1")
    await queue.expire()
    await queue.jobs.recover_expired(limit=10)
    await queue.given_jobs("h1")

    healthy = await queue.lease(lane=Lane.HEALTHY)
    suspects = await queue.lease(lane=Lane.SUSPECT)

    assert [x.lease.entity_uid for x in healthy.jobs] == ["h1"]
    assert [x.lease.entity_uid for x in suspects.jobs] == ["s1"]


async def test_a_worker_gets_only_jobs_of_its_model(queue: QueueUnderTest) -> None:
    await queue.given_jobs("ada")
    await queue.admin.enqueue([NewJob("ada", "other-model", priority=9)])

    [item] = (await queue.lease(model="other-model")).jobs

    assert item.lease.model == "other-model"
    assert (await queue.lease(model="third-model")).jobs == ()
    assert [item.lease.model for item in (await queue.lease()).jobs] == [MODEL]


async def test_a_vector_is_found_by_the_hash_of_its_text(queue: QueueUnderTest) -> None:
    [item] = await queue.leased("ada")
    await queue.complete(item.lease)
    digest = hash_for("ada")
    size = {"dimensions": len(NUMBERS)}

    assert await queue.jobs.find_vectors([digest], model=MODEL, **size) == {digest: VECTOR}
    assert await queue.jobs.find_vectors([digest], model="other-model", **size) == {}
    assert await queue.jobs.find_vectors(["0" * 32], model=MODEL, **size) == {}
