"""What becomes of leases whose time runs out while somebody is looking at them."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest

from embed_pipeline.domain.embedding import PreparedText
from embed_pipeline.domain.errors import ErrorCategory, PermanentError, TransientError
from embed_pipeline.domain.job import Lease, LeasedJob
from embed_pipeline.domain.results import (
    Beat,
    Completion,
    CompletionOutcome,
    Failure,
    FailureOutcome,
)
from embed_pipeline.testing.memory import FakeQueue
from embed_pipeline.worker.batching import Item
from embed_pipeline.worker.lease_keeper import Holdings
from embed_pipeline.worker.report import DrainReport
from embed_pipeline.worker.settling import Settler
from tests.support.queue_harness import VECTOR, FakeUnderTest, hash_for

LEASE = Lease(job_id="j", entity_uid="e", model="m", version=1, owner="run-1", fence=1)
ITEM = Item(
    LeasedJob(LEASE, attempts=1, max_attempts=3),
    PreparedText("text", tokens=1),
    "hash",
)


class SlowQueue(FakeQueue):
    """Takes so long to answer that leases expire meanwhile, which it does not know yet."""

    seconds = 0.0

    async def check(self, leases: Sequence[Lease]) -> Beat:
        self.seconds += 10
        return Beat(held=tuple(leases))


async def test_a_lease_that_expires_while_the_database_is_asked_gets_no_more_heartbeats() -> None:
    store, report = SlowQueue(), DrainReport(owner="run-1", model="m")
    holdings = Holdings(clock=lambda: store.seconds)
    holdings.add([LEASE], deadline=5)

    held = await Settler(store, holdings, report).still_held([ITEM])

    assert held == []
    assert holdings.all() == []
    assert report.lost == 1


class ForgetfulQueue(FakeQueue):
    """Does what it is asked to; the answer gets lost."""

    is_cut = True

    async def complete(self, rows: Sequence[Completion]) -> list[CompletionOutcome]:
        outcomes = await super().complete(rows)
        if self.is_cut:
            raise ConnectionError
        return outcomes


@pytest.fixture
def forgetful() -> FakeUnderTest:
    return FakeUnderTest(ForgetfulQueue())


async def test_a_completion_whose_answer_was_lost_counts_as_completed(
    forgetful: FakeUnderTest,
) -> None:
    done, untried = [item.lease for item in await forgetful.leased("done", "untried")]
    holdings, report = Holdings(clock=lambda: 0), DrainReport(owner="run-1", model="m")
    holdings.add([done, untried], deadline=10)
    settler = Settler(forgetful.fake, holdings, report)

    with pytest.raises(ConnectionError):
        await settler.complete([Completion(done, VECTOR, hash_for("done"))])
    assert set(holdings.all()) == {done, untried}, "nobody knows yet whether it was done"
    await settler.release(holdings.all())

    assert (report.completed, report.released, report.fenced, report.lost) == (1, 1, 0, 0)
    assert holdings.all() == []
    assert forgetful.fake.counters["fenced"] == 0


async def test_a_failure_that_comes_after_a_lost_completion_counts_as_completed(
    forgetful: FakeUnderTest,
) -> None:
    [leased] = await forgetful.leased("done")
    holdings, report = Holdings(clock=lambda: 0), DrainReport(owner="run-1", model="m")
    holdings.add([leased.lease], deadline=10)
    settler = Settler(forgetful.fake, holdings, report)
    item = Item(leased, PreparedText("text", tokens=1), hash_for("done"))

    with pytest.raises(ConnectionError):
        await settler.complete([Completion(leased.lease, VECTOR, hash_for("done"))])
    await settler.fail([item], TransientError("the work took too long"))

    assert (report.completed, report.fenced, report.failed.total()) == (1, 0, 0)


async def test_what_the_heartbeat_has_counted_as_lost_is_not_counted_again(
    forgetful: FakeUnderTest,
) -> None:
    [leased] = await forgetful.leased("cancelled")
    holdings, report = Holdings(clock=lambda: 0), DrainReport(owner="run-1", model="m")
    holdings.add([leased.lease], deadline=10)

    class Losing(FakeQueue):
        """The heartbeat hears of the loss while the write is under way."""

        async def complete(self, rows: Sequence[Completion]) -> list[CompletionOutcome]:
            report.lost += holdings.drop([leased.lease])
            return [CompletionOutcome.FENCED]

    settler = Settler(Losing(), holdings, report)
    await settler.complete([Completion(leased.lease, VECTOR, hash_for("cancelled"))])

    assert (report.lost, report.fenced) == (1, 0)


async def test_a_failure_whose_answer_was_lost_keeps_its_category(
    forgetful: FakeUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    [leased] = await forgetful.leased("bad")
    holdings, report = Holdings(clock=lambda: 0), DrainReport(owner="run-1", model="m")
    holdings.add([leased.lease], deadline=10)
    settler = Settler(forgetful.fake, holdings, report)
    item = Item(leased, PreparedText("text", tokens=1), hash_for("bad"))
    fail = forgetful.fake.fail

    async def unheard(rows: Sequence[Failure]) -> list[FailureOutcome]:
        await fail(rows)
        raise ConnectionError

    monkeypatch.setattr(forgetful.fake, "fail", unheard)
    with pytest.raises(ConnectionError):
        await settler.fail([item], PermanentError("this text will never work"))
    await settler.release(holdings.all())

    assert report.failed == {ErrorCategory.PERMANENT: 1}
    assert report.fenced == 0


@pytest.mark.parametrize("outcome", CompletionOutcome)
async def test_m35_m54_every_ending_of_a_completion_is_a_line_with_job_owner_and_run(
    outcome: CompletionOutcome, caplog: pytest.LogCaptureFixture
) -> None:
    class Answering(FakeQueue):
        async def complete(self, rows: Sequence[Completion]) -> list[CompletionOutcome]:
            return [outcome]

    with caplog.at_level(logging.DEBUG, logger="embed_pipeline"):
        await holder_of_a_lease(Answering()).complete([Completion(OWNED, VECTOR, "hash")])

    assert f"job=j owner=run-1/a run=run-1 {outcome.value}" in caplog.messages


@pytest.mark.parametrize("outcome", [o for o in FailureOutcome if o is not FailureOutcome.FENCED])
async def test_m35_m54_every_ending_of_a_failure_is_a_line_with_job_owner_and_run(
    outcome: FailureOutcome, caplog: pytest.LogCaptureFixture
) -> None:
    class Answering(FakeQueue):
        async def fail(self, rows: Sequence[Failure]) -> list[FailureOutcome]:
            return [outcome]

    with caplog.at_level(logging.DEBUG, logger="embed_pipeline"):
        await holder_of_a_lease(Answering()).refuse(OWNED, TransientError("oops"))

    assert f"job=j owner=run-1/a run=run-1 {outcome.value} TRANSIENT" in caplog.messages


OWNED = replace(LEASE, owner="run-1/a")


def holder_of_a_lease(store: FakeQueue) -> Settler:
    holdings = Holdings(clock=lambda: 0)
    holdings.add([OWNED], deadline=10)
    return Settler(store, holdings, DrainReport(owner="run-1/a", model="m"))
