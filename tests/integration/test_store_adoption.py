"""Jobs that others wrote or edited: Memento's worker, the requirements' queries, people."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString

import pytest

from embed_pipeline.domain.checks import ACCOUNTED
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.health import Objectives, Reading, examine
from embed_pipeline.domain.job import JobFilter, JobStatus, NewJob
from embed_pipeline.domain.lifecycle import EnqueueOutcome
from embed_pipeline.operations.scan import Scan
from embed_pipeline.store import adoption
from embed_pipeline.store.database import to_ms
from tests.support.queue_harness import LEASE, MODEL, Neo4jUnderTest, assert_consistent

FOUR = ["pending", "processing", "completed", "failed"]
"""The states of requirement 001."""

REQUIRED_NODE: LiteralString = """
CREATE (:EmbedJob {
  id: randomUUID(), entity_uid: $uid, model: $model, version: $version, status: $status,
  priority: 1, created_at: $now - 1000, processed_at: $processed_at, lock_owner: $owner,
  lock_until: $until, error: $error, attempts: $attempts, max_attempts: 3})
"""
"""Exactly the properties that requirement 001 lists; no label and no property of ours."""

REQUIRED_RECOVERY: LiteralString = """
MATCH (job:EmbedJob)
WHERE job.status = 'processing'
  AND job.lock_until < timestamp()
SET job.status = 'pending',
    job.lock_owner = null,
    job.lock_until = null
RETURN count(job) as recovered
"""
"""Requirement 000, decision 2, to the letter."""

REQUIRED_RESET: LiteralString = """
MATCH (job:EmbedJob)
WHERE job.status = 'failed'
SET job.status = 'pending', job.error = null, job.attempts = 0
RETURN count(job) AS reset
"""
"""What requirement 001 calls resetting failed jobs."""

MEMENTO_LEASE: LiteralString = """
MATCH (job:EmbedJob)
WHERE job.status = 'pending' AND (job.lock_until IS NULL OR job.lock_until < timestamp())
WITH job ORDER BY job.priority DESC, job.created_at ASC LIMIT 10
SET job.status = 'processing', job.lock_owner = 'worker-1-x', job.lock_until = $until,
    job.attempts = job.attempts + 1
RETURN count(job) AS jobs
"""
MEMENTO_COMPLETE: LiteralString = """
MATCH (job:EmbedJob {lock_owner: 'worker-1-x'}) WHERE job.status = 'processing'
SET job.status = 'completed', job.processed_at = $now, job.lock_owner = null, job.lock_until = null
"""
MEMENTO_FAIL: LiteralString = """
MATCH (job:EmbedJob {lock_owner: 'worker-1-x'}) WHERE job.status = 'processing'
SET job.status = 'failed', job.processed_at = $now, job.lock_owner = null, job.lock_until = null,
    job.error = 'gone', job.error_category = 'permanent', job.error_stack = 'at index.ts'
"""
MEMENTO_RELEASE: LiteralString = """
MATCH (job:EmbedJob {lock_owner: 'worker-1-x'}) WHERE job.status = 'processing'
SET job.status = 'pending', job.lock_owner = null, job.lock_until = null
"""
MEMENTO_ENQUEUE: LiteralString = """
MERGE (j:EmbedJob {entity_uid: $uid, model: $model, version: '1'})
  ON CREATE SET j.id = randomUUID(), j.status = 'pending', j.priority = 1,
    j.created_at = timestamp(), j.attempts = 0, j.max_attempts = 3
