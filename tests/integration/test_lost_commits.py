"""Exactly once, also when the acknowledgement of a commit is lost.

Every scenario runs through a proxy that breaks the connection at the commit, and once undisturbed:
what the caller hears, the jobs, the vectors and the counters must be the same each time.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from neo4j import AsyncDriver
from neo4j.exceptions import IncompleteCommit, Neo4jError

from embed_pipeline.domain.audit import Operator
from embed_pipeline.domain.breaker import BreakerStatus
from embed_pipeline.domain.coverage import CoverageReport
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import JobFilter, JobStatus, NewJob
from embed_pipeline.domain.lifecycle import EnqueueOutcome
from embed_pipeline.domain.results import CompletionOutcome, EntityFate, FailureOutcome
from embed_pipeline.store.connection import Connection, open_driver
from embed_pipeline.store.cypher import worker as cypher_worker
from embed_pipeline.store.database import Transaction, fetch
from embed_pipeline.store.transactions import count, new_token, write_once
from tests.conftest import TestServer
from tests.support.bolt_proxy import BoltProxy, Cut
from tests.support.queue_harness import (
    LEASE,
    MODEL,
    NUMBERS,
    Neo4jUnderTest,
    assert_consistent,
    hash_for,
)

PENDING, PROCESSING, COMPLETED = JobStatus.PENDING, JobStatus.PROCESSING, JobStatus.COMPLETED
FAILED, CANCELLED = JobStatus.FAILED, JobStatus.CANCELLED
PERMANENT, CRITICAL = ErrorCategory.PERMANENT, ErrorCategory.CRITICAL

Mark = Callable[[], Awaitable[None]]

UNDISTURBED: tuple[Cut, ...] = ()
IN_CI = (Cut.BEFORE, Cut.AFTER)
ONE_CUT = [
    UNDISTURBED,
    *(pytest.param((cut,), marks=() if cut in IN_CI else pytest.mark.proof) for cut in Cut),
]
TWO_CUTS = [*((cut, cut) for cut in Cut), (Cut.BEFORE, Cut.AFTER), (Cut.AFTER, Cut.BEFORE)]


def words(cuts: tuple[Cut, ...]) -> str:
    return " then ".join(cut.name.lower() for cut in cuts) or "undisturbed"


RARELY = [pytest.param(cuts, marks=pytest.mark.proof) for cuts in TWO_CUTS]
often = pytest.mark.parametrize("lossy", [*ONE_CUT, *RARELY], indirect=True, ids=words)


@pytest.fixture
async def proxy(neo4j_server: TestServer) -> AsyncIterator[BoltProxy]:
    async with BoltProxy(neo4j_server.uri) as proxy:
        yield proxy


@pytest.fixture
async def far_driver(proxy: BoltProxy, neo4j_server: TestServer) -> AsyncIterator[AsyncDriver]:
    """A driver that reaches the server only through the proxy."""
    server = neo4j_server
    connection = Connection(proxy.uri, server.username, server.password, server.database)
    async with open_driver(connection) as driver:
        yield driver


@pytest.fixture(params=ONE_CUT, ids=words)
async def lossy(
    request: pytest.FixtureRequest,
    queue: Neo4jUnderTest,
    proxy: BoltProxy,
    far_driver: AsyncDriver,
) -> AsyncIterator[Neo4jUnderTest]:
    """The same queue over a line that breaks at its next commit, once or twice."""
    for cut in request.param:
        proxy.cut_next_commits(1, cut)
    yield Neo4jUnderTest(far_driver, queue.database, clock=queue.clock)
    assert proxy.cuts == list(request.param)
    assert_consistent(await queue.nodes())


async def counted(queue: Neo4jUnderTest) -> dict[str, int]:
    """The counters that are not zero."""
    return {name: number for name, number in (await queue.counters()).items() if number}


# The proxy does what it says.


@pytest.fixture
async def mark(queue: Neo4jUnderTest, far_driver: AsyncDriver) -> Mark:
    """One write over the line that breaks, in an explicit transaction that nobody repeats."""
    await queue.put_entity("witness")

    async def add_one() -> None:
        session = far_driver.session(database=queue.database)
        async with session, await session.begin_transaction() as tx:
            result = await tx.run(
                "MATCH (e:Entity {name: 'witness'}) SET e.marks = coalesce(e.marks, 0) + 1"
            )
            await result.consume()
            await tx.commit()

    return add_one


async def marks(queue: Neo4jUnderTest) -> int:
    rows = await queue.run("MATCH (e:Entity {name: 'witness'}) RETURN coalesce(e.marks, 0) AS n")
    return rows[0]["n"]


@pytest.mark.parametrize(("cut", "applied"), [(Cut.BEFORE, 0), (Cut.AFTER, 1)], ids=str)
async def test_a_cut_commit_raises_whether_it_was_applied_or_not(
    queue: Neo4jUnderTest, proxy: BoltProxy, mark: Mark, cut: Cut, applied: int
) -> None:
    proxy.cut_next_commits(1, cut)

    with pytest.raises(IncompleteCommit):
        await mark()

    assert proxy.cuts == [cut]
    assert await marks(queue) == applied


async def test_a_late_commit_is_applied_when_the_next_statement_is_on_its_way(
    queue: Neo4jUnderTest, proxy: BoltProxy, mark: Mark
) -> None:
    proxy.cut_next_commits(1, Cut.LATE)
    with pytest.raises(IncompleteCommit):
        await mark()
    assert await marks(queue) == 0

    # Waits for the lock of the transaction that is still to be committed.
    await mark()

    assert await marks(queue) == 2


@pytest.mark.parametrize("cut", Cut)
async def test_a_connection_after_the_cuts_works(
    queue: Neo4jUnderTest, proxy: BoltProxy, mark: Mark, cut: Cut
) -> None:
    proxy.cut_next_commits(2, cut)
    for _ in range(2):
        with pytest.raises(IncompleteCommit):
            await mark()

    await mark()

    assert proxy.cuts == [cut, cut]
    assert await marks(queue) == (1 if cut is Cut.BEFORE else 3)


# The worker's side.


@often
async def test_a_lease_hands_over_all_it_took_and_takes_no_more(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest
) -> None:
    await queue.given_jobs("ada", "bob", "cyd", "dan", "eve")

    batch = await lossy.lease(owner="run-1", limit=3)

    assert [item.lease.entity_uid for item in batch.jobs] == ["ada", "bob", "cyd"]
    assert {(item.attempts, item.lease.fence) for item in batch.jobs} == {(1, 1)}
    in_work = [node for node in await queue.nodes() if node["status"] == PROCESSING]
    assert {node["id"] for node in in_work} == {item.lease.job_id for item in batch.jobs}
    assert {(n["attempts"], n["fence"], n["lock_owner"]) for n in in_work} == {(1, 1, "run-1")}
    assert (await queue.admin.counts())[PENDING] == 2
    assert await queue.run("MATCH (q:EmbedQueue) RETURN q.turns AS turns, q.slots AS slots") == [
        {"turns": 1, "slots": 3}
    ]
    done = await queue.complete(*(item.lease for item in batch.jobs))
    assert done == [CompletionOutcome.COMPLETED] * 3


async def test_a_lease_keeps_the_order_of_urgency(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest
) -> None:
    await queue.given_jobs("low", priority=-1)
    await queue.given_jobs("normal")
    await queue.given_jobs("high", priority=1)

    batch = await lossy.lease(limit=3)

    assert [item.lease.entity_uid for item in batch.jobs] == ["high", "normal", "low"]


async def test_the_probe_of_a_half_open_breaker_is_handed_over(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest
) -> None:
    await queue.given_jobs("ada", "bob")
    await queue.switch.open_breaker("quota gone")
    queue.clock.advance(timedelta(hours=1))

    batch = await lossy.lease(limit=2)

    assert (batch.refusal, len(batch.jobs)) == (None, 1)
    assert (await queue.admin.counts())[PROCESSING] == 1
    assert (await queue.switch.state()).breaker.status is BreakerStatus.HALF_OPEN


async def test_a_heartbeat_extends_once_and_counts_a_lost_lease_once(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest
) -> None:
    ada, bob, cyd = [item.lease for item in await queue.leased("ada", "bob", "cyd")]
    await queue.run("MATCH (j:EmbedJob {entity_uid: 'cyd'}) SET j.fence = j.fence + 1")
    queue.clock.advance(timedelta(minutes=4))

    beat = await lossy.jobs.heartbeat([ada, bob, cyd], duration=LEASE)

    assert (beat.held, beat.cancelled, beat.lost) == ((ada, bob), (), (cyd,))
    for uid in ("ada", "bob"):
        job = await queue.job(uid)
        assert (job.attempts, job.fence, job.lock_owner) == (1, 1, "run-1")
        assert (job.lock_until, job.heartbeat_at) == (queue.clock.now + LEASE, queue.clock.now)
    assert await counted(queue) == {"fenced": 1}


@often
async def test_a_completion_is_reported_as_such_and_happens_once(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest
) -> None:
    leases = [item.lease for item in await queue.leased("ada", "bob")]

    outcomes = await lossy.complete(*leases)

    assert outcomes == [CompletionOutcome.COMPLETED] * 2
    for lease in leases:
        job = await queue.job(lease.entity_uid)
        assert (job.status, job.attempts, job.fence, job.tokens) == (COMPLETED, 1, 1, 3)
        assert (job.processed_at, job.lock_owner) == (queue.clock.now, None)
        assert job.last_owner == "run-1"
        assert await queue.vector(lease.entity_uid) == pytest.approx(NUMBERS)
    assert await queue.run(
        "MATCH (e:Entity) RETURN e.embedding_job AS job, e._embed_lock AS lock ORDER BY e.name"
    ) == [{"job": lease.job_id, "lock": None} for lease in leases]
    assert await counted(queue) == {}


async def test_a_completion_that_does_not_fit_ends_each_row_once(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest
) -> None:
    uids = ("fits", "moved", "gone", "newer", "lost")
    leases = [item.lease for item in await queue.leased(*uids)]
    await queue.put_entity("moved", "another text")
    await queue.delete_entity("gone")
    await queue.put_entity("newer", version=2)
    await queue.run("MATCH (j:EmbedJob {entity_uid: 'lost'}) SET j.fence = j.fence + 1")

    outcomes = await lossy.complete(*leases)

    assert outcomes == [
        CompletionOutcome.COMPLETED,
        CompletionOutcome.MOVED,
        CompletionOutcome.GONE,
        CompletionOutcome.SUPERSEDED,
        CompletionOutcome.FENCED,
    ]
    assert await queue.statuses(*uids) == [COMPLETED, PENDING, CANCELLED, CANCELLED, PROCESSING]
    assert (await queue.job("moved")).attempts == 0
    assert await queue.vector("fits") == pytest.approx(NUMBERS)
    assert await queue.vector("moved") is None
    assert await counted(queue) == {"moved": 1, "superseded": 2, "fenced": 1}


async def test_a_transient_failure_costs_one_attempt_and_one_entry(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest
) -> None:
    [item] = await queue.leased("ada")

    outcomes = await lossy.fail(item.lease)

    job = await queue.job("ada")
    assert outcomes == [FailureOutcome.RETRY]
    assert (job.status, job.attempts, job.fence) == (PENDING, 1, 1)
    assert (job.error, len(job.error_history)) == ("boom", 1)
    assert job.run_after == queue.clock.now + queue.config.retry.base
    assert await counted(queue) == {"retried": 1}


async def test_a_permanent_failure_is_recorded_once(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest
) -> None:
    [item] = await queue.leased("ada")

    outcomes = await lossy.fail(item.lease, category=PERMANENT)

    job = await queue.job("ada")
    assert outcomes == [FailureOutcome.FAILED]
    assert (job.status, job.attempts, len(job.error_history)) == (FAILED, 1, 1)
    assert (job.error_category, job.run_after, job.processed_at) == (
        PERMANENT,
        None,
        queue.clock.now,
    )
    assert await counted(queue) == {}


async def test_the_last_attempt_is_exhausted_once(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest
) -> None:
    await queue.put_entity("ada")
    await queue.admin.enqueue([NewJob("ada", MODEL)], max_attempts=1)
    [item] = (await queue.lease()).jobs

    outcomes = await lossy.fail(item.lease)

    job = await queue.job("ada")
    assert outcomes == [FailureOutcome.FAILED]
    assert (job.status, job.attempts, len(job.error_history)) == (FAILED, 1, 1)
    assert await counted(queue) == {"exhausted": 1}


async def test_a_global_fault_gives_the_attempt_back_once(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest
) -> None:
    [ada] = await queue.leased("ada")
    await queue.fail(ada.lease)
    queue.clock.advance(timedelta(hours=1))
    [ada] = (await queue.lease()).jobs
    assert ada.attempts == 2

    outcomes = await lossy.fail(ada.lease, category=CRITICAL)

    job = await queue.job("ada")
    assert outcomes == [FailureOutcome.GIVEN_BACK]
    assert (job.status, job.attempts, len(job.error_history)) == (PENDING, 1, 2)
    assert await counted(queue) == {"retried": 1, "given_back": 1}


async def test_a_release_refunds_once_and_says_how_many(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest
) -> None:
    leases = [item.lease for item in await queue.leased("ada", "bob", "lost")]
    await queue.run("MATCH (j:EmbedJob {entity_uid: 'lost'}) SET j.fence = j.fence + 1")

    released = await lossy.jobs.release(leases)

    assert released == 2
    for uid in ("ada", "bob"):
        job = await queue.job(uid)
        assert (job.status, job.attempts, job.fence, job.lock_owner) == (PENDING, 0, 1, None)
    assert (await queue.job("lost")).status is PROCESSING
    assert await counted(queue) == {"released": 2, "fenced": 1}


async def test_a_release_refunds_only_the_attempt_of_its_own_lease(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest
) -> None:
    [ada] = await queue.leased("ada")
    await queue.fail(ada.lease)
    queue.clock.advance(timedelta(hours=1))
    [ada] = (await queue.lease()).jobs

    assert await lossy.jobs.release([ada.lease]) == 1

    assert (await queue.job("ada")).attempts == 1
    assert await counted(queue) == {"retried": 1, "released": 1}


async def test_loading_cancels_what_has_vanished_and_says_so(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest
) -> None:
    leases = [item.lease for item in await queue.leased("here", "gone", "newer")]
    await queue.delete_entity("gone")
    await queue.put_entity("newer", version=2)

    loaded = await lossy.jobs.load(leases)

    assert [x.fate for x in loaded] == [
        EntityFate.CURRENT,
        EntityFate.GONE,
        EntityFate.SUPERSEDED,
    ]
    assert await queue.statuses("here", "gone", "newer") == [PROCESSING, CANCELLED, CANCELLED]
    assert await counted(queue) == {"superseded": 2}


async def test_recovery_names_every_job_it_took_back(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest
) -> None:
    await queue.put_entity("last")
    await queue.admin.enqueue([NewJob("last", MODEL)], max_attempts=1)
    await queue.given_jobs("ada", "bob")
    await queue.lease(owner="run-1", limit=3)
    await queue.expire()

    recovered = await lossy.jobs.recover_expired(limit=10)

    assert sorted((x.entity_uid, x.status, x.former_owner) for x in recovered) == [
        ("ada", PENDING, "run-1"),
        ("bob", PENDING, "run-1"),
        ("last", FAILED, "run-1"),
    ]
    for uid, status, entries in (("ada", PENDING, 0), ("bob", PENDING, 0), ("last", FAILED, 1)):
        job = await queue.job(uid)
        assert (job.status, job.attempts, job.expiries) == (status, 1, 1)
        assert len(job.error_history) == entries
    assert await counted(queue) == {"recovered": 3, "exhausted": 1}


async def test_recovery_takes_no_more_than_its_limit(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest
) -> None:
    await queue.leased("ada", "bob", "cyd")
    await queue.expire()

    recovered = await lossy.jobs.recover_expired(limit=2)

    assert len({x.job_id for x in recovered}) == 2
    assert (await queue.admin.counts())[PROCESSING] == 1
    assert await counted(queue) == {"recovered": 2}


# Everybody else's side.


@pytest.mark.parametrize("jobs", [1, 1_001])
async def test_an_enqueue_says_created_and_makes_each_job_once(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest, jobs: int
) -> None:
    wishes = [NewJob(f"entity-{number}", MODEL) for number in range(jobs)]

    outcomes = await lossy.admin.enqueue(wishes)

    assert outcomes == [EnqueueOutcome.CREATED] * jobs
    counts = await queue.admin.counts()
    assert (counts[PENDING], sum(counts.values())) == (jobs, jobs)
    assert await counted(queue) == {}


async def test_an_enqueue_says_what_it_did_to_a_job_that_was_there(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest
) -> None:
    await queue.in_state("revived", COMPLETED)
    await queue.given_jobs("present", "promoted", "older")
    wishes = [
        NewJob("present", MODEL),
        NewJob("promoted", MODEL, priority=5),
        NewJob("revived", MODEL, text_hash=hash_for("revived", "another text")),
        NewJob("older", MODEL, version=2),
    ]

    outcomes = await lossy.admin.enqueue(wishes)

    assert outcomes == [
        EnqueueOutcome.PRESENT,
        EnqueueOutcome.PROMOTED,
        EnqueueOutcome.REVIVED,
        EnqueueOutcome.CREATED,
    ]
    assert await queue.statuses("present", "promoted", "revived") == [PENDING] * 3
    assert (await queue.job("promoted")).priority == 5
    assert (await queue.job("older", version=1)).status is CANCELLED
    assert (await queue.job("older", version=2)).status is PENDING
    assert await counted(queue) == {"revived": 1, "superseded": 1}


async def test_a_cancellation_of_one_job_is_not_refused_as_a_second_one(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest
) -> None:
    [item] = await queue.leased("ada")

    await lossy.admin.cancel_job(item.lease.job_id, by="operator", reason="wrong text")

    job = await queue.job("ada")
    assert (job.status, job.cancelled_by, job.error) == (CANCELLED, "operator", "wrong text")
    assert await counted(queue) == {"cancelled": 1}


async def test_a_cancellation_by_filter_reports_all_it_cancelled(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest
) -> None:
    await queue.leased("ada")
    await queue.given_jobs("bob")
    await queue.in_state("done", CANCELLED)

    report = await lossy.admin.cancel(JobFilter(model=MODEL), by="operator")

    assert (report.count, report.counts) == (2, {PENDING: 1, PROCESSING: 1})
    assert set(report.job_ids) == {(await queue.job(uid)).id for uid in ("ada", "bob")}
    assert await queue.statuses("ada", "bob") == [CANCELLED] * 2
    assert await counted(queue) == {"cancelled": 3}


async def test_a_retry_of_failed_jobs_reports_all_it_opened_again(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest
) -> None:
    await queue.in_state("ada", FAILED)
    await queue.in_state("bob", FAILED)
    which = JobFilter(categories=frozenset({PERMANENT}))

    report = await lossy.admin.retry_failed(which)

    assert (report.count, report.counts) == (2, {FAILED: 2})
    for uid in ("ada", "bob"):
        job = await queue.job(uid)
        assert (job.status, job.attempts, job.error) == (PENDING, 0, None)
        assert len(job.error_history) == 1
    assert await counted(queue) == {"reopened": 2}


@pytest.mark.parametrize("how", ["release", "recover"])
async def test_taking_everything_from_an_owner_reports_every_job(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest, how: str
) -> None:
    await queue.leased("ada", "bob", owner="run-1/a")
    await queue.leased("cyd", owner="run-2")

    if how == "release":
        taken = await lossy.admin.release_owner("run-1")
    else:
        taken = len(await lossy.admin.recover_owner("run-1"))

    assert taken == 2
    assert await queue.statuses("ada", "bob", "cyd") == [PENDING, PENDING, PROCESSING]
    attempts, name = (0, "released") if how == "release" else (1, "recovered")
    assert {(await queue.job(uid)).attempts for uid in ("ada", "bob")} == {attempts}
    assert await counted(queue) == {name: 2}


async def test_what_a_worker_counts_is_added_once(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest
) -> None:
    await lossy.admin.count({"requests": 1, "tokens": 40})

    assert await counted(queue) == {"requests": 1, "tokens": 40}


@often
async def test_a_recovery_is_recorded_once(queue: Neo4jUnderTest, lossy: Neo4jUnderTest) -> None:
    await lossy.jobs.recover_expired(limit=1)
    await lossy.admin.record_recovery()

    assert await counted(queue) == {"recoveries": 1}
    assert await queue.last_recovery() == queue.clock.now


async def test_the_sum_of_a_scan_is_kept_once(queue: Neo4jUnderTest, lossy: Neo4jUnderTest) -> None:
    report = await lossy.queue.reconciler(MODEL).save(CoverageReport(MODEL, entities=7))

    assert await queue.queue.reconciler(MODEL).last() == report
    assert await queue.run("MATCH (c:EmbedCoverage) RETURN count(c) AS n") == [{"n": 1}]


# What an operator did is recorded once.

ACTIONS: dict[str, Callable[[Neo4jUnderTest], Awaitable[Any]]] = {
    "cancel": lambda lossy: lossy.admin.cancel(JobFilter(model=MODEL), by="alice"),
    "retry": lambda lossy: lossy.admin.retry_failed(JobFilter(categories=frozenset({PERMANENT}))),
    "release": lambda lossy: lossy.admin.release_owner("run-1"),
    "recover": lambda lossy: lossy.admin.recover_owner("run-1"),
    "force": lambda lossy: lossy.admin.enqueue(
        [NewJob(uid, MODEL, force=True) for uid in ("done-0", "done-1")]
    ),
    "clear_orphans": lambda lossy: lossy.queue.reconciler(MODEL).page(),
}


@pytest.mark.parametrize("action", ACTIONS)
async def test_an_action_of_an_operator_is_recorded_once_with_its_count(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest, action: str
) -> None:
    lossy.act_as(Operator("alice"))
    for number in range(2):
        await queue.in_state(f"done-{number}", COMPLETED)
        await queue.in_state(f"failed-{number}", FAILED)
    await queue.leased("held-0", "held-1", owner="run-1/a")
    if action == "clear_orphans":
        await queue.run("MATCH (e:Entity) WHERE e.name STARTS WITH 'done' SET e.validTo = 1")

    await ACTIONS[action](lossy)

    [entry] = await queue.actions()
    assert (entry.action, entry.count, entry.is_complete) == (action, 2, True)


async def test_orphans_that_were_cleared_are_reported(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest
) -> None:
    await queue.in_state("ada", COMPLETED)
    await queue.in_state("bob", COMPLETED)
    await queue.run("MATCH (e:Entity) SET e.validTo = 1")

    page = await lossy.queue.reconciler(MODEL).page()

    assert (page.orphaned, page.cleared) == (2, 2)


@pytest.mark.parametrize("action", ["pause", "resume"])
async def test_a_pause_and_its_end_are_recorded_once(
    queue: Neo4jUnderTest, lossy: Neo4jUnderTest, action: str
) -> None:
    lossy.act_as(Operator("alice"))

    await (lossy.switch.pause(by="alice") if action == "pause" else lossy.switch.resume())

    [entry] = await queue.actions()
    assert (entry.action, entry.count) == (action, 1)


# Asking whether a try was committed must not turn the order of locks around.


async def test_a_repetition_deadlocks_with_nobody(
    queue: Neo4jUnderTest, proxy: BoltProxy, far_driver: AsyncDriver
) -> None:
    [item] = await queue.leased("ada")
    far = Neo4jUnderTest(far_driver, queue.database, clock=queue.clock)
    token, has_job = new_token(), asyncio.Event()
    refusals: list[Neo4jError] = []
    rivals: list[asyncio.Task[None]] = []
    tries = 0

    async def lock_and_count(tx: Transaction, number: int) -> None:
        try:
            await fetch(tx, cypher_worker.LOCK_JOBS, ids=[item.lease.job_id], token=number)
            has_job.set()
            await count(tx, queue.config.queue, {"released": 1}, token=number)
        except Neo4jError as error:
            refusals.append(error)
            raise

    async def rival() -> None:
        session = queue.driver.session(database=queue.database)
        async with session, await session.begin_transaction() as tx:
            await lock_and_count(tx, new_token())

    async def work(tx: Transaction) -> None:
        nonlocal tries
        tries += 1
        if tries == 2:
            has_job.clear()
            rivals.append(asyncio.create_task(rival()))
            await has_job.wait()
        await lock_and_count(tx, token)

    proxy.cut_next_commits(1, Cut.BEFORE)
    await write_once(far.queue.database, queue.config.queue, token, work)
    await asyncio.gather(*rivals)

    assert tries == 2
    assert refusals == []
