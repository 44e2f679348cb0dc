"""What whoever watches a queue may rely on, whatever holds it."""

from datetime import timedelta

from embed_pipeline.domain.coverage import Coverage, CoverageKey
from embed_pipeline.domain.job import JobStatus, NewJob
from embed_pipeline.domain.results import Completion
from tests.support.queue_harness import DIMENSIONS, MODEL, VECTOR, QueueUnderTest, hash_for

HOUR = timedelta(hours=1)


async def test_the_backlog_of_an_empty_queue_is_nothing(queue: QueueUnderTest) -> None:
    backlog = await queue.backlog()

    assert (backlog.due, backlog.is_more, backlog.next_due) == (0, False, None)
    assert (backlog.pending, backlog.processing, backlog.at) == (0, 0, queue.clock.now)


async def test_the_backlog_is_counted_up_to_a_limit(queue: QueueUnderTest) -> None:
    await queue.given_jobs("a", "b", "c")

    counted = [await queue.backlog(most=most) for most in (2, 3, 4)]

    assert [(backlog.due, backlog.is_more) for backlog in counted] == [
        (2, True),
        (3, False),
        (3, False),
    ]


async def test_the_backlog_is_that_of_one_model_and_the_totals_are_of_all(
    queue: QueueUnderTest,
) -> None:
    await queue.leased("leased")
    await queue.given_jobs("mine")
    await queue.admin.enqueue([NewJob("other", "other-model"), NewJob("third", "other-model")])

    backlog = await queue.backlog()

    assert (backlog.due, backlog.pending, backlog.processing) == (1, 3, 1)
    assert (await queue.backlog("other-model")).due == 2
    assert (await queue.backlog("no-model")).due == 0


async def test_a_retry_is_in_the_backlog_when_its_time_has_come(queue: QueueUnderTest) -> None:
    first, second = await queue.leased("a", "b")
    await queue.fail(first.lease)
    queue.clock.advance(timedelta(seconds=2))
    await queue.fail(second.lease)
    run_after = (await queue.job("a")).run_after
    assert run_after is not None

    early = await queue.backlog()
    queue.clock.advance(run_after - queue.clock.now)
    late = await queue.backlog()

    assert (early.due, early.next_due) == (0, run_after)
    assert (late.due, late.next_due) == (1, (await queue.job("b")).run_after)


async def test_the_backlog_says_how_long_the_oldest_due_job_waits(queue: QueueUnderTest) -> None:
    assert (await queue.backlog()).oldest_due is None
    await queue.given_jobs("a")
    queue.clock.advance(HOUR)
    await queue.given_jobs("b")
    queue.clock.advance(HOUR)

    waits = (await queue.backlog()).oldest_due

    assert waits is not None
    assert waits - 2 * HOUR < timedelta(seconds=1)
    assert (await queue.backlog("other-model")).oldest_due is None


async def test_a_retry_waits_from_the_time_when_it_may_be_tried(queue: QueueUnderTest) -> None:
    [leased] = await queue.leased("a")
    await queue.fail(leased.lease)
    run_after = (await queue.job("a")).run_after
    assert run_after is not None

    early = await queue.backlog()
    queue.clock.advance(run_after - queue.clock.now + timedelta(minutes=3))
    late = await queue.backlog()

    assert (early.oldest_due, late.oldest_due) == (None, timedelta(minutes=3))


async def test_a_suspect_is_in_the_backlog(queue: QueueUnderTest) -> None:
    await queue.leased("ada")
    await queue.expire()
    await queue.jobs.recover_expired(limit=10)
    queue.clock.advance(HOUR)
    # A lease for any model brings retries whose time has come into their lanes.
    await queue.lease(model="other-model")

    assert (await queue.job("ada")).is_suspect
    assert (await queue.backlog()).due == 1


async def test_the_backlog_says_whether_the_queue_is_open(queue: QueueUnderTest) -> None:
    await queue.switch.pause(by="operator")
    await queue.switch.open_breaker("key refused")

    state = (await queue.backlog()).state

    assert (state.is_paused, state.paused_by) == (True, "operator")
    assert state.breaker.reason == "key refused"


