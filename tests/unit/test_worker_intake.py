"""When a drain asks for jobs, and when it must not."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.job import NewJob
from embed_pipeline.domain.text import RECIPE, render_for
from embed_pipeline.embedding.mock import MockEmbedder
from embed_pipeline.worker import intake as intake_module
from embed_pipeline.worker.engine import Parts
from embed_pipeline.worker.holdings import Holdings
from embed_pipeline.worker.intake import Intake
from embed_pipeline.worker.options import DrainOptions
from embed_pipeline.worker.report import DrainReport
from tests.fakes import FakeClock, FakeQueue, FakeRateLimiter

MODEL = "mock-model"


@pytest.fixture
def queue() -> FakeQueue:
    return FakeQueue()


@pytest.fixture
def holdings() -> Holdings:
    return Holdings()


@pytest.fixture
def intake(queue: FakeQueue, holdings: Holdings) -> Intake:
    parts: Any = Parts(
        store=queue,
        open_store=None,  # pyright: ignore[reportArgumentType]
        limiter=FakeRateLimiter(),
        switch=queue,
        counters=None,  # pyright: ignore[reportArgumentType]
        embedder=MockEmbedder(model=MODEL, dimensions=4),
        render=render_for(EntityShape()),
        recipe=RECIPE,
    )
    report = DrainReport(owner="run-1", model=MODEL)
    return Intake(parts, DrainOptions(), holdings, report)


async def given_suspect(queue: FakeQueue) -> None:
    queue.put_entity("suspect", "text")
    await queue.enqueue([NewJob("suspect", MODEL)])
    await queue.lease(owner="dead", model=MODEL, limit=1, duration=timedelta(seconds=1))
    queue.clock.advance(timedelta(seconds=2))
    await queue.recover_expired(limit=1)


async def test_nothing_is_leased_beside_a_suspect(
    queue: FakeQueue, intake: Intake, holdings: Holdings
) -> None:
    await given_suspect(queue)

    [[item]] = (await intake.take()).requests

    assert item.leased.is_suspect
    assert not intake.may_lease
    holdings.drop([item.leased.lease])
    assert intake.may_lease


async def test_a_busy_worker_lets_its_work_run_dry_for_a_suspect(
    queue: FakeQueue, intake: Intake, holdings: Holdings
) -> None:
    for number in range(30):
        queue.put_entity(f"e{number}", "text")
    await queue.enqueue([NewJob(f"e{number}", MODEL) for number in range(30)])
    intake._options = DrainOptions(jobs_per_lease=1)

    taken = 0
    while intake.may_lease:
        await intake.take()
        taken += 1

    assert taken == 9
    holdings.drop(holdings.all())
    await given_suspect(queue)
    [[item]] = (await intake.take()).requests
    assert item.leased.is_suspect


@pytest.mark.parametrize(
    "options", [{"linger": timedelta(hours=1)}, {"until_empty": False}], ids=["lingers", "stays"]
)
async def test_a_worker_that_waits_for_jobs_looks_once_per_pause(
    intake: Intake, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    clock = FakeClock()
    moved = SimpleNamespace(monotonic=lambda: clock().timestamp())
    monkeypatch.setattr(intake_module, "time", moved)
    intake._options = DrainOptions(**options)

    looks = 0
    for _ in range(30):
        while intake.may_lease:
            await intake.take()
            looks += 1
        clock.advance(intake._options.idle_pause)

    assert looks == 30


async def test_a_worker_that_waits_for_jobs_never_looks_for_suspects_only(
    queue: FakeQueue, intake: Intake
) -> None:
    intake._options = DrainOptions(linger=timedelta(hours=1))
    for _ in range(9):
        await intake.take()
    queue.put_entity("late", "text")
    await queue.enqueue([NewJob("late", MODEL)])

    [[item]] = (await intake.take()).requests

    assert item.leased.lease.entity_uid == "late"


async def test_a_look_during_which_the_last_work_ended_is_repeated_at_once(
    queue: FakeQueue, intake: Intake, holdings: Holdings, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.put_entity("ada", "text")
    await queue.enqueue([NewJob("ada", MODEL)])
    await intake.take()
    lease = queue.lease

    async def lease_while_work_ends(**options: Any) -> Any:
        batch = await lease(**options)
        holdings.drop(holdings.all())
        intake.look_again()
        return batch

    await intake.take()
    assert not intake.may_lease  # it holds a job, and there are no others
    intake.look_again()
    monkeypatch.setattr(queue, "lease", lease_while_work_ends)

    await intake.take()

    assert intake.may_lease
