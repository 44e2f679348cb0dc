"""Query plans: what costs the batch today must not cost the queue tomorrow."""

import re
from collections.abc import AsyncIterator, Callable, Iterator
from types import ModuleType
from typing import Any, LiteralString

import pytest

from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import JobFilter, JobStatus
from embed_pipeline.domain.relations import BEHIND
from embed_pipeline.domain.results import Completion
from embed_pipeline.store import (
    adopt as adopting,
    adoption,
    complete as completing,
    database,
    entity_readings,
    filtering,
    job_store,
    lease as leasing,
    load as loading,
    recover as recovering,
    scan as reconciling,
    scan_page,
    steps,
    transactions,
)
from embed_pipeline.store.connection import open_driver
from embed_pipeline.store.cypher import (
    admin as cypher_admin,
    adopt as cypher_adopt,
    audit as cypher_audit,
    entity as cypher_entity,
    lookout as cypher_lookout,
    metrics as cypher_metrics,
    purge as cypher_purge,
    reconcile as cypher_reconcile,
    worker as cypher_worker,
)
from embed_pipeline.store.naming import for_shape
from tests.conftest import TestServer
from tests.integration.test_queue_races import given_many
from tests.support.queue_harness import LEASE, MODEL, SHAPE, VECTOR, Neo4jUnderTest, hash_for

SCANS = ("AllNodesScan", "NodeByLabelScan", "Sort", "Top", "CartesianProduct", "PartialSort")


def operators(plan: dict[str, Any]) -> Iterator[str]:
    yield plan["operatorType"].partition("@")[0]
    for child in plan.get("children", []):
        yield from operators(child)


def hits(plan: dict[str, Any]) -> int:
    own = plan.get("args", {}).get("DbHits", 0)
    return own + sum(hits(child) for child in plan.get("children", []))


PARAMETERS = {
    **dict.fromkeys(
        ("limit", "suspects", "sweep", "oldest", "slots", "duration", "grace", "longest"), 10
    ),
    **dict.fromkeys(("most", "entities", "percent"), 10),
    **dict.fromkeys(("token", "since", "cutoff", "last", "retention", "now"), 1),
    "queue": "default",
    "status": "failed",
    "kept": 1,
    "ids": ["x"],
    "uids": ["x"],
    "hashes": ["x"],
    "dimensions": 3,
    "vector_property": "embedding",
    "rows": [],
    "leases": [],
    "owner": "x",
    "request": "x",
    "after": "",
    "last": 15,
    "keys": [],
    "foreign": True,
    "until": "x",
    "model": MODEL,
    "counts": {},
    "report": "{}",
    "id": "x",
    "entry": {},
    "count": 1,
    "complete": True,
    "within": 1,
    "actions": None,
}
ORDERED = EntityShape(order="createdAt")
INDEXED = {
    "lease": cypher_worker.READ_QUEUE,
    "claim": cypher_worker.CLAIM_JOBS,
    "lock": cypher_worker.LOCK_JOBS,
    "read": cypher_worker.READ_JOBS,
    "heartbeat": cypher_worker.EXTEND_LEASES,
    "held": cypher_worker.COUNT_HELD,
    "finish": cypher_worker.FINISH_JOBS,
    "change": cypher_worker.CHANGE_JOBS,
    "due": cypher_worker.ENTER_LANES,
    "recover": cypher_worker.PICK_EXPIRED,
    "walk": cypher_adopt.WALK_JOBS,
    "count strays": cypher_adopt.COUNT_STRAYS,
    "twins": cypher_adopt.FIND_TWINS,
    "elements": cypher_adopt.ELEMENTS_OF,
    "adopt": cypher_adopt.WRITE_ADOPTED,
    "enqueue": cypher_admin.ENSURE_JOBS,
    "supersede": cypher_admin.PICK_OLDER,
    "counts": cypher_admin.COUNT_JOBS,
    "page": cypher_admin.PAGE_OF_JOBS["all"],
    "page of failed": cypher_admin.PAGE_OF_JOBS["failed"],
    "ended": cypher_metrics.ENDED,
    "overdue": cypher_lookout.FIND_OVERDUE,
    "backlog": cypher_metrics.BACKLOG,
    "oldest": cypher_metrics.NEXT_HEAD,
    "purge": cypher_purge.OUTER,
    "forced": cypher_worker.FIND_FORCED,
    "lock entities": for_shape(cypher_entity.LOCK_ENTITIES, SHAPE),
    "unlock entities": for_shape(cypher_entity.UNLOCK_ENTITIES, SHAPE),
    "read entities": for_shape(cypher_entity.READ_ENTITIES, SHAPE),
    "write vectors": for_shape(cypher_entity.WRITE_VECTORS, SHAPE),
    "clear outdated": for_shape(cypher_entity.CLEAR_OUTDATED, SHAPE),
    "whose vectors": for_shape(cypher_entity.READ_VECTORS, SHAPE),
    "clear vectors": for_shape(cypher_entity.CLEAR_VECTORS, SHAPE),
    "find known": for_shape(cypher_entity.FIND_KNOWN, SHAPE),
    "find vectors": for_shape(cypher_entity.FIND_VECTORS, SHAPE),
    "reconcile": for_shape(cypher_reconcile.SCAN_ENTITIES, SHAPE),
    "read texts": for_shape(cypher_reconcile.READ_TEXTS, SHAPE),
    "jobs of entities": cypher_reconcile.JOBS_OF_ENTITIES,
    "keys in use": for_shape(cypher_reconcile.KEYS_IN_USE, SHAPE),
    "next key": for_shape(cypher_reconcile.NEXT_KEY, SHAPE),
    "orphans": for_shape(cypher_reconcile.COUNT_ORPHANS, SHAPE),
    "clear orphans": for_shape(cypher_reconcile.CLEAR_ORPHANS, SHAPE),
    "begin scan": cypher_reconcile.BEGIN_SCAN,
    "move scan": cypher_reconcile.MOVE_SCAN,
    "save coverage": cypher_reconcile.SAVE_COVERAGE,
    "read coverage": cypher_reconcile.READ_COVERAGE,
    "record action": cypher_audit.RECORD_ACTION,
    "read actions": cypher_audit.READ_ACTIONS,
    "delete actions": cypher_audit.DELETE_OLD_ACTIONS,
}
INDEXED |= {
    f"{name}, ordered": for_shape(statement, ORDERED)
    for name, statement in {
        "read entities": cypher_entity.READ_ENTITIES,
        "write vectors": cypher_entity.WRITE_VECTORS,
        "clear outdated": cypher_entity.CLEAR_OUTDATED,
        "reconcile": cypher_reconcile.SCAN_ENTITIES,
        "clear orphans": cypher_reconcile.CLEAR_ORPHANS,
    }.items()
}
FILTER = dict.fromkeys(
    (
        *("statuses", "entity_uids", "categories", "excluded_category"),
        *("created_before", "ended_before", "has_lock"),
    )
)


