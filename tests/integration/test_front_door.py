"""The queue as a program sees it, through its own driver, sync or async."""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, assert_type

import pytest
from neo4j import (
    AsyncDriver,
    AsyncGraphDatabase,
    AsyncManagedTransaction,
    AsyncTransaction,
    Driver,
    GraphDatabase,
    ManagedTransaction,
    Transaction,
)

from embed_pipeline import (
    AsyncQueue,
    ConfigurationError,
    CostError,
    Embedding,
    EnqueueOutcome,
    EntityShape,
    InvalidJobError,
    Job,
    JobFilter,
    JobNotFoundError,
    JobStatus,
    ModelMismatchError,
    NewJob,
    Queue,
    QueueError,
    SchemaError,
    TransitionRefusedError,
)
from embed_pipeline.api.operations import through_this_loop
from tests.conftest import TestServer

SHAPE = EntityShape(
    label="Post", key="slug", vector="vec", valid_to="withdrawn", template="{title}: {body}"
)
EMBEDDING = Embedding("mock", "mock-door", 8, SHAPE)
NAME = "door"
WRITE = "MERGE (a:Post {slug: $slug}) SET a.title = $slug, a.body = $body"
WIPE = (
    "MATCH (n) WHERE n:Post OR n:EmbedJob_door OR n:EmbedAudit_door "
    "OR n:EmbedLimiter OR (n:EmbedQueue AND n.name = 'door') DETACH DELETE n"
)


class Program:
    """A program with a queue of one kind; its calls look the same for both."""

    def __init__(self, driver: Driver | AsyncDriver, database: str) -> None:
        self.driver: Any = driver
        kind: Any = AsyncQueue if isinstance(driver, AsyncDriver) else Queue
        self.open = lambda embedding: kind(driver, embedding, name=NAME, database=database)
        self.queue: Any = self.open(EMBEDDING)
        self.database = database

    async def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        answer = getattr(self.queue, method)(*arguments, **options)
        return await answer if inspect.isawaitable(answer) else answer

    async def run(self, statement: str, **parameters: Any) -> list[Any]:
        found = self.driver.execute_query(statement, parameters, database_=self.database)
        return (await found if inspect.isawaitable(found) else found).records

    async def publish(
        self, slug: str, *, fails: bool = False, managed: bool = False
    ) -> EnqueueOutcome:
        """What a web service does in one request."""
        in_a_transaction = self._managed if managed else self._own
        return await in_a_transaction(slug, fails=fails)

    async def _own(self, slug: str, *, fails: bool) -> EnqueueOutcome:
        """In a transaction that the program begins and commits."""
        if isinstance(self.queue, Queue):
            with self.driver.session(database=self.database) as session:
                tx = session.begin_transaction()
                tx.run(WRITE, slug=slug, body="text")
                outcome = self.queue.enqueue(slug, tx=tx)
                assert_type(outcome, EnqueueOutcome)
                if not fails:
                    tx.commit()
                return outcome
        async with self.driver.session(database=self.database) as session:
            tx = await session.begin_transaction()
            await tx.run(WRITE, slug=slug, body="text")
            outcome = await self.queue.enqueue(slug, tx=tx)
            if not fails:
                await tx.commit()
            return outcome

    async def _managed(self, slug: str, *, fails: bool) -> EnqueueOutcome:
        """In a transaction function of the driver."""
        outcomes: list[EnqueueOutcome] = []

        def write(tx: ManagedTransaction) -> None:
            tx.run(WRITE, slug=slug, body="text")
            outcomes.append(self.queue.enqueue(slug, tx=tx))
            if fails:
                raise LookupError

        async def write_async(tx: AsyncManagedTransaction) -> None:
            await tx.run(WRITE, slug=slug, body="text")
            outcomes.append(await self.queue.enqueue(slug, tx=tx))
            if fails:
                raise LookupError

        with suppress(LookupError):
            if isinstance(self.queue, Queue):
                with self.driver.session(database=self.database) as session:
                    session.execute_write(write)
            else:
                async with self.driver.session(database=self.database) as session:
                    await session.execute_write(write_async)
        return outcomes[-1]


@pytest.fixture(params=["sync", "async"])
async def program(
    request: pytest.FixtureRequest, neo4j_server: TestServer
) -> AsyncIterator[Program]:
    auth = (neo4j_server.username, neo4j_server.password)
    if request.param == "sync":
        with GraphDatabase.driver(neo4j_server.uri, auth=auth) as driver:
            yield await prepared(Program(driver, neo4j_server.database))
    else:
        async with AsyncGraphDatabase.driver(neo4j_server.uri, auth=auth) as driver:
            yield await prepared(Program(driver, neo4j_server.database))


async def prepared(program: Program) -> Program:
    await program.run(WIPE)
    await program.call("init")
    return program


async def counts(program: Program) -> dict[str, int]:
    metrics = await program.call("queue_status")
    return {status.value: count for status, count in metrics.counts.items() if count}