"""
"""memento-mcp-extended 0.3.9.14, Neo4jJobStore.ts."""


@pytest.fixture
def queue(queue: Neo4jUnderTest) -> Neo4jUnderTest:
    """A queue whose time is past for the server, as ``timestamp()`` of others has it."""
    queue.clock.now = datetime(2020, 1, 1, tzinfo=UTC)
    return queue


async def given_required(
    queue: Neo4jUnderTest, uid: str, status: str, *, version: object = 1, **more: Any
) -> None:
    now = to_ms(queue.clock.now)
    is_leased, has_ended = status == "processing", status in ("completed", "failed")
    await queue.put_entity(uid)
    await queue.run(
        REQUIRED_NODE,
        **{
            "uid": uid,
            "model": MODEL,
            "version": version,
            "status": status,
            "now": now,
            "processed_at": now if has_ended else None,
            "owner": "worker-7" if is_leased else None,
            "until": now + LEASE // timedelta(milliseconds=1) if is_leased else None,
            "error": "it broke" if status == "failed" else None,
            "attempts": 0 if status == "pending" else 1,
            **more,
        },
    )


async def scanned(queue: Neo4jUnderTest) -> None:
    await Scan.begin(queue.queue.reconciler(MODEL)).go_on()


async def accounted(queue: Neo4jUnderTest) -> bool | None:
    day = timedelta(days=1)
    metrics = await queue.queue.metrics.read()
    reading = Reading(MODEL, 4, None, None, metrics, None)
    verdicts = examine(reading, Objectives(day, day, 30 * day, day, 1, 95))
    return next(verdict.passed for verdict in verdicts if verdict.check is ACCOUNTED)


async def assert_usable(queue: Neo4jUnderTest, uid: str, status: str) -> None:
    """The job goes on from its state like any other."""
    job = await queue.job(uid)
    assert job.status == status
    match status:
        case "processing":
            assert (await queue.lease()).jobs == ()
            await queue.expire()
            [recovered] = await queue.jobs.recover_expired(limit=10)
            assert recovered.former_owner == "worker-7"
        case "failed":
            assert (await queue.admin.retry_failed(JobFilter())).count == 1
        case "completed":
            assert (await queue.lease()).jobs == ()
            await queue.admin.enqueue([NewJob(uid, MODEL, force=True)])
    [item] = (await queue.lease()).jobs
    assert item.lease.entity_uid == uid
    assert [str(outcome) for outcome in await queue.complete(item.lease)] == ["completed"]


@pytest.mark.parametrize("status", FOUR)
async def test_m74_m76_a_node_of_requirement_001_is_a_job_within_one_scan(
    queue: Neo4jUnderTest, status: str
) -> None:
    await given_required(queue, "ada", status)
    assert await accounted(queue) is False

    await scanned(queue)

    # The scan opens what was completed without a vector of ours; the rest keeps its state.
    now = "pending" if status == "completed" else status
    counts = await queue.admin.counts()
    assert counts == {**dict.fromkeys(JobStatus, 0), JobStatus(now): 1}
    assert [job.entity_uid for job in await queue.admin.find_jobs(JobFilter())] == ["ada"]
    assert_consistent(await queue.nodes())
    assert await accounted(queue) is True
    await assert_usable(queue, "ada", now)


async def test_m74_recovery_adopts_them_too(queue: Neo4jUnderTest) -> None:
    for status in FOUR:
        await given_required(queue, status, status)

    assert await queue.jobs.recover_expired(limit=10) == []

    assert [await queue.job(status) for status in FOUR]
    assert await queue.statuses(*FOUR) == FOUR
    assert_consistent(await queue.nodes())
    assert (await queue.counters())["adopted"] == 4
    assert [item.lease.entity_uid for item in (await queue.lease()).jobs] == ["pending"]


async def test_m74_a_node_with_nothing_but_entity_and_status(queue: Neo4jUnderTest) -> None:
    """The scenario of requirement 001 names no more than that."""
    await queue.put_entity("ada")
    await queue.run(
        "CREATE (:EmbedJob {entity_uid: 'ada', model: $model, status: 'pending'})", model=MODEL
    )

    await scanned(queue)

    [node] = await queue.nodes()
    assert_consistent([node])
    assert node["version"] == 1
    await assert_usable(queue, "ada", "pending")


async def test_m74_before_it_is_adopted_a_job_can_be_read_and_enqueued(
    queue: Neo4jUnderTest,
) -> None:
    for status in (*FOUR, "retrying"):
        await given_required(queue, status, status)
        assert (await queue.job(status)).status == ("failed" if status == "retrying" else status)

        assert await queue.admin.enqueue([NewJob(status, MODEL)]) == [EnqueueOutcome.PRESENT]

    assert_consistent(await queue.nodes())
    unknown = await queue.job("retrying")
    assert unknown.error == "its status was 'retrying', which is none of a job"


async def test_m74_pages_are_bounded(
    queue: Neo4jUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in {"PAGE": 2, "AT_ONCE": 3, "JOBS_PER_WALK": 4}.items():
        monkeypatch.setattr(adoption, name, size)
    for number in range(11):
        await given_required(queue, f"e{number}", "pending")

    assert await queue.queue.adoption.strays() == 3
    await scanned(queue)

    assert (await queue.admin.counts())[JobStatus.PENDING] == 11
    assert_consistent(await queue.nodes())


@pytest.mark.parametrize("by", ["scan", "recovery"])
async def test_m75_the_requirements_own_recovery_query(queue: Neo4jUnderTest, by: str) -> None:
    await queue.leased("ada")
    assert await queue.run(REQUIRED_RECOVERY) == [{"recovered": 1}]
    assert await accounted(queue) is False

    if by == "scan":
        await scanned(queue)
    else:
        await queue.jobs.recover_expired(limit=10)

    assert await accounted(queue) is True
    assert_consistent(await queue.nodes())
    [item] = (await queue.lease()).jobs
    assert (item.attempts, item.is_suspect) == (2, True)


async def test_m75_a_job_that_kills_its_workers_ends_under_that_query_too(
    queue: Neo4jUnderTest,
) -> None:
    await queue.given_jobs("ada")
    for _ in range(3):
        await queue.expire()
        assert len((await queue.lease()).jobs) == 1
        await queue.run(REQUIRED_RECOVERY)
        await scanned(queue)

    job = await queue.job("ada")
    assert (job.status, job.attempts) == (JobStatus.FAILED, 3)


async def test_m71_m75_no_job_fails_through_an_expiry_that_it_shared(queue: Neo4jUnderTest) -> None:
    """Whoever takes the lease away: the first expiry gives the last attempt back."""
    await queue.given_jobs("ada", "poison")
    await queue.run("MATCH (job:EmbedJob) SET job.attempts = 2")
    assert len((await queue.lease()).jobs) == 2
    await queue.run(REQUIRED_RECOVERY)
    await scanned(queue)
    assert [(await queue.job(uid)).attempts for uid in ("ada", "poison")] == [2, 2]

    [alone] = (await queue.lease()).jobs
    await queue.run(REQUIRED_RECOVERY)
    await scanned(queue)

    failed = await queue.job(alone.lease.entity_uid)
    [other] = (await queue.lease()).jobs
    assert (failed.status, failed.attempts) == (JobStatus.FAILED, 3)
    assert other.lease != alone.lease
    assert (other.attempts, other.is_suspect) == (3, True)


async def test_m75_after_a_second_expiry_a_job_waits_as_recovery_would_let_it(
    queue: Neo4jUnderTest,
) -> None:
    await queue.given_jobs("ada")
    for _ in range(2):
        assert len((await queue.lease()).jobs) == 1
        await queue.run(REQUIRED_RECOVERY)
        await scanned(queue)

    assert (await queue.lease()).jobs == ()
    assert (await queue.job("ada")).run_after == queue.clock.now + queue.config.retry.delay(2, 0)
    assert_consistent(await queue.nodes())


async def test_m75_a_newer_text_asked_for_under_the_lease_is_still_tried(
    queue: Neo4jUnderTest,
) -> None:
    await queue.given_jobs("ada")
    await queue.run("MATCH (job:EmbedJob) SET job.attempts = 2, job.expiries = 1")
    assert len((await queue.lease()).jobs) == 1
    await queue.admin.enqueue([NewJob("ada", MODEL, text_hash="of a newer text")])
    await queue.run(REQUIRED_RECOVERY)
    assert await queue.jobs.recover_expired(limit=10) == []

    job = await queue.job("ada")
    assert (job.status, job.attempts) == (JobStatus.PENDING, 2)


async def test_m75_a_worker_whose_job_the_query_took_is_fenced(queue: Neo4jUnderTest) -> None:
    [item] = await queue.leased("ada")
    await queue.run(REQUIRED_RECOVERY)
    await scanned(queue)
    [again] = (await queue.lease("run-1")).jobs

    assert [str(o) for o in await queue.complete(item.lease)] == ["fenced"]
    assert [str(o) for o in await queue.complete(again.lease)] == ["completed"]


async def test_m75_the_requirements_own_reset_of_failed_jobs(queue: Neo4jUnderTest) -> None:
    await queue.in_state("ada", JobStatus.FAILED)
    assert await queue.run(REQUIRED_RESET) == [{"reset": 1}]
    assert await accounted(queue) is False

    await scanned(queue)

    assert await accounted(queue) is True
    assert_consistent(await queue.nodes())
    assert (await queue.admin.counts())[JobStatus.FAILED] == 0
    await assert_usable(queue, "ada", "pending")


@pytest.mark.parametrize("query", [REQUIRED_RECOVERY, REQUIRED_RESET], ids=["recovery", "reset"])
async def test_m75_cancel_leaves_one_state_label(
    queue: Neo4jUnderTest, query: LiteralString
) -> None:
    if query == REQUIRED_RECOVERY:
        await queue.leased("ada")
    else:
        await queue.in_state("ada", JobStatus.FAILED)
    await queue.run(query)

    await queue.admin.cancel_job((await queue.job("ada")).id, by="operator")

    assert_consistent(await queue.nodes())


@pytest.mark.parametrize("status", [None, 7])
async def test_a_leased_job_whose_status_is_no_text_keeps_no_other_from_recovery(
    queue: Neo4jUnderTest, status: object
) -> None:
    odd, other = await queue.leased("odd", "other")
    await queue.run(
        "MATCH (job:EmbedJob {entity_uid: 'odd'}) SET job.status = $status", status=status
    )
    await queue.expire()

    recovered = await queue.jobs.recover_expired(limit=10)

    assert [job.job_id for job in recovered] == [other.lease.job_id]
    assert (await queue.job("odd")).status is JobStatus.FAILED
    assert_consistent(await queue.nodes())
    assert [str(outcome) for outcome in await queue.complete(odd.lease)] == ["fenced"]


async def test_what_another_worker_leased_is_not_in_the_way_of_the_rest(
    queue: Neo4jUnderTest,
) -> None:
    """It takes the head of the queue, and our lease looks behind it."""
    await queue.given_jobs(*(f"e{number:02}" for number in range(12)))
    until = to_ms(queue.clock.now + LEASE)
    assert await queue.run(MEMENTO_LEASE, until=until) == [{"jobs": 10}]

    batch = await queue.lease(limit=5)

    assert [item.lease.entity_uid for item in batch.jobs] == ["e10", "e11"]
    assert (await queue.admin.counts())[JobStatus.PROCESSING] == 12
    assert_consistent(await queue.nodes())


@pytest.mark.parametrize(
    ("query", "status"),
    [(MEMENTO_COMPLETE, "completed"), (MEMENTO_FAIL, "failed"), (MEMENTO_RELEASE, "pending")],
    ids=["completed", "failed", "released"],
)
async def test_what_another_worker_does_to_a_job_is_done(
    queue: Neo4jUnderTest, query: LiteralString, status: str
) -> None:
    await queue.given_jobs("ada")
    await queue.run(MEMENTO_LEASE, until=to_ms(queue.clock.now + LEASE))
    await queue.queue.adoption.all()
    assert (await queue.job("ada")).lock_owner == "worker-1-x"
    await queue.run(query, now=to_ms(queue.clock.now))

    await queue.jobs.recover_expired(limit=10)

    job = await queue.job("ada")
    assert job.status == status
    assert_consistent(await queue.nodes())
    if status == "failed":
        assert (job.error, job.error_category) == ("gone", ErrorCategory.PERMANENT)


async def test_the_figures_count_only_our_own_work(queue: Neo4jUnderTest) -> None:
    now = to_ms(queue.clock.now)
    await queue.given_jobs("ada", "eve")
    await queue.run(MEMENTO_LEASE, until=now + 300_000)
    await queue.run(MEMENTO_COMPLETE, now=now)
    before = await queue.queue.metrics.read()
    await queue.queue.adoption.all()

    after = await queue.queue.metrics.read()

    assert after.counts[JobStatus.COMPLETED] == 2
    assert [m.completed_in_window for m in (before, after)] == [0, 0]
    assert [m.counters["completed"] for m in (before, after)] == [0, 0]
    assert [m.throughput_per_minute for m in (before, after)] == [0.0, 0.0]


async def test_a_version_in_text_becomes_a_number(queue: Neo4jUnderTest) -> None:
    await queue.put_entity("ada")
    await queue.run(MEMENTO_ENQUEUE, uid="ada", model=MODEL)

    await scanned(queue)

    [node] = await queue.nodes()
    assert (node["version"], type(node["version"])) == (1, int)
    await assert_usable(queue, "ada", "pending")


async def test_a_job_that_exists_under_the_same_key_takes_the_place_of_the_other(
    queue: Neo4jUnderTest,
) -> None:
    ours = {
        status.value: (await queue.in_state(status.value, status)).id
        for status in reversed(JobStatus)
    }
    for uid in ours:
        await queue.run(MEMENTO_ENQUEUE, uid=uid, model=MODEL)

    assert await queue.queue.adoption.all() == 5

    nodes = await queue.nodes()
    assert_consistent(nodes)
    kept = {node["id"]: node["status"] for node in nodes if node["version"] == 1}
    assert kept == {id_: status for status, id_ in ours.items()}
    for node in (node for node in nodes if node["version"] == "1"):
        assert (node["status"], node["cancelled_by"]) == ("cancelled", "queue")
        assert f"duplicate of job {ours[node['entity_uid']]}" in node["error"]
    assert await queue.queue.adoption.all() == 0


async def test_two_of_the_same_key_in_one_page_are_one_job(queue: Neo4jUnderTest) -> None:
    await queue.put_entity("ada")
    await queue.run(MEMENTO_ENQUEUE, uid="ada", model=MODEL)
    await given_required(queue, "ada", "pending", version="1.0")

    await scanned(queue)

    assert (await queue.admin.counts())[JobStatus.PENDING] == 1
    assert (await queue.admin.counts())[JobStatus.CANCELLED] == 1
    assert_consistent(await queue.nodes())


async def test_a_leased_duplicate_keeps_its_key_until_its_lease_ends(
    queue: Neo4jUnderTest,
) -> None:
    await queue.given_jobs("ada")
    await given_required(queue, "ada", "processing", version="1", owner="worker-1-x")
    await scanned(queue)
    assert (await queue.admin.counts())[JobStatus.PROCESSING] == 1

    await queue.run(MEMENTO_COMPLETE, now=to_ms(queue.clock.now))
    await scanned(queue)

    counts = await queue.admin.counts()
    assert (counts[JobStatus.PENDING], counts[JobStatus.CANCELLED]) == (1, 1)


async def test_each_adoption_is_a_line_in_the_log(
    queue: Neo4jUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    await given_required(queue, "ada", "processing")
    [node] = await queue.nodes()

    with caplog.at_level(logging.INFO):
        await scanned(queue)

    assert f"job={node['id']} adopted status=processing" in caplog.text
    assert "owner=worker-7" in caplog.text
