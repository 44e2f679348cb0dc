"""One rule of lanes: what Python decides and what the database decides are the same."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import pytest

from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import JobStatus, NewJob
from embed_pipeline.store.cypher import worker as cypher_worker
from embed_pipeline.store.cypher.lanes import LANE, enter_lane
from embed_pipeline.store.database import to_ms
from embed_pipeline.store.moves import lane
from tests.support.queue_harness import MODEL, Neo4jUnderTest, assert_consistent

LEFT_OVER: Final = {"urgency": -77, "ready_at": 77, "suspect_at": 77, "run_after": 77}
"""Properties of all lanes at once: whoever moves a job must leave none of them."""
MINUTE: Final = 60_000
FRESH: Final = {"expiries": 0, "run_after": None}
"""What a job has that is opened again."""


@dataclass(frozen=True)
class Case:
    """What the lane of a job depends on; ``delay`` is its ``run_after`` seen from now."""

    status: JobStatus
    expiries: int
    delay: int | None
    priority: int

    @property
    def uid(self) -> str:
        return f"{self.status}/{self.expiries}/{self.delay}/{self.priority}"


CASES: Final = [
    Case(*parts)
    for parts in product(
        (JobStatus.PENDING, JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED),
        (0, 1, 3),
        (None, -MINUTE, 0, MINUTE),
        (-1, 0, 5),
    )
]
WAITING: Final = [case for case in CASES if case.status is JobStatus.PENDING]
ENDED: Final = [case for case in CASES if case.status is not JobStatus.PENDING]


@pytest.fixture
async def watched(queue: Neo4jUnderTest) -> AsyncIterator[Neo4jUnderTest]:
    triggers = queue.queue.triggers(MODEL)
    assert (await triggers.install()).is_active
    yield queue
    assert await triggers.drop()


async def given(queue: Neo4jUnderTest, cases: list[Case]) -> None:
    """A job for every case, written past the store, with what is left of all lanes."""
    now = to_ms(queue.clock.now)
    await queue.put_entities([case.uid for case in cases])
    await queue.admin.enqueue([NewJob(case.uid, MODEL) for case in cases])
    states = {
        case.uid: {
            **LEFT_OVER,
            "expiries": case.expiries,
            "priority": case.priority,
            "queued_at": now - 2 * MINUTE,
            "processed_at": None if case in WAITING else now - MINUTE,
            "run_after": None if case.delay is None else now + case.delay,
        }
        for case in cases
    }
    await queue.put_jobs({case.uid: (case.status, states[case.uid]) for case in cases})


async def lanes(queue: Neo4jUnderTest) -> dict[str, dict[str, Any]]:
    """The lane of every job, as the database has it."""
    return {
        node["entity_uid"]: {name: node[name] for name in LANE if name in node}
        for node in await queue.nodes()
    }


def decided(case: Case, now: int, **other: int | None) -> dict[str, int]:
    """The lane of a case, as Python decides it."""
    facts = {
        "priority": case.priority,
        "queued_at": now - 2 * MINUTE,
        "expiries": case.expiries,
        "run_after": None if case.delay is None else now + case.delay,
    }
    chosen = lane(**facts | other, now=now)  # pyright: ignore[reportArgumentType]
    return {name: value for name, value in chosen.items() if value is not None}


def test_a_job_is_in_exactly_one_lane() -> None:
    for case in WAITING:
        chosen = decided(case, 1_000_000)
        ways = [name for name in ("ready_at", "suspect_at", "run_after") if name in chosen]
        assert len(ways) == 1, case
        assert ("urgency" in chosen) == (ways == ["ready_at"]), case


async def test_the_fragment_decides_as_python_does(queue: Neo4jUnderTest) -> None:
    await given(queue, CASES)
    now = to_ms(queue.clock.now)

    await queue.run(
        "WITH $now AS now MATCH (job:EmbedJob) WITH job, now, job.run_after AS run_after SET"
        + enter_lane(
            priority="job.priority",
            queued_at="job.queued_at",
            expiries="job.expiries",
            run_after="run_after",
        ),
        now=now,
    )

    assert await lanes(queue) == {case.uid: decided(case, now) for case in CASES}


async def test_a_retry_whose_time_has_come_enters_the_lane_that_python_says(
    queue: Neo4jUnderTest,
) -> None:
    delayed = [case for case in WAITING if case.delay is not None]
    await given(queue, delayed)
    now = to_ms(queue.clock.now)

    ids = [node["id"] for node in await queue.nodes()]
    await queue.run(cypher_worker.ENTER_LANES, ids=sorted(ids), now=now)

    assert await lanes(queue) == {case.uid: decided(case, now) for case in delayed}


async def test_enqueue_revives_and_creates_in_the_lane_that_python_says(
    queue: Neo4jUnderTest,
) -> None:
    await given(queue, ENDED)
    now = to_ms(queue.clock.now)

    wishes = [NewJob(case.uid, MODEL, priority=case.priority, force=True) for case in ENDED]
    await queue.admin.enqueue([*wishes, NewJob("new", MODEL, priority=7)])

    fresh = {case.uid: decided(case, now, **FRESH, queued_at=now) for case in ENDED}
    assert await lanes(queue) == fresh | {"new": {"urgency": -7, "ready_at": now}}


async def test_the_trigger_revives_and_creates_in_the_lane_that_python_says(
    watched: Neo4jUnderTest,
) -> None:
    await given(watched, ENDED)

    await watched.run("MATCH (e:Entity) SET e.observations = ['changed']")
    await watched.put_entity("new")

    nodes = await watched.nodes()
    assert_consistent(nodes)
    at = {node["entity_uid"]: node["queued_at"] for node in nodes}
    fresh = {
        case.uid: decided(case, at[case.uid], **FRESH, queued_at=at[case.uid]) for case in ENDED
    }
    assert await lanes(watched) == fresh | {"new": {"urgency": 0, "ready_at": at["new"]}}


async def test_a_higher_priority_moves_no_job_to_another_lane(queue: Neo4jUnderTest) -> None:
    await given(queue, WAITING)
    now = to_ms(queue.clock.now)

    await queue.admin.enqueue([NewJob(case.uid, MODEL, priority=9) for case in WAITING])

    assert await lanes(queue) == {case.uid: decided(case, now, priority=9) for case in WAITING}


async def test_a_former_suspect_that_the_trigger_revives_is_counted_once(
    watched: Neo4jUnderTest,
) -> None:
    await watched.leased("ada")
    await watched.expire()
    await watched.jobs.recover_expired(limit=10)
    [item] = (await watched.lease()).jobs
    await watched.fail(item.lease, category=ErrorCategory.PERMANENT)

    await watched.run("MATCH (e:Entity {name: 'ada'}) SET e.observations = ['changed']")

    assert_consistent(await watched.nodes())
    metrics = await watched.queue.metrics.read()
    assert (metrics.ready, metrics.suspects) == (1, 0)
    assert (await watched.backlog()).due == 1