@pytest.mark.parametrize("managed", [False, True], ids=["own", "managed"])
async def test_m132_an_entity_and_its_job_commit_together_or_not_at_all(
    program: Program, managed: bool
) -> None:
    failed = await program.publish("rolled-back", fails=True, managed=managed)
    assert failed is EnqueueOutcome.CREATED
    assert await counts(program) == {}

    assert await program.publish("kept", managed=managed) is EnqueueOutcome.CREATED
    assert await program.publish("kept", managed=managed) is EnqueueOutcome.PRESENT

    [job] = await program.call("find_jobs")
    assert (job.entity_uid, job.model, job.status) == ("kept", "mock-door", JobStatus.PENDING)
    assert job.text_hash is not None
    assert len(await program.run("MATCH (a:Post) RETURN a")) == 1


async def test_m132_a_transaction_of_the_other_kind_of_driver_is_refused_unused(
    program: Program,
) -> None:
    is_sync = isinstance(program.queue, Queue)
    kinds: Any = (Transaction, ManagedTransaction)
    others: Any = (AsyncTransaction, AsyncManagedTransaction)

    for kind in others if is_sync else kinds:
        # Without its insides: whoever used it would fail.
        tx = kind.__new__(kind)
        with pytest.raises(ConfigurationError, match=f"this is an? {kind.__name__}; .*Nothing was"):
            await program.call("enqueue", "ada", tx=tx)