@pytest.fixture(scope="module", params=[0, 50])
async def filled(
    request: pytest.FixtureRequest, neo4j_server: TestServer
) -> AsyncIterator[Neo4jUnderTest]:
    """A queue of so many jobs, which nobody changes."""
    async with open_driver(neo4j_server.connection) as driver:
        queue = Neo4jUnderTest(driver, neo4j_server.database)
        await queue.wipe()
        await given_many(queue, request.param)
        yield queue


@pytest.mark.parametrize("name", INDEXED)
async def test_no_statement_scans_a_label_or_sorts_the_backlog(
    filled: Neo4jUnderTest, name: str
) -> None:
    """Also not if the plan was made for an empty queue: some plans are kept."""
    parameters = {**PARAMETERS, **FILTER}

    async with filled.driver.session(database=filled.database) as session:
        await (await session.run("CALL db.clearQueryCaches()")).consume()
        result = await session.run(f"EXPLAIN {INDEXED[name]}", parameters)  # pyright: ignore[reportArgumentType]
        plan: Any = (await result.consume()).plan

    assert not [op for op in operators(plan) if op in SCANS]


@pytest.mark.parametrize("module", [cypher_worker, cypher_entity])
def test_a_plan_is_kept_only_if_its_index_is_named(module: ModuleType) -> None:
    """What the planner likes for an empty queue it would use for a full one, too."""
    texts = [text for text in vars(module).values() if isinstance(text, str)]
    kept = [text for text in texts if text.startswith("\nCYPHER replan=skip\n")]
    seeks = [re.findall(r"MATCH \((?:job|entity):\S+ .*", text) for text in kept]

    assert len(kept) > 5
    assert not [line for lines in seeks for line in lines if "USING INDEX" not in line]


def test_every_lane_names_its_index() -> None:
    """Left to itself the planner may sort; whether it does depends on its statistics of the day."""
    lanes = cypher_worker.READ_QUEUE.count("MATCH (job:EmbedPending)")

    assert cypher_worker.READ_QUEUE.count("USING INDEX job:EmbedPending(run_after)") == 1
    assert cypher_worker.READ_QUEUE.count("USING INDEX SEEK job:EmbedPending(model") == lanes - 1


def test_the_backlog_seeks_in_every_lane() -> None:
    """With a plain hint the planner scans an index that its statistics still call empty."""
    lanes = cypher_metrics.BACKLOG.count("MATCH (job:EmbedPending)")

    assert cypher_metrics.BACKLOG.count("USING INDEX SEEK job:EmbedPending") == lanes == 7


