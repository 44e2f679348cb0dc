"""What everybody but a worker may rely on, whatever holds the queue."""

from datetime import timedelta
from typing import Any

import pytest

from embed_pipeline.domain.breaker import PROBE_LASTS, BreakerStatus
from embed_pipeline.domain.errors import (
    ErrorCategory,
    InvalidJobError,
    JobNotFoundError,
    TransitionRefusedError,
)
from embed_pipeline.domain.fairness import Lane
from embed_pipeline.domain.job import JobFilter, JobStatus, NewJob
from embed_pipeline.domain.lifecycle import EnqueueOutcome
from embed_pipeline.domain.results import CompletionOutcome, FailureOutcome
from tests.support.queue_harness import MODEL, QueueUnderTest, hash_for

PENDING, PROCESSING = JobStatus.PENDING, JobStatus.PROCESSING
CREATED, PRESENT = EnqueueOutcome.CREATED, EnqueueOutcome.PRESENT
PROMOTED, REVIVED = EnqueueOutcome.PROMOTED, EnqueueOutcome.REVIVED


async def test_enqueue_says_what_it_did(queue: QueueUnderTest) -> None:
    wish = NewJob("ada", MODEL)

    assert await queue.admin.enqueue([wish]) == [CREATED]
    assert await queue.admin.enqueue([wish]) == [PRESENT]
    assert await queue.admin.enqueue([NewJob("ada", MODEL, priority=3)]) == [PROMOTED]
    assert await queue.admin.enqueue([NewJob("ada", MODEL, priority=1)]) == [PRESENT]
    assert (await queue.job("ada")).priority == 3


async def test_m117_a_job_that_is_put_off_waits_until_somebody_is_in_a_hurry(
    queue: QueueUnderTest,
) -> None:
    later = NewJob("ada", MODEL, priority=-1, delay=timedelta(minutes=5))
    await queue.put_entity("ada")

    assert await queue.admin.enqueue([later]) == [CREATED]
    assert (await queue.lease()).jobs == ()
    assert await queue.admin.enqueue([later]) == [PRESENT]
    assert await queue.admin.enqueue([NewJob("ada", MODEL, priority=-2)]) == [PROMOTED]
    assert [job.lease.entity_uid for job in (await queue.lease()).jobs] == ["ada"]


async def test_m117_what_was_put_off_is_leased_when_its_time_has_come(
    queue: QueueUnderTest,
) -> None:
    await queue.in_state("ada", JobStatus.COMPLETED)
    await queue.admin.enqueue(
        [NewJob("ada", MODEL, priority=-1, text_hash="x", delay=timedelta(minutes=5))]
    )
    assert (await queue.lease()).jobs == ()

    queue.clock.advance(timedelta(minutes=5))

    [leased] = (await queue.lease()).jobs
    assert (await queue.job("ada")).priority == -1
    await queue.complete(leased.lease)
    await queue.admin.enqueue([NewJob("ada", MODEL, text_hash="y")])
    assert (await queue.job("ada")).priority == 0


async def test_enqueue_answers_in_the_order_of_the_wishes(queue: QueueUnderTest) -> None:
    await queue.admin.enqueue([NewJob("b", MODEL)])

    outcomes = await queue.admin.enqueue([NewJob(uid, MODEL) for uid in ("c", "b", "a", "c")])

    assert outcomes == [CREATED, PRESENT, CREATED, PRESENT]


@pytest.mark.parametrize("status", [JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED])
async def test_a_changed_text_revives_a_finished_job(
    queue: QueueUnderTest, status: JobStatus
) -> None:
    await queue.in_state("ada", status)
    same = NewJob("ada", MODEL, text_hash=hash_for("ada"))
    other = NewJob("ada", MODEL, text_hash=hash_for("ada", "other"))

    assert await queue.admin.enqueue([same]) == [PRESENT]
    assert await queue.admin.enqueue([other]) == [REVIVED]

    job = await queue.job("ada")
    assert (job.status, job.attempts, job.error, job.cancelled_by) == (PENDING, 0, None, None)
    assert job.text_hash == hash_for("ada", "other")
    assert (await queue.counters())["revived"] == 1


async def test_a_job_that_the_queue_cancelled_is_revived_by_the_next_enqueue(
    queue: QueueUnderTest,
) -> None:
    [item] = await queue.leased("ada")
    await queue.delete_entity("ada")
    await queue.jobs.load([item.lease])
    await queue.put_entity("ada")

    assert await queue.admin.enqueue([NewJob("ada", MODEL)]) == [REVIVED]