async def test_the_programs_own_driver_logs_no_hints_of_the_server(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    await program.publish("ada")
    await program.call("queue_status")
    await program.call("init")

    # No Post has ever been withdrawn: the server would say so with every statement.
    assert [line for line in caplog.messages if "DBMS" in line] == []


async def test_what_costs_much_is_enqueued_only_if_it_is_meant(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBEDDING_PRICE_USD_PER_MILLION", "1000000")
    program.queue = program.open(EMBEDDING)
    for slug in ("ada", "grace"):
        await program.run(WRITE, slug=slug, body="text")

    with pytest.raises(CostError, match=r"EMBED_CONFIRM_USD, 1\. .*accept_cost=True"):
        await program.call("enqueue_many", ["ada", "grace"])
    nothing = await counts(program)
    outcomes = await program.call("enqueue_many", ["ada", "grace"], accept_cost=True)

    assert nothing == {}
    assert outcomes == [EnqueueOutcome.CREATED] * 2


async def test_m132_a_program_works_looks_and_acts(program: Program) -> None:
    for slug in ("ada", "grace", "alan"):
        await program.run(WRITE, slug=slug, body=f"about {slug}")
    created = await program.call("enqueue_many", ["ada", "grace"])
    created += await program.call("enqueue_many", [NewJob("alan", "mock-door", priority=5)])
    assert created == [EnqueueOutcome.CREATED] * 3
    [alan] = await program.call("find_jobs", JobFilter(entity_uids=("alan",)))

    preview = await program.call("cancel", JobFilter(entity_uids=("alan",)), preview=True)
    await program.call("cancel_job", alan.id, reason="not yet")
    first = await program.call("process_jobs", 1)
    await program.call("pause")
    refused = await program.call("process_jobs")
    await program.call("resume")
    rest = await program.call("process_jobs", max_time=timedelta(minutes=1))

    assert preview.count == 1
    seen = await program.call("job_status", alan.id)
    assert (seen.status, seen.error) == (JobStatus.CANCELLED, "not yet")
    assert seen.cancelled_by == "a Python program"
    assert (first.completed, refused.completed, rest.completed) == (1, 0, 1)
    assert "paused by a Python program" in refused.reason
    assert await counts(program) == {"completed": 2, "cancelled": 1}
    hits = await program.call("search", "grace: about grace", limit=2)
    assert (hits[0].uid, hits[0].text) == ("grace", "grace: about grace")
    assert hits[0].score == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(TransitionRefusedError):
        await program.call("cancel_job", alan.id)
    with pytest.raises(JobNotFoundError):
        await program.call("job_status", "nobody")


async def test_m132_failed_and_left_jobs_are_retried_released_and_recovered(
    program: Program,
) -> None:
    await program.publish("ada")
    await program.publish("grace")
    await program.run(
        "MATCH (j:EmbedJob_door {entity_uid: 'ada'}) REMOVE j:EmbedPending_door "
        "SET j:EmbedFailed_door, j.status = 'failed', j.error_category = 'TRANSIENT', "
        "j.processed_at = timestamp()"
    )
    await program.run(
        "MATCH (j:EmbedJob_door {entity_uid: 'grace'}) REMOVE j:EmbedPending_door "
        "SET j:EmbedProcessing_door, j.status = 'processing', j.attempts = 1, j.fence = 1, "
        "j.lock_owner = 'run-1/host/7', j.lock_until = timestamp() + 600000"
    )

    await program.publish("alan")
    await program.run(
        "MATCH (j:EmbedJob_door {entity_uid: 'alan'}) REMOVE j:EmbedPending_door "
        "SET j:EmbedProcessing_door, j.status = 'processing', j.attempts = 1, j.fence = 1, "
        "j.lock_owner = 'run-2/host/7', j.lock_until = timestamp() - 1000"
    )

    expired = await program.call("find_expired")
    retried = await program.call("retry_failed", JobFilter())
    recovered = await program.call("recover")
    released = await program.call("release", "run-1")

    assert [job.entity_uid for job in expired] == ["alan"]
    assert [job.entity_uid for job in recovered] == ["alan"]
    assert (retried.count, released) == (1, 1)
    assert await counts(program) == {"pending": 3}
    assert (await program.call("scan", dry_run=True)).entities == 3


async def test_m132_what_the_retention_has_ended_is_deleted(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    program.queue = program.open(EMBEDDING)
    for slug in ("ada", "grace", "alan"):
        await program.publish(slug)
    await program.call("cancel", JobFilter(entity_uids=("ada", "grace")))
    await program.run(
        "MATCH (j:EmbedJob_door) WHERE j.entity_uid IN ['ada', 'alan'] "
        "SET j.processed_at = j.processed_at - 15 * 86400000"
    )

    would = await program.call("cleanup", dry_run=True)
    kept = await counts(program)
    done = await program.call("cleanup")

    assert (would.jobs.deleted, would.is_needed, would.jobs.is_dry_run) == (1, True, True)
    assert kept == {"cancelled": 2, "pending": 1}
    assert (done.jobs.deleted, done.jobs.is_dry_run) == (1, False)
    assert await counts(program) == {"cancelled": 1, "pending": 1}
    [purge] = await program.run("MATCH (a:EmbedAudit_door {action: 'purge'}) RETURN a.actor AS by")
    assert purge["by"] == "a Python program"
    assert not (await program.call("cleanup", dry_run=True)).is_needed


async def test_m132_what_cannot_be_meant_is_refused_and_changes_nothing(program: Program) -> None:
    await program.publish("ada")
    stranger = program.open(replace(EMBEDDING, model="mock-other"))

    with pytest.raises(QueueError, match="no current Post has the slug 'nobody'"):
        await program.call("enqueue_many", ["ada", "nobody"])
    with pytest.raises(InvalidJobError, match="the model 'other'"):
        await program.call("enqueue", NewJob("ada", "other"))
    own, program.queue = program.queue, stranger
    with pytest.raises(ModelMismatchError):
        await program.publish("grace")
    for method, argument in (("queue_status", ()), ("enqueue", ("ada",)), ("search", ("x",))):
        with pytest.raises(ModelMismatchError):
            await program.call(method, *argument)
    await program.run("MATCH (q:EmbedQueue {name: 'door'}) DELETE q")
    program.queue = own
    with pytest.raises(SchemaError, match="embed-pipeline init"):
        await program.publish("grace")


async def test_each_kind_of_driver_has_its_own_kind_of_queue(program: Program) -> None:
    other: Any = Queue if isinstance(program.driver, AsyncDriver) else AsyncQueue

    with pytest.raises(ConfigurationError, match=r"takes an? (Async)?Driver"):
        other(program.driver, EMBEDDING)


def test_m132_from_settings_the_queue_has_a_driver_of_its_own(
    neo4j_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = {"EMBED_ENTITY_LABEL": "Post", "EMBED_ENTITY_KEY": "slug"}
    shape |= {"EMBED_ENTITY_VECTOR": "vec", "EMBED_ENTITY_TEMPLATE": "{title}: {body}"}
    provider = {"EMBEDDING_PROVIDER": "mock", "EMBEDDING_MODEL": "door", "EMBED_QUEUE": NAME}
    provider |= {"EMBEDDING_DIMENSIONS": "8", "EMBED_JOB_RETENTION_DAYS": "14"}
    for name, value in {**neo4j_server.environment, **shape, **provider}.items():
        monkeypatch.setenv(name, value)

    with Queue.from_settings() as queue:
        queue.init()
        found = queue.find_jobs()
    assert_type(found, list[Job])

    async def with_a_loop() -> list[Job]:
        async with AsyncQueue.from_settings() as own:
            return await own.find_jobs()

    assert asyncio.run(with_a_loop()) == found


async def test_a_heartbeat_reaches_the_loop_of_the_driver(neo4j_server: TestServer) -> None:
    auth = (neo4j_server.username, neo4j_server.password)
    async with AsyncGraphDatabase.driver(neo4j_server.uri, auth=auth) as driver:
        program = await prepared(Program(driver, neo4j_server.database))
        await program.publish("ada")
        store = program.queue.store
        batch = await store.jobs.lease(
            owner="me", model="mock-door", limit=1, duration=timedelta(minutes=5)
        )
        open_store, held = through_this_loop(store), []

        async def beat() -> None:
            async with open_store() as jobs:
                leases = [job.lease for job in batch.jobs]
                found = await jobs.heartbeat(leases, duration=timedelta(minutes=5))
                held.extend(found.held)

        thread = threading.Thread(target=lambda: asyncio.run(beat()))
        thread.start()
        await asyncio.to_thread(thread.join)

        assert held == [job.lease for job in batch.jobs]