async def test_the_heads_of_the_lanes_are_not_sorted_for_metrics(queue: Neo4jUnderTest) -> None:
    await given_many(queue, 50)

    async with queue.driver.session(database=queue.database) as session:
        result = await session.run("EXPLAIN " + cypher_metrics.LANES, now=1)
        plan: Any = (await result.consume()).plan

    found = [op for op in operators(plan) if op in SCANS]
    # Only the leased jobs are looked at one by one, for one without an expiry.
    assert found in ([], ["NodeByLabelScan"])


async def test_counts_are_read_from_the_count_store(queue: Neo4jUnderTest) -> None:
    async with queue.driver.session(database=queue.database) as session:
        result = await session.run("PROFILE " + cypher_admin.COUNT_JOBS)
        profile: Any = (await result.consume()).profile

    assert hits(profile) <= 6


async def test_jobs_that_nobody_else_touched_cost_a_count_however_many_are_leased(
    queue: Neo4jUnderTest,
) -> None:
    await given_many(queue, 500)
    none = await hits_of(queue, cypher_adopt.COUNT_STRAYS)
    assert len((await queue.lease(limit=500)).jobs) == 500

    assert await hits_of(queue, cypher_adopt.COUNT_STRAYS) == none < 12


async def test_the_backlog_costs_what_is_counted_however_long_the_queue_is(
    queue: Neo4jUnderTest,
) -> None:
    await grow(queue, 5_000)
    await grow(queue, 5_000, model="other-model", run_after=1)
    await grow(queue, 5_000, run_after=1)
    await grow(queue, 5_000, run_after=database.to_ms(queue.clock.now) * 2)

    assert await hits_of(queue, cypher_metrics.BACKLOG, most=10) < 100


async def test_the_oldest_ended_job_costs_the_same_for_any_history(queue: Neo4jUnderTest) -> None:
    await queue.in_state("ada", JobStatus.COMPLETED)
    few = await hits_of(queue, cypher_metrics.LANES)
    await queue.run(
        "UNWIND range(1, 5000) AS n CREATE (:EmbedJob:EmbedCompleted {id: 'x' + n,"
        " entity_uid: 'x' + n, model: 'm', version: 1, status: 'completed', processed_at: n})"
    )

    assert await hits_of(queue, cypher_metrics.LANES) <= few


async def test_the_overdue_jobs_of_a_state_cost_the_same_for_any_history(
    queue: Neo4jUnderTest,
) -> None:
    await queue.run(
        "UNWIND range(1, 5000) AS n CREATE (:EmbedJob:EmbedCompleted {id: 'x' + n,"
        " entity_uid: 'x' + n, model: 'm', version: 1, status: 'completed', processed_at: n})"
    )

    assert await hits_of(queue, cypher_lookout.FIND_OVERDUE, limit=10) < 100