async def test_force_revives_an_unchanged_job(queue: QueueUnderTest) -> None:
    await queue.in_state("ada", JobStatus.COMPLETED)

    outcome = await queue.admin.enqueue([NewJob("ada", MODEL, force=True)])

    assert outcome == [REVIVED]
    assert (await queue.job("ada")).fence == 1


async def test_a_newer_version_supersedes_older_pending_jobs(queue: QueueUnderTest) -> None:
    await queue.given_jobs("ada", "bob")
    [item] = (await queue.lease(limit=1)).jobs

    await queue.admin.enqueue([NewJob("ada", MODEL, 3), NewJob("bob", MODEL, 3)])

    assert item.lease.entity_uid == "ada"
    assert (await queue.job("ada")).status is PROCESSING
    old = await queue.job("bob")
    assert (old.status, old.error) == (JobStatus.CANCELLED, "superseded by version 3")
    assert (await queue.job("bob", version=3)).status is PENDING


@pytest.mark.parametrize(
    "wish",
    [
        {"entity_uid": ""},
        {"entity_uid": "x" * 513},
        {"entity_uid": 7.5},
        {"model": ""},
        {"version": "1"},
        {"version": True},
        {"version": 1.5},
        {"version": -1},
        {"priority": 2_000_000},
        {"priority": "high"},
    ],
)
def test_a_key_that_the_database_would_take_for_another_is_refused(wish: dict[str, Any]) -> None:
    with pytest.raises(InvalidJobError):
        NewJob(**{"entity_uid": "ada", "model": MODEL, **wish})


async def test_recovery_takes_expired_leases_oldest_first(queue: QueueUnderTest) -> None:
    for uid in ("c", "a", "b"):
        await queue.leased(uid)
        queue.clock.advance(timedelta(seconds=1))
    await queue.expire()

    first = await queue.jobs.recover_expired(limit=2)
    rest = await queue.jobs.recover_expired(limit=2)

    assert [job.entity_uid for job in first + rest] == ["c", "a", "b"]
    assert (await queue.counters())["recovered"] == 3


async def test_m71_no_job_fails_through_an_expiry_that_it_shared(queue: QueueUnderTest) -> None:
    await queue.given_jobs("ada")
    for _ in range(2):
        [item] = (await queue.lease()).jobs
        await queue.fail(item.lease)
        queue.clock.advance(timedelta(hours=1))
    await queue.given_jobs("eve")
    shared = (await queue.lease()).jobs
    assert {(item.lease.entity_uid, item.attempts) for item in shared} == {("ada", 3), ("eve", 1)}
    await queue.expire()

    await queue.jobs.recover_expired(limit=10)

    job = await queue.job("ada")
    assert (job.status, job.attempts, job.expiries) == (PENDING, 2, 1)
    # Its last attempt is made again, alone, and that one counts.
    [alone] = (await queue.lease(lane=Lane.SUSPECT)).jobs
    assert alone.lease.entity_uid == "ada"
    assert alone.is_last_attempt
    await queue.expire()
    await queue.jobs.recover_expired(limit=10)
    job = await queue.job("ada")
    assert (job.status, job.attempts, job.error) == (JobStatus.FAILED, 3, "boom")


async def test_leases_of_a_dead_run_are_taken_without_waiting(queue: QueueUnderTest) -> None:
    await queue.leased("ada", owner="run-1/a")
    await queue.leased("bob", owner="run-10/a")

    recovered = await queue.admin.recover_owner("run-1")

    assert [job.entity_uid for job in recovered] == ["ada"]
    job = await queue.job("ada")
    assert (job.status, job.attempts, job.expiries) == (PENDING, 1, 1)
    assert (await queue.job("bob")).status is PROCESSING


async def test_leases_of_a_stopped_run_are_given_back(queue: QueueUnderTest) -> None:
    await queue.leased("ada", owner="run-1/a")
    await queue.leased("bob", owner="run-10/a")

    assert await queue.admin.release_owner("run-1") == 1

    job = await queue.job("ada")
    assert (job.status, job.attempts, job.expiries) == (PENDING, 0, 0)
    assert (await queue.job("bob")).lock_owner == "run-10/a"


async def test_cancel_by_filter_previews_first(queue: QueueUnderTest) -> None:
    await queue.leased("ada")
    await queue.given_jobs("bob")
    await queue.in_state("cyd", JobStatus.CANCELLED)

    preview = await queue.admin.cancel(JobFilter(), by="operator", preview=True)
    before = await queue.admin.counts()
    done = await queue.admin.cancel(JobFilter(), by="operator", reason="not needed")

    assert (preview.count, preview.is_preview, done.count) == (2, True, 2)
    assert before[JobStatus.CANCELLED] == 1
    assert (await queue.job("bob")).cancelled_by == "operator"
    assert (await queue.job("bob")).error == "not needed"


