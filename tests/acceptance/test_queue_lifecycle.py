"""The life of a job, one test per line of the specification."""

import asyncio
import itertools
import json
import logging
from datetime import timedelta

import pytest

from embed_pipeline.domain.errors import (
    CleanupFailedError,
    ConfigurationError,
    ErrorCategory,
    TransitionRefusedError,
)
from embed_pipeline.domain.job import Job, JobFilter, JobStatus, Lease, NewJob
from embed_pipeline.domain.lifecycle import MOVES, TRANSITIONS, EnqueueOutcome, Move
from embed_pipeline.domain.results import CompletionOutcome, FailureOutcome
from embed_pipeline.operations.recovery import recover_all
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import purge as cypher_purge
from tests.support.queue_harness import MODEL, Neo4jUnderTest, enqueue_in, hash_for

PENDING, PROCESSING, COMPLETED = JobStatus.PENDING, JobStatus.PROCESSING, JobStatus.COMPLETED
FAILED, CANCELLED = JobStatus.FAILED, JobStatus.CANCELLED
WEEK = timedelta(days=7)


async def test_m6_fifty_enqueues_at_once_leave_one_job_and_no_error(queue: Neo4jUnderTest) -> None:
    wish = NewJob("ada", MODEL, 3)

    outcomes = await asyncio.gather(*(queue.admin.enqueue([wish]) for _ in range(50)))

    tally = [outcome for [outcome] in outcomes]
    assert len(await queue.nodes()) == 1
    assert tally.count(EnqueueOutcome.CREATED) == 1
    assert tally.count(EnqueueOutcome.PRESENT) == 49


async def test_m6_entity_and_job_commit_together_or_not_at_all(queue: Neo4jUnderTest) -> None:
    async def write(uid: str, *, commit: bool) -> None:
        async with (
            queue.driver.session(database=queue.database) as session,
            await session.begin_transaction() as tx,
        ):
            await tx.run("CREATE (:Entity {name: $uid, version: 1})", uid=uid)
            outcome = await enqueue_in(queue.queue, tx, [NewJob(uid, MODEL)])
            assert outcome == [EnqueueOutcome.CREATED]
            await (tx.commit() if commit else tx.rollback())

    await write("kept", commit=True)
    await write("dropped", commit=False)

    assert [node["entity_uid"] for node in await queue.nodes()] == ["kept"]


async def test_m10_retry_clears_every_error_and_lock_field(queue: Neo4jUnderTest) -> None:
    [item] = await queue.leased("ada")
    await queue.fail(item.lease, category=ErrorCategory.CRITICAL, is_pinned=True, stack="stack")
    await queue.in_state("bad", FAILED)

    preview = await queue.admin.retry_failed(JobFilter(), preview=True)
    untouched = await queue.statuses("ada", "bad")
    done = await queue.admin.retry_failed(JobFilter())

    assert (preview.count, preview.job_ids) == (1, (item.lease.job_id,))
    assert untouched == [FAILED, FAILED]
    assert done.count == 1
    [node] = [node for node in await queue.nodes() if node["entity_uid"] == "ada"]
    assert (node["status"], node["attempts"], node["expiries"]) == ("pending", 0, 0)
    assert not {"error", "error_category", "error_stack", "processed_at"} & set(node)
    assert not {"lock_owner", "lock_until", "run_after"} & set(node)
    assert (await queue.job("bad")).status is FAILED


@pytest.mark.parametrize("use_apoc", [True, False])
async def test_m11_m22_cleanup_deletes_only_terminal_jobs_past_the_retention(
    queue: Neo4jUnderTest, use_apoc: bool
) -> None:
    for status in (COMPLETED, FAILED, CANCELLED):
        await queue.in_state(f"old-{status}", status)
    queue.clock.advance(WEEK)
    for status in (COMPLETED, FAILED, CANCELLED, PROCESSING, PENDING):
        await queue.in_state(f"young-{status}", status)
    queue.clock.advance(timedelta(minutes=1))

    dry = await queue.queue.purge.purge_terminal(retention=WEEK, dry_run=True)
    still = await queue.nodes()
    report = await queue.queue.purge.purge_terminal(retention=WEEK, use_apoc=use_apoc)

    assert (dry.deleted, dry.is_dry_run, len(still)) == (3, True, 8)
    assert (report.deleted, report.failed_batches, report.used_apoc) == (3, 0, use_apoc)
    left = {node["entity_uid"] for node in await queue.nodes()}
    assert left == {f"young-{status}" for status in JobStatus}


@pytest.mark.parametrize("use_apoc", [True, False])
async def test_m22_a_batch_that_fails_fails_the_run(
    queue: Neo4jUnderTest, monkeypatch: pytest.MonkeyPatch, use_apoc: bool
) -> None:
    await queue.in_state("ada", COMPLETED)
    queue.clock.advance(WEEK + timedelta(days=1))
    broken = "WITH job, 1 / (size(job.id) - size(job.id)) AS boom\n"
    for name in ("INNER", "PURGE_WITHOUT_APOC"):
        text = getattr(cypher_purge, name)
        text = text.replace("SET job._lock = $token\n", f"SET job._lock = $token\n{broken}", 1)
        monkeypatch.setattr(cypher_purge, name, text)

    with pytest.raises(CleanupFailedError, match="rolled back"):
        await queue.queue.purge.purge_terminal(retention=WEEK, use_apoc=use_apoc)

    assert len(await queue.nodes()) == 1