async def test_every_recovery_is_counted_and_the_last_one_known(queue: QueueUnderTest) -> None:
    before = await queue.last_recovery()
    await queue.jobs.recover_expired(limit=1)
    await queue.admin.record_recovery()
    queue.clock.advance(HOUR)
    await queue.jobs.recover_expired(limit=1)
    await queue.admin.record_recovery()
    at = queue.clock.now
    queue.clock.advance(HOUR)

    assert before is None
    assert await queue.last_recovery() == at
    assert (await queue.counters())["recoveries"] == 2


async def test_m79_expired_leases_are_listed_oldest_first_and_not_changed(
    queue: QueueUnderTest,
) -> None:
    await queue.leased("old")
    queue.clock.advance(HOUR)
    await queue.leased("young")
    await queue.expire()
    await queue.leased("alive")
    before = [await queue.job(uid) for uid in ("old", "young", "alive")]

    found = await queue.admin.find_expired()

    assert [job.entity_uid for job in found] == ["old", "young"]
    assert [job.entity_uid for job in await queue.admin.find_expired(limit=1)] == ["old"]
    assert [job.entity_uid for job in await queue.admin.find_expired(grace=HOUR)] == ["old"]
    assert [await queue.job(uid) for uid in ("old", "young", "alive")] == before


async def test_m77_a_lease_is_the_first_sign_of_life(queue: QueueUnderTest) -> None:
    await queue.leased("ada")

    assert (await queue.job("ada")).heartbeat_at == (await queue.job("ada")).started_at
    assert (await queue.job("ada")).heartbeat_at == queue.clock.now


async def test_the_age_of_the_oldest_ended_job_is_known(queue: QueueUnderTest) -> None:
    await queue.in_state("first", JobStatus.CANCELLED)
    queue.clock.advance(2 * HOUR)
    await queue.in_state("second", JobStatus.FAILED)
    await queue.given_jobs("pending")
    queue.clock.advance(23 * HOUR - timedelta(milliseconds=1))

    with_both = await queue.oldest_ended()
    await queue.purge(timedelta(days=1))
    with_one = await queue.oldest_ended()

    # Writing a job down takes a millisecond.
    assert with_both == 25 * HOUR + timedelta(milliseconds=1)
    assert with_one == 23 * HOUR


async def test_without_ended_jobs_there_is_no_oldest(queue: QueueUnderTest) -> None:
    await queue.leased("processing")
    await queue.given_jobs("pending")

    assert await queue.oldest_ended() is None


async def test_a_job_opened_again_has_not_ended(queue: QueueUnderTest) -> None:
    job = await queue.in_state("ada", JobStatus.COMPLETED)

    await queue.admin.enqueue([NewJob("ada", MODEL, job.version, force=True)])

    assert await queue.oldest_ended() is None


async def test_a_scan_tells_types_models_and_lengths(queue: QueueUnderTest) -> None:
    await queue.in_state("current", JobStatus.COMPLETED)
    await queue.in_state("stale", JobStatus.COMPLETED)
    await queue.put_entity("stale", "other text")
    await queue.put_entity("missing")

    page = await queue.reconcile()

    assert page.rows == {
        CoverageKey("test", MODEL, Coverage.CURRENT): 1,
        CoverageKey("test", MODEL, Coverage.STALE): 1,
        CoverageKey("test", None, Coverage.MISSING): 1,
    }
    assert page.dimensions == {DIMENSIONS: 2}
    assert page.in_pieces == 0


async def test_m119_a_scan_tells_how_many_texts_are_in_pieces(queue: QueueUnderTest) -> None:
    for uid in ("long", "long and stale", "whole"):
        [item] = await queue.leased(uid)
        pieces = 1 if uid == "whole" else 3
        row = Completion(item.lease, VECTOR, hash_for(uid), tokens=8, pieces=pieces)
        await queue.jobs.complete([row])
    await queue.put_entity("long and stale", "other text")

    page = await queue.reconcile()

    assert page.coverage[Coverage.CURRENT] == 2
    assert page.in_pieces == 1
    assert page.pieces == 3


async def test_m119_the_figures_of_pieces_outlive_their_jobs(queue: QueueUnderTest) -> None:
    await queue.put_entity("long")
    await queue.given_jobs("long")
    [item] = (await queue.lease()).jobs
    await queue.jobs.complete([Completion(item.lease, VECTOR, hash_for("long"), pieces=3)])
    queue.clock.advance(timedelta(days=31))

    assert await queue.purge(timedelta(days=30)) == 1

    page = await queue.reconcile()
    assert (page.in_pieces, page.pieces) == (1, 3)