async def test_what_people_write_is_kept_without_the_key_that_they_pasted(
    queue: QueueUnderTest,
) -> None:
    await queue.given_jobs("ada", "bob")
    words = "see password=hunter2hunter2"

    await queue.admin.cancel_job((await queue.job("ada")).id, by=words, reason=words)
    await queue.admin.cancel(JobFilter(), by=words, reason=words)
    await queue.switch.pause(by=words)

    for uid in ("ada", "bob"):
        job = await queue.job(uid)
        assert (job.cancelled_by, job.error) == ("see password=***", "see password=***")
    assert (await queue.switch.state()).paused_by == "see password=***"


@pytest.mark.parametrize("status", [JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED])
async def test_a_finished_job_cannot_be_cancelled(queue: QueueUnderTest, status: JobStatus) -> None:
    job = await queue.in_state("ada", status)

    with pytest.raises(TransitionRefusedError, match=status):
        await queue.admin.cancel_job(job.id, by="operator")


async def test_a_cancelled_job_writes_no_vector(queue: QueueUnderTest) -> None:
    cancelled, sibling = await queue.leased("ada", "bob")
    await queue.admin.cancel_job(cancelled.lease.job_id, by="operator")

    outcomes = await queue.complete(cancelled.lease, sibling.lease)

    assert outcomes == [CompletionOutcome.FENCED, CompletionOutcome.COMPLETED]
    assert await queue.vector("ada") is None


async def test_retry_gives_failed_jobs_a_fresh_start(queue: QueueUnderTest) -> None:
    await queue.in_state("bad", JobStatus.FAILED)
    [item] = await queue.leased("ada")
    await queue.fail(item.lease, category=ErrorCategory.CRITICAL, is_pinned=True)

    preview = await queue.admin.retry_failed(JobFilter(), preview=True)
    done = await queue.admin.retry_failed(JobFilter())
    forced = await queue.admin.retry_failed(
        JobFilter(categories=frozenset({ErrorCategory.PERMANENT}))
    )

    assert (preview.count, done.count, forced.count) == (1, 1, 1)
    job = await queue.job("ada")
    assert (job.status, job.attempts, job.error, job.processed_at) == (PENDING, 0, None, None)


async def test_jobs_are_found_by_what_an_operator_knows(queue: QueueUnderTest) -> None:
    await queue.leased("ada", owner="run-1/a")
    await queue.in_state("bad", JobStatus.FAILED)
    await queue.given_jobs("bob")

    async def found(**conditions: Any) -> list[str]:
        jobs = await queue.admin.find_jobs(JobFilter(**conditions))
        return sorted(job.entity_uid for job in jobs)

    assert await found() == ["ada", "bad", "bob"]
    assert await found(statuses=frozenset({PROCESSING})) == ["ada"]
    assert await found(owner="run-1") == ["ada"]
    assert await found(owner="run") == []
    assert await found(categories=frozenset({ErrorCategory.PERMANENT})) == ["bad"]
    assert await found(entity_uids=("bob", "nobody")) == ["bob"]
    assert await found(model="other") == []
    assert await found(ended_before=queue.clock.now + timedelta(seconds=1)) == ["bad"]
    assert await found(has_lock=True) == ["ada"]


async def test_pages_follow_each_other(queue: QueueUnderTest) -> None:
    await queue.given_jobs("a", "b", "c")

    first = await queue.admin.find_jobs(JobFilter(), limit=2)
    second = await queue.admin.find_jobs(JobFilter(), limit=2, after=first[-1].id)

    assert len({job.id for job in first + second}) == 3


async def test_an_unknown_job_is_not_found(queue: QueueUnderTest) -> None:
    with pytest.raises(JobNotFoundError):
        await queue.admin.job_status("nobody")
    with pytest.raises(JobNotFoundError):
        await queue.admin.cancel_job("nobody", by="operator")


async def test_counts_have_a_number_for_every_state(queue: QueueUnderTest) -> None:
    assert await queue.admin.counts() == dict.fromkeys(JobStatus, 0)


async def test_a_paused_queue_gives_out_nothing_but_lets_go_on(queue: QueueUnderTest) -> None:
    [item] = await queue.leased("ada")
    await queue.given_jobs("bob")

    await queue.switch.pause(by="operator")
    batch = await queue.lease()

    assert (batch.jobs, batch.refusal) == ((), "paused by operator")
    assert await queue.complete(item.lease) == [CompletionOutcome.COMPLETED]
    assert (await queue.switch.state()).is_paused
    await queue.switch.resume()
    assert len((await queue.lease()).jobs) == 1


