"""One decision on what a changed text does to its job: in the trigger as in Python."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import pytest

from embed_pipeline.domain.job import JobStatus, NewJob
from embed_pipeline.domain.lifecycle import EnqueueOutcome, Existing, on_enqueue
from embed_pipeline.store.database import to_ms
from embed_pipeline.store.moves import BY_QUEUE
from tests.support.queue_harness import MODEL, Neo4jUnderTest, assert_consistent

PRESENT, PROMOTED = EnqueueOutcome.PRESENT, EnqueueOutcome.PROMOTED
REVIVED = EnqueueOutcome.REVIVED
LATER: Final = 60_000
OF_A_LEASE: Final = {"lock_owner": "worker", "lock_until": 4_000_000_000_000, "fence": 1}


@dataclass(frozen=True)
class Case:
    """What the decision depends on."""

    status: JobStatus
    is_put_off: bool
    attempts: int
    cancelled_by: str | None = None

    @property
    def uid(self) -> str:
        return "/".join(map(str, (self.status, self.is_put_off, self.attempts, self.cancelled_by)))

    @property
    def decided(self) -> EnqueueOutcome:
        """What Python does when the text has changed."""
        by_operator = self.cancelled_by not in (None, BY_QUEUE)
        existing = Existing(self.status, 0, "before", by_operator, self.is_put_off)
        return on_enqueue(existing, NewJob(self.uid, MODEL, text_hash="after"))


CASES: Final = [
    Case(status, is_put_off, attempts, by)
    for status, is_put_off, attempts in product(JobStatus, (False, True), (0, 1))
    for by in ((None, BY_QUEUE, "an operator") if status is JobStatus.CANCELLED else (None,))
]
ON_PURPOSE: Final = {Case(JobStatus.PENDING, is_put_off=True, attempts=1): PRESENT}
"""A job that was put off and has failed since waits for its retry: Python promotes it without
touching the time of the retry, and the trigger leaves it alone altogether."""


@pytest.fixture
async def watched(queue: Neo4jUnderTest) -> AsyncIterator[Neo4jUnderTest]:
    triggers = queue.queue.triggers(MODEL)
    assert (await triggers.install()).is_active
    yield queue
    assert await triggers.drop()


async def given(queue: Neo4jUnderTest) -> dict[str, dict[str, Any]]:
    """A job for every case, written past the store."""
    now = to_ms(queue.clock.now)
    await queue.put_entities([case.uid for case in CASES])
    states = {
        case.uid: {
            **properties_of(case, now),
            "attempts": case.attempts,
            "put_off": case.is_put_off or None,
            "cancelled_by": case.cancelled_by,
            "text_hash": "before",
        }
        for case in CASES
    }
    await queue.put_jobs({case.uid: (case.status, states[case.uid]) for case in CASES})
    return {node["entity_uid"]: node for node in await queue.nodes()}


def properties_of(case: Case, now: int) -> dict[str, Any]:
    """What a job in this state has besides."""
    if case.status is JobStatus.PROCESSING:
        return OF_A_LEASE
    if case.status.is_terminal:
        return {"processed_at": now}
    is_waiting = case.is_put_off or case.attempts > 0
    return {"run_after": now + LATER} if is_waiting else {"ready_at": now, "urgency": 0}


def done(before: dict[str, Any], after: dict[str, Any]) -> EnqueueOutcome:
    """What has happened to a job; a lock that was taken is no change."""
    if {**before, "_lock": None} == {**after, "_lock": None}:
        return PRESENT
    assert (after["status"], after["attempts"], after["urgency"]) == ("pending", 0, 0)
    left = {"run_after", "put_off", "cancelled_by", "processed_at", "text_hash"} & set(after)
    assert left == set()
    return PROMOTED if before["status"] == "pending" else REVIVED


async def test_m117_a_changed_text_does_the_same_through_the_trigger_as_in_python(
    watched: Neo4jUnderTest,
) -> None:
    before = await given(watched)

    await watched.run("MATCH (e:Entity) SET e.observations = ['changed']")

    after = {node["entity_uid"]: node for node in await watched.nodes()}
    assert_consistent(list(after.values()))
    expected = {case: ON_PURPOSE.get(case, case.decided) for case in CASES}
    assert {case: done(before[case.uid], after[case.uid]) for case in CASES} == expected
    assert {case for case in CASES if case.decided is not expected[case]} == set(ON_PURPOSE)
    assert set(expected.values()) == {PRESENT, PROMOTED, REVIVED}