async def hits_of(queue: Neo4jUnderTest, statement: LiteralString, **changes: Any) -> int:
    parameters = {**PARAMETERS, **changes, "now": database.to_ms(queue.clock.now)}
    async with queue.driver.session(database=queue.database) as session:
        result = await session.run("PROFILE " + statement, parameters)
        profile: Any = (await result.consume()).profile
    return hits(profile)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Profile every statement of the store; call it to get the hits since the last call."""
    total = 0

    async def fetch(tx: Any, statement: str, /, **parameters: Any) -> list[Any]:
        nonlocal total
        result = await tx.run(f"PROFILE {statement}", parameters)
        records = [record async for record in result]
        total += hits((await result.consume()).profile)
        return records

    async def fetch_one(tx: Any, statement: str, /, **parameters: Any) -> Any:
        return (await fetch(tx, statement, **parameters))[0]

    for module in (
        *(completing, database, filtering, job_store, leasing, loading),
        *(adopting, adoption, entity_readings, reconciling, recovering, scan_page, steps),
        transactions,
    ):
        for counted in (fetch, fetch_one):
            if hasattr(module, counted.__name__):
                monkeypatch.setattr(module, counted.__name__, counted)

    def since_last_call() -> int:
        nonlocal total
        number, total = total, 0
        return number

    return since_last_call


async def hits_of_a_batch(queue: Neo4jUnderTest, measured: Callable[[], int]) -> dict[str, int]:
    """What each operation costs for 100 jobs."""
    measured()
    costs = {}
    items = (await queue.lease(limit=100)).jobs
    costs["lease"] = measured()
    leases = [item.lease for item in items]
    await queue.jobs.heartbeat(leases, duration=LEASE)
    costs["heartbeat"] = measured()
    await queue.jobs.load(leases)
    costs["load"] = measured()
    rows = [Completion(x, VECTOR, hash_for(x.entity_uid)) for x in leases]
    await queue.jobs.complete(rows)
    costs["complete"] = measured()
    items = (await queue.lease(limit=100)).jobs
    measured()
    await queue.jobs.release([item.lease for item in items])
    costs["release"] = measured()
    await queue.jobs.recover_expired(limit=100)
    costs["recover nothing"] = measured()
    await queue.lease(limit=100)
    await queue.expire()
    measured()
    await queue.jobs.recover_expired(limit=100)
    costs["recover"] = measured()
    return costs


@pytest.mark.timeout(900)
@pytest.mark.parametrize("jobs", [10_000, pytest.param(100_000, marks=pytest.mark.proof)])
async def test_a_batch_costs_the_same_in_a_queue_many_times_as_long(
    queue: Neo4jUnderTest, measured: Callable[[], int], jobs: int
) -> None:
    await given_many(queue, 1_000)
    few = await hits_of_a_batch(queue, measured)
    await grow(queue, jobs)
    measured()

    many = await hits_of_a_batch(queue, measured)

    assert {name: many[name] < 2 * few[name] for name in few} == dict.fromkeys(few, True), (
        few,
        many,
    )
    # Six of them are counts, for the jobs that others wrote.
    assert few["recover nothing"] < 16
    # Also outdated versions with a vector are looked for in it, by the seek that reads the texts.
    assert many["complete"] <= 1_910


async def test_entering_the_lanes_costs_what_is_due_however_many_are_delayed(
    queue: Neo4jUnderTest, measured: Callable[[], int]
) -> None:
    async def hits_of_leasing() -> int:
        await grow(queue, 100, run_after=1)
        measured()
        assert len((await queue.lease(limit=100)).jobs) == 100
        return measured()

    few = await hits_of_leasing()
    await grow(queue, 5_000, run_after=database.to_ms(queue.clock.now) * 2)

    assert await hits_of_leasing() < 2 * few


async def test_m117_the_dependants_of_a_hub_of_5_000_slow_no_lease_when_their_time_has_come(
    queue: Neo4jUnderTest, measured: Callable[[], int]
) -> None:
    async def hits_of_leasing(uid: str) -> int:
        await queue.in_state(uid, JobStatus.PENDING)
        measured()
        batch = await queue.lease(limit=1)
        assert [job.lease.entity_uid for job in batch.jobs] == [uid]
        return measured()

    await grow(queue, 200, run_after=1, priority=BEHIND)
    few = await hits_of_leasing("ada")
    await grow(queue, 5_000, run_after=1, priority=BEHIND)

    assert await hits_of_leasing("bob") < 1.2 * few


ANY = frozenset(ErrorCategory)


@pytest.mark.parametrize(
    "which",
    [
        JobFilter(entity_uids=("ada",), categories=ANY),
        JobFilter(statuses=frozenset({JobStatus.FAILED}), categories=ANY),
    ],
    ids=["of an entity", "failed"],
)
async def test_a_few_jobs_are_found_without_looking_at_the_others(
    queue: Neo4jUnderTest, measured: Callable[[], int], which: JobFilter
) -> None:
    async def hits_of_looking() -> int:
        measured()
        assert len(await queue.admin.find_jobs(which)) == 1
        assert (await queue.admin.retry_failed(which, preview=True)).count == 1
        return measured()

    await queue.in_state("ada", JobStatus.FAILED)
    few = await hits_of_looking()
    await grow(queue, 1_000)

    assert await hits_of_looking() == few


async def test_a_page_of_the_scan_costs_the_same_with_ten_times_the_entities(
    queue: Neo4jUnderTest, measured: Callable[[], int]
) -> None:
    scan = queue.queue.reconciler(MODEL)
    await given_many(queue, 300)
    measured()
    await scan.page(limit=100)
    few = measured()
    await queue.run("UNWIND range(1, 3000) AS n CREATE (:Entity {name: 'x' + n, version: 1})")

    await scan.page(limit=100)

    assert measured() == few


async def grow(
    queue: Neo4jUnderTest,
    number: int,
    *,
    model: str = MODEL,
    run_after: int | None = None,
    priority: int | None = None,
) -> None:
    """Many more pending jobs, written past the store to save time."""
    await queue.run(
        """
        UNWIND range(1, $number) AS n
        CALL (n) {
          CREATE (:EmbedJob:EmbedPending {id: randomUUID(), entity_uid: randomUUID(), model: $model,
            version: 1, status: 'pending', priority: coalesce($priority, n % 3), attempts: 0,
            max_attempts: 3, fence: 0,
            expiries: 0, created_at: $at + n, queued_at: $at + n, run_after: $run_after + n,
            urgency: CASE WHEN $run_after IS NULL THEN -(n % 3) END,
            ready_at: CASE WHEN $run_after IS NULL THEN $at + n END})
        } IN TRANSACTIONS OF 10000 ROWS
        """,
        number=number,
        model=model,
        run_after=run_after,
        priority=priority,
        at=database.to_ms(queue.clock.now),
    )
