"""A queue belongs to one model: the first one wins, and only a deliberate change takes it away."""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.errors import ErrorCategory, ModelMismatchError
from embed_pipeline.domain.figures import queue_figures
from embed_pipeline.domain.health import Objectives, Reading, examine
from embed_pipeline.domain.identity import Identity
from embed_pipeline.domain.job import JobFilter, JobStatus, NewJob
from embed_pipeline.domain.metrics import QueueMetrics
from embed_pipeline.domain.prices import Price
from embed_pipeline.operations.scan import Scan
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.identity import read_identity
from embed_pipeline.store.queue import Queue, open_queue
from embed_pipeline.worker.chores import Counting
from embed_pipeline.worker.report import DrainReport
from tests.support.queue_harness import DIMENSIONS, LEASE, MODEL, Neo4jUnderTest

OURS = Identity.of(EntityShape(), provider="openai", model=MODEL, dimensions=DIMENSIONS)
OTHERS = {
    "provider": replace(OURS, provider="mock"),
    "model": replace(OURS, model="other-model"),
    "dimensions": replace(OURS, dimensions=DIMENSIONS + 1),
    "template": Identity.of(
        EntityShape(template="{title}"), provider="openai", model=MODEL, dimensions=DIMENSIONS
    ),
    "properties": Identity.of(
        EntityShape(observations="facts"), provider="openai", model=MODEL, dimensions=DIMENSIONS
    ),
}


def deployment(queue: Neo4jUnderTest, identity: Identity = OURS) -> Queue:
    """The queue as somebody opens it whose settings make vectors of this identity."""
    config = QueueConfig(identity=identity, roll=lambda: 0.0)
    return open_queue(queue.driver, database=queue.database, config=config, clock=queue.clock)


def red(metrics: QueueMetrics, model: str) -> set[str]:
    """The checks that this reading fails; a day is allowed for everything."""
    day = timedelta(days=1)
    reading = Reading(model, DIMENSIONS, None, None, metrics, None)
    verdicts = examine(reading, Objectives(day, day, 30 * day, day, 1, 95))
    return {verdict.check.name for verdict in verdicts if verdict.passed is False}


async def held(queue: Neo4jUnderTest) -> Identity | None:
    [row] = await queue.run("MATCH (queue:EmbedQueue {name: 'default'}) RETURN queue {.*} AS queue")
    return read_identity(row["queue"])


async def test_a_queue_without_a_model_gets_that_of_the_first(queue: Neo4jUnderTest) -> None:
    before = await held(queue)

    await deployment(queue).identity.claim()
    await deployment(queue).identity.claim()

    assert before is None
    assert await held(queue) == OURS


@pytest.mark.parametrize("other", OTHERS.values(), ids=list(OTHERS))
async def test_another_identity_is_refused_with_both_names_and_what_to_do(
    queue: Neo4jUnderTest, other: Identity
) -> None:
    await deployment(queue).identity.claim()

    with pytest.raises(ModelMismatchError) as refused:
        await deployment(queue, other).identity.claim()

    has_other_text = other.recipe != OURS.recipe
    for words in (
        OURS.described(with_text=has_other_text),
        other.described(with_text=has_other_text),
        "EMBED_QUEUE",
        "EMBED_ENTITY_VECTOR",
        "embed-pipeline init --change-model",
    ):
        assert words in str(refused.value)
    assert OURS.described(with_text=has_other_text) != other.described(with_text=has_other_text)
    assert await held(queue) == OURS


async def test_of_two_that_come_at_once_one_is_refused(queue: Neo4jUnderTest) -> None:
    for _ in range(5):
        await queue.run("MATCH (queue:EmbedQueue) SET queue.identity_model = null")
        claims = [deployment(queue, i).identity.claim() for i in [OURS, OTHERS["model"]] * 4]

        answers = await asyncio.gather(*claims, return_exceptions=True)

        assert Counter(type(answer) for answer in answers) == {type(None): 4, ModelMismatchError: 4}
        winner = await held(queue)
        assert answers[0 if winner == OURS else 1] is None


async def test_nobody_leases_from_a_queue_of_another_model(queue: Neo4jUnderTest) -> None:
    await queue.given_jobs("ada")
    await deployment(queue).identity.claim()
    before = await queue.nodes()

    with pytest.raises(ModelMismatchError):
        await deployment(queue, OTHERS["provider"]).jobs.lease(
            owner="run-2", model=MODEL, limit=10, duration=LEASE
        )

    assert await queue.nodes() == before