async def test_the_breaker_lets_one_probe_through(queue: QueueUnderTest) -> None:
    await queue.given_jobs("a", "b", "c")

    breaker = await queue.switch.open_breaker("key refused")
    refused = await queue.lease()
    queue.clock.advance(timedelta(minutes=1))
    probe = await queue.lease(limit=3)
    others = await queue.lease(limit=3)

    assert (breaker.status, breaker.since) == (
        BreakerStatus.OPEN,
        queue.clock.now - timedelta(minutes=1),
    )
    assert refused.refusal == "breaker open: key refused"
    assert (len(probe.jobs), others.jobs) == (1, ())
    assert (await queue.switch.state()).breaker.status is BreakerStatus.HALF_OPEN
    await queue.switch.close_breaker()
    assert len((await queue.lease(limit=3)).jobs) == 2


async def test_every_failed_probe_doubles_the_pause(queue: QueueUnderTest) -> None:
    await queue.given_jobs("a", "b")
    pauses = []

    for _ in range(3):
        breaker = await queue.switch.open_breaker("quota gone")
        together = await queue.switch.open_breaker("quota gone")
        assert together == breaker
        assert breaker.probe_at is not None
        pauses.append((breaker.probe_at - queue.clock.now) // timedelta(minutes=1))
        queue.clock.advance(breaker.probe_at - queue.clock.now)
        [probe] = (await queue.lease(limit=5)).jobs
        await queue.jobs.release([probe.lease])

    assert pauses == [1, 2, 4]


async def test_m72_while_the_provider_is_down_nobody_gets_a_job_and_one_at_a_time_asks(
    queue: QueueUnderTest,
) -> None:
    await queue.given_jobs("a", "b")

    breaker = await queue.switch.open_breaker("503", is_outage=True)
    refused = await queue.lease()
    queue.clock.advance(timedelta(seconds=10))
    probe, others = await queue.lease(), await queue.lease()
    queue.clock.advance(PROBE_LASTS)
    replaced = await queue.lease()

    assert breaker.is_outage
    assert [batch.jobs for batch in (refused, probe, others, replaced)] == [()] * 4
    asked = [batch.is_probe for batch in (refused, probe, others, replaced)]
    assert asked == [False, True, False, True]
    assert refused.refusal == str(breaker)
    assert str(breaker).startswith("provider down since 2030-01-01 00:00:00 UTC, next try at 2030-")
    await queue.switch.close_breaker()
    assert len((await queue.lease()).jobs) == 2
    assert not (await queue.switch.state()).breaker.is_outage


async def test_m72_an_outage_costs_no_attempt_and_leaves_its_error(queue: QueueUnderTest) -> None:
    [item] = await queue.leased("ada")

    outcome = await queue.fail(item.lease, is_outage=True)

    job = await queue.job("ada")
    assert outcome == [FailureOutcome.GIVEN_BACK]
    assert (job.status, job.attempts, job.run_after) == (JobStatus.PENDING, 0, None)
    assert job.error is not None


async def test_a_fault_after_an_outage_has_a_time_and_a_pause_of_its_own(
    queue: QueueUnderTest,
) -> None:
    for _ in range(3):
        await queue.switch.open_breaker("503", is_outage=True)
        queue.clock.advance(timedelta(minutes=5))
        await queue.lease()

    breaker = await queue.switch.open_breaker("key refused")

    assert (breaker.is_outage, breaker.failures, breaker.since) == (False, 1, queue.clock.now)
    assert breaker.probe_at == queue.clock.now + timedelta(minutes=1)


async def test_a_probe_that_vanished_is_replaced_after_its_lease(queue: QueueUnderTest) -> None:
    await queue.given_jobs("a", "b")
    await queue.switch.open_breaker("quota gone")
    queue.clock.advance(timedelta(minutes=1))
    assert len((await queue.lease(limit=5)).jobs) == 1

    await queue.expire()

    assert len((await queue.lease(limit=5)).jobs) == 1


async def test_m86_a_forced_job_is_known_by_its_lease(queue: QueueUnderTest) -> None:
    first, second = await queue.leased("ada", "bob")
    await queue.complete(first.lease, second.lease)

    await queue.admin.enqueue(
        [NewJob("ada", MODEL, force=True), NewJob("bob", MODEL, is_lost=True)]
    )
    leases = [item.lease for item in (await queue.lease()).jobs]

    assert {lease.entity_uid for lease in leases} == {"ada", "bob"}
    assert {x.entity_uid for x in await queue.jobs.find_forced(leases)} == {"ada"}
