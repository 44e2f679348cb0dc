"""Queues in memory behave for a program like those in Neo4j."""

import inspect
import threading
from datetime import timedelta
from typing import Any

import pytest

from embed_pipeline import (
    AsyncQueue,
    Embedding,
    EnqueueOutcome,
    EntityShape,
    InvalidJobError,
    JobFilter,
    JobStatus,
    NewJob,
    Pieces,
    Queue,
    QueueError,
    TransitionRefusedError,
)
from embed_pipeline.testing import FakeClock, InMemoryAsyncQueue, InMemoryQueue
from embed_pipeline.worker.report import Ending

SHAPE = EntityShape(label="Post", key="slug", vector="vec", template="{title}: {body}")
EMBEDDING = Embedding("openai", "text-embedding-3-small", 16, SHAPE)


class Program:
    """Calls that look the same for both kinds."""

    def __init__(self, kind: Any) -> None:
        self.clock = FakeClock()
        self.queue = kind(EMBEDDING, clock=self.clock)

    async def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        answer = getattr(self.queue, method)(*arguments, **options)
        return await answer if inspect.isawaitable(answer) else answer


@pytest.fixture(params=[InMemoryQueue, InMemoryAsyncQueue])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def program(kind: Any) -> Program:
    return Program(kind)


async def test_m132_a_program_works_looks_and_acts_in_memory(program: Program) -> None:
    for slug in ("ada", "grace", "alan"):
        program.queue.put(slug, {"title": slug, "body": f"about {slug}"})
    await program.call("init")
    assert await program.call("enqueue", "ada", tx=object()) is EnqueueOutcome.CREATED
    await program.call("enqueue_many", ["grace", NewJob("alan", "mock-text-embedding-3-small")])
    [alan] = await program.call("find_jobs", JobFilter(entity_uids=("alan",)))

    await program.call("cancel_job", alan.id, reason="not yet")
    first = await program.call("process_jobs", 1)
    await program.call("pause")
    refused = await program.call("process_jobs")
    await program.call("resume")
    rest = await program.call("process_jobs")

    assert (first.completed, refused.completed, rest.completed) == (1, 0, 1)
    assert (await program.call("job_status", alan.id)).cancelled_by == "a Python program"
    metrics = await program.call("queue_status")
    assert metrics.counts[JobStatus.COMPLETED] == metrics.completed_in_window == 2
    program.clock.advance(timedelta(minutes=6))
    assert (await program.call("queue_status")).completed_in_window == 0
    hits = await program.call("search", "grace: about grace")
    assert (hits[0].uid, hits[0].text) == ("grace", "grace: about grace")
    assert hits[0].score == pytest.approx(1.0)
    with pytest.raises(QueueError, match="no current Post has the slug 'nobody'"):
        await program.call("enqueue", "nobody")
    with pytest.raises(InvalidJobError, match="the model 'other'"):
        await program.call("enqueue", NewJob("ada", "other"))
    with pytest.raises(TransitionRefusedError):
        await program.call("cancel_job", alan.id)


async def test_m132_a_changed_text_is_found_by_the_scan_in_memory(program: Program) -> None:
    program.queue.put("ada", {"title": "Ada", "body": "one"})
    await program.call("scan")
    await program.call("process_jobs")

    program.queue.put("ada", {"title": "Ada", "body": "two"})
    seen = await program.call("scan", dry_run=True)
    assert seen.entities == 1
    assert (await program.call("queue_status")).counts[JobStatus.PENDING] == 0
    await program.call("scan")

    assert (await program.call("queue_status")).counts[JobStatus.PENDING] == 1


async def test_m132_what_the_retention_has_ended_is_deleted_in_memory(
    monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS_COMPLETED", "7")
    program = Program(kind)
    for slug in ("ada", "grace"):
        program.queue.put(slug, {"title": slug, "body": "text"})
        await program.call("enqueue", slug)
    await program.call("process_jobs", 1)
    [left] = await program.call("find_jobs", JobFilter(statuses=frozenset({JobStatus.PENDING})))
    await program.call("cancel_job", left.id)
    program.clock.advance(timedelta(days=8))

    would = await program.call("cleanup", dry_run=True)
    kept = await program.call("find_jobs")
    done = await program.call("cleanup")

    assert (would.jobs.deleted, len(kept), done.jobs.deleted) == (1, 2, 1)
    assert [job.id for job in await program.call("find_jobs")] == [left.id]


def test_m132_a_sync_program_that_is_told_to_stop_leases_nothing_more() -> None:
    queue, stop = InMemoryQueue(EMBEDDING), threading.Event()
    queue.put("ada", {"title": "Ada", "body": "one"})
    queue.enqueue("ada")

    stop.set()
    stopped = queue.process_jobs(stop=stop)
    stop.clear()
    ended = queue.process_jobs(stop=stop)

    assert (stopped.completed, stopped.ending) == (0, Ending.STOPPED)
    assert (ended.completed, ended.ending) == (1, Ending.EMPTY)


def test_queues_in_memory_stand_where_a_queue_is_wanted() -> None:
    assert isinstance(InMemoryQueue(EMBEDDING), Queue)
    assert isinstance(InMemoryAsyncQueue(EMBEDDING), AsyncQueue)


async def test_m121_in_memory_too_only_the_pieces_around_an_edit_are_made_anew() -> None:
    shape = EntityShape(template="{body}", pieces=Pieces(tokens=16))
    queue = InMemoryAsyncQueue(Embedding("openai", "text-embedding-3-small", 16, shape))
    lines = [f"Line {number} tells of topic {number} and nothing else." for number in range(20)]
    queue.put("ada", {"name": "ada", "body": "\n".join(lines)})
    await queue.scan()
    await queue.process_jobs()
    before = queue.fake.entities["ada"].pieces
    queue.put("ada", {"name": "ada", "body": "\n".join([*lines[:9], "Other.", *lines[10:]])})

    await queue.scan()
    await queue.process_jobs()

    after = queue.fake.entities["ada"].pieces
    known = {piece.text_hash for piece in before}
    [job] = await queue.find_jobs(JobFilter())
    new = [piece for piece in after if piece.text_hash not in known]
    assert "".join(piece.text for piece in before) == "\n".join(lines)
    assert 0 < len(new) <= 4 < len(after) == job.pieces
