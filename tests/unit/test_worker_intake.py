"""When a drain asks for jobs, and when it must not."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from embed_pipeline.domain.embedding import PreparedText
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.errors import ErrorCategory, TooMuchAtOnceError, UnreachableError
from embed_pipeline.domain.job import JobStatus, Lease, NewJob
from embed_pipeline.domain.results import LoadedEntity
from embed_pipeline.domain.text import LONGEST_TEXT, RECIPE, memento_text, render_for
from embed_pipeline.embedding.mock import MockEmbedder
from embed_pipeline.testing.limiter import FakeRateLimiter
from embed_pipeline.testing.memory import FakeQueue
from embed_pipeline.worker.intake import (
    LEASES_BETWEEN_LONG,
    LEASES_BETWEEN_SUSPECTS,
    Batch,
    Intake,
)
from embed_pipeline.worker.lease_keeper import Holdings
from embed_pipeline.worker.options import DrainOptions, Parts
from embed_pipeline.worker.report import DrainReport
from embed_pipeline.worker.settling import Settler

MODEL = "mock-model"


@pytest.fixture
def queue() -> FakeQueue:
    return FakeQueue()


@pytest.fixture
def holdings(queue: FakeQueue) -> Holdings:
    return Holdings(queue.clock.monotonic)


@pytest.fixture
def report() -> DrainReport:
    return DrainReport(owner="run-1", model=MODEL)


@pytest.fixture
def intake(queue: FakeQueue, holdings: Holdings, report: DrainReport) -> Intake:
    return intake_on(queue, holdings, report)


class WholeEmbedder(MockEmbedder):
    """Takes a text of any length: what is leased and read is looked at here, not how it is split.

    To split a MiB without a blank takes seconds.
    """

    def prepare(self, text: str) -> PreparedText:
        if len(text) < LONGEST_TEXT // 2:
            return super().prepare(text)
        return PreparedText(text, tokens=self.limits.tokens_per_input)


def intake_on(
    queue: FakeQueue,
    holdings: Holdings,
    report: DrainReport,
    options: DrainOptions | None = None,
) -> Intake:
    parts = Parts(
        store=queue,
        open_store=None,  # pyright: ignore[reportArgumentType]
        limiter=FakeRateLimiter(),
        switch=queue,
        counters=None,  # pyright: ignore[reportArgumentType]
        embedder=WholeEmbedder(model=MODEL, dimensions=4),
        render=render_for(EntityShape()),
        recipe=RECIPE,
        clock=queue.clock.monotonic,
    )
    return Intake(parts, options or DrainOptions(), Settler(queue, holdings, report), report)


async def taken_by(intake: Intake) -> Batch:
    got = await intake.take()
    return await intake.prepare(got) if got.jobs else Batch()


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

    [[item]] = (await taken_by(intake)).requests

    assert item.leased.is_suspect
    assert not intake.may_take
    holdings.drop([item.leased.lease])
    assert intake.may_take


async def test_a_busy_worker_lets_its_work_run_dry_for_a_suspect(
    queue: FakeQueue, intake: Intake, holdings: Holdings
) -> None:
    for number in range(30):
        queue.put_entity(f"e{number}", "text")
    await queue.enqueue([NewJob(f"e{number}", MODEL) for number in range(30)])
    intake._options = DrainOptions(jobs_per_lease=1)

    taken = 0
    while intake.may_take:
        await taken_by(intake)
        taken += 1

    assert taken == 9
    holdings.drop(holdings.all())
    await given_suspect(queue)
    [[item]] = (await taken_by(intake)).requests
    assert item.leased.is_suspect


@pytest.mark.parametrize(
    "options", [{"linger": timedelta(hours=1)}, {"until_empty": False}], ids=["lingers", "stays"]
)
async def test_a_worker_that_waits_for_jobs_looks_once_per_pause(
    queue: FakeQueue, intake: Intake, options: dict[str, Any]
) -> None:
    intake._options = DrainOptions(**options)

    looks = 0
    for _ in range(30):
        while intake.may_take:
            await taken_by(intake)
            looks += 1
        queue.clock.advance(intake._options.idle_pause)

    assert looks == 30


async def test_a_worker_looks_soon_after_work_and_slower_when_nothing_comes(
    queue: FakeQueue, intake: Intake
) -> None:
    clock = queue.clock
    intake._options = DrainOptions(linger=timedelta(hours=1))

    began, looks = clock(), list[float]()
    while clock() < began + timedelta(minutes=2):
        await taken_by(intake)
        looks.append((clock() - began).total_seconds())
        clock.advance(timedelta(seconds=intake.pause))

    pauses = [after - before for before, after in pairwise(looks)]
    assert pauses[0] == pytest.approx(0.1)
    assert all(longer > shorter - 1e-3 for shorter, longer in pairwise(pauses))
    assert pauses[-1] == pytest.approx(0.3)
    minutes = Counter(int(at // 60) for at in looks)
    assert minutes[0] <= 250
    assert minutes[1] <= 201


async def test_a_worker_that_waits_for_jobs_never_looks_for_suspects_only(
    queue: FakeQueue, intake: Intake
) -> None:
    intake._options = DrainOptions(linger=timedelta(hours=1))
    for _ in range(9):
        await taken_by(intake)
    queue.put_entity("late", "text")
    await queue.enqueue([NewJob("late", MODEL)])

    [[item]] = (await taken_by(intake)).requests

    assert item.leased.lease.entity_uid == "late"


async def test_a_look_during_which_the_last_work_ended_is_repeated_at_once(
    queue: FakeQueue, intake: Intake, holdings: Holdings, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.put_entity("ada", "text")
    await queue.enqueue([NewJob("ada", MODEL)])
    await taken_by(intake)
    lease = queue.lease

    async def lease_while_work_ends(**options: Any) -> Any:
        batch = await lease(**options)
        holdings.drop(holdings.all())
        intake.look_again()
        return batch

    await taken_by(intake)
    assert not intake.may_take  # it holds a job, and there are no others
    intake.look_again()
    monkeypatch.setattr(queue, "lease", lease_while_work_ends)

    await taken_by(intake)

    assert intake.may_take


LONG = "x" * (LONGEST_TEXT - 100)


async def given_texts(queue: FakeQueue, **texts: str) -> None:
    for uid, text in texts.items():
        queue.put_entity(uid, text)
    await queue.enqueue([NewJob(uid, MODEL) for uid in texts])


def taken(batch: Batch) -> list[str]:
    return [item.leased.lease.entity_uid for items in batch.requests for item in items]


async def test_m84_short_texts_go_before_long_ones_of_the_same_lease(
    queue: FakeQueue, intake: Intake
) -> None:
    # Time stands still: the next look is not due.
    await given_texts(queue, **{f"long{n:02}": LONG for n in range(10)}, tiny="text")

    batches = [taken(await taken_by(intake)) for _ in range(4)]

    # A look for new jobs, then as many as are read in one go, and then the rest.
    eight = [f"long{n:02}" for n in range(8)]
    assert batches == [["tiny"], [], eight, ["long08", "long09"]]
    assert not intake.has_long


async def test_m84_a_tiny_text_that_comes_later_does_not_wait_behind_long_ones(
    queue: FakeQueue, intake: Intake
) -> None:
    await given_texts(queue, **{f"long{n:02}": LONG for n in range(40)})
    await taken_by(intake)

    await given_texts(queue, tiny="text")

    assert taken(await taken_by(intake)) == ["tiny"]
    assert intake.has_long


async def test_m84_long_texts_get_their_turn_while_short_ones_keep_coming(
    queue: FakeQueue, intake: Intake
) -> None:
    await given_texts(queue, **{f"long{n:02}": LONG for n in range(20)})
    intake._options = DrainOptions(jobs_per_lease=20)
    batches: list[list[str]] = []
    for number in range(LEASES_BETWEEN_LONG + 1):
        batches.append(taken(await taken_by(intake)))
        await given_texts(queue, **{f"short{number}": "text"})

    shorts = [[f"short{number}"] for number in range(LEASES_BETWEEN_LONG - 1)]
    assert batches == [[], *shorts, [f"long{n:02}" for n in range(8)]]


async def test_a_suspect_gets_its_place_alone_also_beside_long_texts(
    queue: FakeQueue, intake: Intake, holdings: Holdings
) -> None:
    await given_texts(queue, **{f"long{n:02}": LONG for n in range(20)})
    intake._leases = LEASES_BETWEEN_SUSPECTS - 2
    await taken_by(intake)
    assert intake.has_long
    await given_suspect(queue)

    [[item]] = (await taken_by(intake)).requests

    assert item.leased.is_suspect
    assert holdings.all() == [item.leased.lease]
    long = [job for job in queue.jobs.values() if job.entity_uid.startswith("long")]
    assert {(job.status, job.attempts) for job in long} == {(JobStatus.PENDING, 0)}


async def test_jobs_whose_texts_are_still_to_be_read_are_given_back_when_the_drain_pauses(
    queue: FakeQueue, intake: Intake, holdings: Holdings
) -> None:
    await given_texts(queue, **{f"long{n}": LONG for n in range(10)})
    await taken_by(intake)

    leases = intake.give_up_long()

    assert {lease.entity_uid for lease in leases} == {f"long{n}" for n in range(10)}
    assert not intake.has_long
    assert set(leases) == set(holdings.all())


class LimitedQueue(FakeQueue):
    """Has memory for three entities at once, and never for the culprit."""

    async def load(
        self, leases: Sequence[Lease], *, longest: int | None = None
    ) -> list[LoadedEntity]:
        if len(leases) > 3 or "culprit" in {lease.entity_uid for lease in leases}:
            raise TooMuchAtOnceError("Neo4j has no time or memory for so much at once (Memory…)")
        return await super().load(leases, longest=longest)


@pytest.fixture
def limited(holdings: Holdings, report: DrainReport) -> tuple[LimitedQueue, Intake]:
    queue = LimitedQueue()
    return queue, intake_on(queue, holdings, report)


async def test_m84_the_one_text_that_cannot_be_read_fails_and_nobody_else(
    limited: tuple[LimitedQueue, Intake], report: DrainReport, holdings: Holdings
) -> None:
    queue, intake = limited
    others = {f"e{n}": "text" for n in range(12)}
    await given_texts(queue, **others, culprit="text")

    found = taken(await taken_by(intake))

    assert sorted(found) == sorted(others)
    [failed] = [job for job in queue.jobs.values() if job.status is JobStatus.FAILED]
    assert (failed.entity_uid, failed.error_category) == ("culprit", ErrorCategory.PERMANENT)
    assert "cannot be read" in (failed.error or "")
    assert "make it shorter" in (failed.error or "")
    assert report.failed[ErrorCategory.PERMANENT] == 1
    assert len(holdings) == 12


class BusyQueue(FakeQueue):
    """Has no time for the first question, whoever is asked for."""

    was_asked = False

    async def load(
        self, leases: Sequence[Lease], *, longest: int | None = None
    ) -> list[LoadedEntity]:
        if not self.was_asked:
            self.was_asked = True
            raise TooMuchAtOnceError("Neo4j has no time or memory for so much at once (Time…)")
        return await super().load(leases, longest=longest)


async def test_a_text_that_a_busy_database_had_no_time_for_is_read_again(
    report: DrainReport, holdings: Holdings
) -> None:
    queue = BusyQueue()
    await given_texts(queue, alone="text")

    found = taken(await taken_by(intake_on(queue, holdings, report)))

    assert list(found) == ["alone"]
    assert report.failed == {}


class HopelesslyBusyQueue(FakeQueue):
    """Answers small questions, and has time for no other."""

    async def load(
        self, leases: Sequence[Lease], *, longest: int | None = None
    ) -> list[LoadedEntity]:
        raise TooMuchAtOnceError("Neo4j has no time … (TransactionTimedOut…)", is_time=True)


async def test_a_server_that_stays_busy_makes_a_text_wait_and_does_not_blame_it_for_good(
    report: DrainReport, holdings: Holdings
) -> None:
    queue = HopelesslyBusyQueue()
    await given_texts(queue, alone="text")

    assert taken(await taken_by(intake_on(queue, holdings, report))) == []

    [job] = queue.jobs.values()
    assert (job.status, job.error_category) == (JobStatus.PENDING, ErrorCategory.TRANSIENT)
    assert job.run_after is not None
    assert len(holdings) == 0


async def test_m84_after_that_fewer_jobs_are_leased_at_once_and_slowly_more_again(
    limited: tuple[LimitedQueue, Intake],
) -> None:
    queue, intake = limited
    await given_texts(queue, **{f"e{n}": "text" for n in range(12)})
    await taken_by(intake)

    fewer = intake.budget
    await given_texts(queue, late="text")
    await taken_by(intake)

    assert fewer <= 24
    assert intake.budget == 2 * fewer


async def test_a_server_that_is_just_busy_fails_no_job(
    limited: tuple[LimitedQueue, Intake], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, intake = limited
    await given_texts(queue, culprit="text")

    async def busy(_: Sequence[Lease]) -> Any:
        raise UnreachableError("busy")

    monkeypatch.setattr(queue, "check", busy)

    with pytest.raises(UnreachableError):
        await taken_by(intake)

    assert [job.status for job in queue.jobs.values()] == [JobStatus.PROCESSING]


async def given_short_texts(queue: FakeQueue, count: int) -> None:
    for number in range(count):
        queue.put_entity(f"e{number}", "text")
    await queue.enqueue([NewJob(f"e{number}", MODEL) for number in range(count)])


async def test_a_lease_holds_no_more_jobs_than_the_requests_at_once_can(
    queue: FakeQueue, holdings: Holdings, report: DrainReport
) -> None:
    await given_short_texts(queue, 100)
    options = DrainOptions(jobs_per_request=5, requests_at_once=3)
    intake = intake_on(queue, holdings, report, options)

    batch = await taken_by(intake)

    assert [len(request) for request in batch.requests] == [5, 5, 5]


async def test_whoever_wants_leases_of_a_size_gets_it(
    queue: FakeQueue, holdings: Holdings, report: DrainReport
) -> None:
    await given_short_texts(queue, 100)
    options = DrainOptions(jobs_per_request=5, jobs_per_lease=20)
    intake = intake_on(queue, holdings, report, options)

    batch = await taken_by(intake)

    assert [len(request) for request in batch.requests] == [5, 5, 5, 5]


async def test_leases_shrink_to_what_fits_into_requests_and_grow_again(
    queue: FakeQueue, intake: Intake, holdings: Holdings
) -> None:
    await given_short_texts(queue, 1_000)
    text = memento_text(queue.entities["e0"].properties)
    tokens = intake._parts.embedder.prepare(text).tokens
    roomy, intake._limits = intake._limits, replace(intake._limits, tokens=3 * tokens)
    intake._options = DrainOptions(max_jobs=100, requests_at_once=2)

    first = await taken_by(intake)
    holdings.drop(holdings.all())
    intake._options = DrainOptions(requests_at_once=2)
    shrunk = intake.budget
    intake._limits = roomy
    await taken_by(intake)

    assert {len(request) for request in first.requests[:-1]} == {3}
    assert (shrunk, intake.budget) == (6, 12)