async def test_m22_a_retention_that_deletes_everything_is_refused(queue: Neo4jUnderTest) -> None:
    with pytest.raises(ConfigurationError):
        await queue.queue.purge.purge_terminal(retention=-WEEK)


async def test_m20_a_transient_failure_is_not_leased_before_its_time(
    queue: Neo4jUnderTest,
) -> None:
    [item] = await queue.leased("ada")
    await queue.fail(item.lease)
    due = (await queue.job("ada")).run_after
    assert due is not None

    queue.clock.advance(due - queue.clock.now - timedelta(milliseconds=1))
    early = await queue.lease()
    queue.clock.advance(timedelta(milliseconds=1))
    before = await queue.job("ada")
    await queue.switch.pause(by="limit")
    waiting = await queue.lease()
    after = await queue.job("ada")
    await queue.switch.resume()

    assert (early.jobs, waiting.jobs) == ((), ())
    assert (after.attempts, after.run_after) == (before.attempts, before.run_after)
    assert len((await queue.lease()).jobs) == 1


async def test_m24_a_failed_job_holds_everything_but_secrets(queue: Neo4jUnderTest) -> None:
    secret = "correct-horse-battery"
    queue.config = QueueConfig(secrets=(secret,))
    queue.__post_init__()
    [item] = await queue.leased("ada", owner="run-7/step/1")
    message = f"401 for key sk-abc123def456ghi789 and {secret}"
    stack = f'File "x.py"\n  Authorization: Bearer abcdefghijklmnop\n  password={secret}'

    await queue.fail(item.lease, category=ErrorCategory.PERMANENT, message=message, stack=stack)

    job = await queue.job("ada")
    assert (job.status, job.error_category, job.attempts) == (FAILED, ErrorCategory.PERMANENT, 1)
    assert (job.last_owner, job.run_id) == ("run-7/step/1", "run-7")
    assert job.processed_at == queue.clock.now
    assert job.error is not None
    assert job.error.startswith("401 for key")
    assert job.error_stack is not None
    assert "x.py" in job.error_stack
    entry = json.loads(job.error_history[0])
    assert (entry["attempt"], entry["owner"]) == (1, "run-7/step/1")
    stored = json.dumps(await queue.nodes())
    for canary in (secret, "sk-abc123", "abcdefghijklmnop"):
        assert canary not in stored


async def test_m25_the_third_transient_failure_is_final(queue: Neo4jUnderTest) -> None:
    await queue.given_jobs("ada")
    outcomes = []
    for _ in range(3):
        [item] = (await queue.lease()).jobs
        outcomes += await queue.fail(item.lease)
        queue.clock.advance(timedelta(hours=1))

    job = await queue.job("ada")
    assert outcomes == [FailureOutcome.RETRY, FailureOutcome.RETRY, FailureOutcome.FAILED]
    assert (job.status, job.attempts, job.run_after) == (FAILED, 3, None)
    assert len(job.error_history) == 3
    assert (await queue.lease()).jobs == ()
    queue.clock.advance(WEEK)
    assert await queue.purge(WEEK) == 1


async def move(queue: Neo4jUnderTest, job: Job, verb: Move, lease: Lease) -> None:
    """Try a move on a job through the operation that makes it."""
    match verb:
        case Move.LEASE:
            await queue.lease()
        case Move.COMPLETE:
            await queue.complete(lease)
        case Move.RETRY:
            await queue.fail(lease)
        case Move.EXHAUST:
            await queue.fail(lease, category=ErrorCategory.PERMANENT)
        case Move.RELEASE:
            await queue.jobs.release([lease])
        case Move.RECOVER:
            await queue.expire()
            await queue.jobs.recover_expired(limit=10)
        case Move.CANCEL:
            await queue.admin.cancel_job(job.id, by="operator")
        case Move.RETRY_FAILED:
            everything = frozenset(ErrorCategory)
            await queue.admin.retry_failed(JobFilter(categories=everything))
        case Move.REVIVE:
            for text in ("text", "other"):
                await queue.admin.enqueue([NewJob("ada", MODEL, text_hash=hash_for("ada", text))])


@pytest.mark.parametrize(("before", "verb"), list(itertools.product(JobStatus, Move)))
async def test_m39_only_the_transitions_of_the_table_succeed(
    queue: Neo4jUnderTest, before: JobStatus, verb: Move
) -> None:
    if before is PENDING:
        # A worker that has given the job back still remembers its lease.
        [item] = await queue.leased("ada")
        await queue.jobs.release([item.lease])
        lease = item.lease
    else:
        job = await queue.in_state("ada", before)
        lease = (await queue.leased("other"))[0].lease
        lease = type(lease)(
            job.id, "ada", MODEL, 1, job.lock_owner or job.last_owner or "nobody", job.fence
        )
    job = await queue.job("ada")
    sources, after = MOVES[verb]

    try:
        await move(queue, job, verb, lease)
    except TransitionRefusedError:
        assert before not in sources

    now = (await queue.job("ada")).status
    assert now is (after if before in sources else before)
    assert now is before or (before, now) in TRANSITIONS