async def test_a_drain_under_way_leases_nothing_after_a_deliberate_change(
    queue: Neo4jUnderTest,
) -> None:
    await queue.given_jobs("ada", "bob")
    under_way = deployment(queue)
    await under_way.identity.claim()
    ask = {"owner": "run-1", "model": MODEL, "limit": 1, "duration": LEASE}
    assert len((await under_way.jobs.lease(**ask)).jobs) == 1

    await deployment(queue, OTHERS["model"]).identity.change()

    with pytest.raises(ModelMismatchError, match="holds vectors of openai other-model"):
        await under_way.jobs.lease(**ask)
    assert await held(queue) == OTHERS["model"]


@pytest.mark.parametrize("dry_run", [False, True])
async def test_the_scan_of_another_model_enqueues_nothing(
    queue: Neo4jUnderTest, dry_run: bool
) -> None:
    await queue.put_entity("ada")
    await deployment(queue).identity.claim()

    with pytest.raises(ModelMismatchError):
        await deployment(queue, OTHERS["model"]).reconciler("other-model").page(dry_run=dry_run)

    assert await queue.nodes() == []


async def test_m83_jobs_of_a_former_model_are_superseded_by_the_scan_and_revived_by_going_back(
    queue: Neo4jUnderTest,
) -> None:
    ours, other = deployment(queue), deployment(queue, OTHERS["model"])
    await ours.identity.claim()
    await queue.given_jobs("waiting", "delayed", "suspect")
    leases = {item.lease.entity_uid: item.lease for item in (await queue.lease()).jobs}
    await queue.jobs.release([leases["waiting"]])
    await queue.fail(leases["delayed"])
    await queue.expire()
    await queue.jobs.recover_expired(limit=1)
    queue.clock.advance(timedelta(days=3))
    assert red(await ours.metrics.read(), MODEL) == {"oldest_pending_in_time", "recoveries_ran"}
    await queue.jobs.recover_expired(limit=1)
    await other.identity.change()

    before = await other.metrics.read()
    assert (before.former_model, before.oldest_pending) == (3, None)
    assert red(before, "other-model") == set()

    await Scan.begin(other.reconciler("other-model")).go_on()
    after = await other.metrics.read()
    assert after.former_model == 0
    assert {(job.model, job.status.value) for job in await other.admin.find_jobs(JobFilter())} == {
        (MODEL, "cancelled"),
        ("other-model", "pending"),
    }
    reasons = {job.error for job in await other.admin.find_jobs(JobFilter(model=MODEL))}
    assert reasons == {"superseded: the queue belongs to other-model now"}

    await ours.identity.change()
    await Scan.begin(ours.reconciler(MODEL)).go_on()
    back = await ours.admin.find_jobs(JobFilter(model=MODEL))
    assert [job.status.value for job in back] == ["pending"] * 3


async def test_m81_no_total_falls_over_revive_retry_and_cleanup(queue: Neo4jUnderTest) -> None:
    async def totals() -> dict[str, int | float]:
        figures = queue_figures(await queue.queue.metrics.read())
        return {name: value for name, value in figures.items() if name.endswith("_total")}

    await queue.in_state("ada", JobStatus.COMPLETED)
    await queue.in_state("eve", JobStatus.FAILED)
    # As the drain does that has completed it.
    await queue.admin.count({"completed": 1})
    seen = [await totals()]
    await queue.admin.enqueue([NewJob("ada", MODEL, force=True)])
    seen.append(await totals())
    await queue.admin.retry_failed(JobFilter(categories=frozenset(ErrorCategory)))
    seen.append(await totals())
    for item in (await queue.lease()).jobs:
        await queue.complete(item.lease)
    queue.clock.advance(timedelta(days=40))
    assert await queue.purge(timedelta(days=7)) == 2
    seen.append(await totals())

    for earlier, later in pairwise(seen):
        assert [name for name in earlier if later[name] < earlier[name]] == []
    assert seen[-1]["completed_total"] == 1


async def test_m81_a_queue_of_an_older_version_keeps_its_number_of_completions(
    queue: Neo4jUnderTest,
) -> None:
    await queue.in_state("ada", JobStatus.COMPLETED)
    await queue.run(
        "MATCH (c:EmbedCounters {name: 'default'}) SET c.completed = null, c.deleted_completed = 7"
    )

    await queue.install()
    await queue.install()

    assert (await queue.counters())["completed"] == 8


async def test_m81_a_cheaper_model_leaves_what_was_paid(queue: Neo4jUnderTest) -> None:
    async def count(price: Price) -> float:
        report = DrainReport("owner", "model", requests=1, tokens=1_000_000, price=price)
        await Counting(queue.admin, report).send()
        return queue_figures(await queue.queue.metrics.read())["cost_usd_total"]

    totals = [await count(price) for price in (Price(0.13), Price(0.02), Price())]

    assert totals == [0.13, 0.15, 0.15]