async def test_m39_the_table_is_the_one_of_the_specification() -> None:
    expected = {
        (PENDING, PROCESSING),
        (PENDING, CANCELLED),
        (PROCESSING, PENDING),
        (PROCESSING, COMPLETED),
        (PROCESSING, FAILED),
        (PROCESSING, CANCELLED),
        (FAILED, PENDING),
        (CANCELLED, PENDING),
        (COMPLETED, PENDING),
    }
    assert expected == TRANSITIONS


async def test_m43_a_cancelled_job_gets_no_vector_and_its_siblings_go_on(
    queue: Neo4jUnderTest,
) -> None:
    first, second = await queue.leased("ada", "bob")

    await queue.admin.cancel_job(first.lease.job_id, by="operator", reason="wrong text")
    with pytest.raises(TransitionRefusedError, match="cancelled"):
        await queue.admin.cancel_job(first.lease.job_id, by="operator")
    beat = await queue.jobs.check([first.lease, second.lease])
    outcomes = await queue.complete(first.lease, second.lease)

    assert (beat.cancelled, beat.held) == ((first.lease,), (second.lease,))
    assert outcomes == [CompletionOutcome.FENCED, CompletionOutcome.COMPLETED]
    assert await queue.vector("ada") is None
    assert (await queue.job("ada")).cancelled_by == "operator"


async def test_m51_no_job_leaves_but_through_the_retention(queue: Neo4jUnderTest) -> None:
    deleted = 0
    for day in range(1, 16):
        await queue.given_jobs(f"a{day}", f"b{day}")
        items = (await queue.lease(limit=4, owner=f"run-{day}")).jobs
        for item, action in zip(items, ("complete", "fail", "cancel", "vanish"), strict=False):
            if action == "complete":
                await queue.complete(item.lease)
            elif action == "fail":
                await queue.fail(item.lease, category=ErrorCategory.PERMANENT)
            elif action == "cancel":
                await queue.admin.cancel_job(item.lease.job_id, by="operator")
        queue.clock.advance(timedelta(days=1))
        await queue.jobs.recover_expired(limit=10)
        await queue.purge(WEEK)
        counts, counters = await queue.admin.counts(), await queue.counters()
        deleted = sum(counters[f"deleted_{s}"] for s in (COMPLETED, FAILED, CANCELLED))
        assert 2 * day == sum(counts.values()) + deleted

    assert deleted > 0


async def test_m51_a_job_opened_again_during_the_cleanup_is_kept(
    queue: Neo4jUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outer match of the clean-up has already seen the job when it is opened again."""
    await queue.in_state("ada", COMPLETED)
    await queue.in_state("bob", COMPLETED)
    queue.clock.advance(WEEK + timedelta(days=1))
    await queue.admin.enqueue([NewJob("ada", MODEL, force=True)])
    monkeypatch.setattr(
        cypher_purge, "OUTER", "MATCH (job:EmbedJob) WHERE $last > 0 RETURN job.id AS id"
    )

    report = await queue.queue.purge.purge_terminal(retention=WEEK, use_apoc=True)

    assert report.deleted == 1
    assert [node["entity_uid"] for node in await queue.nodes()] == ["ada"]


@pytest.mark.parametrize("use_apoc", [True, False], ids=["apoc", "plain"])
async def test_each_state_may_have_a_retention_of_its_own(
    queue: Neo4jUnderTest, use_apoc: bool
) -> None:
    day = timedelta(days=1)
    ended = (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)
    for status in ended:
        await queue.in_state(f"old {status}", status)
    queue.clock.advance(10 * day)
    for status in ended:
        await queue.in_state(f"young {status}", status)
    kept = dict.fromkeys(ended, 20 * day) | {JobStatus.FAILED: 7 * day}

    report = await queue.queue.purge.purge_terminal(retention=kept, use_apoc=use_apoc)

    assert report.deleted == 1
    left = {job.entity_uid for job in await queue.admin.find_jobs(JobFilter())}
    assert "old failed" not in left
    assert len(left) == 5


async def test_m80_cancel_and_recovery_name_their_jobs(
    queue: Neo4jUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="embed_pipeline")
    [item, other] = await queue.leased("ada", "eve", owner="run-1/host")
    await queue.given_jobs("one", "two")
    one, two = await queue.job("one"), await queue.job("two")

    await queue.admin.cancel_job(one.id, by="operator")
    await queue.admin.cancel(JobFilter(ids=(two.id,)), by="operator")
    await queue.expire()
    await recover_all(queue.queue, grace=timedelta(0))

    assert f"job={one.id} cancelled by=operator" in caplog.messages
    assert f"cancelled jobs=1 ids={two.id}" in caplog.messages
    for lease in (item.lease, other.lease):
        assert f"job={lease.job_id} recovered from owner=run-1/host" in caplog.text
