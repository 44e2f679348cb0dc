"""Recovery inside a drain: when it is due, how much it takes, and what it says."""

import logging
import time
from datetime import UTC, datetime, timedelta

import pytest

from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.results import RecoveredJob
from embed_pipeline.testing.memory import FakeQueue
from embed_pipeline.worker.chores import JOBS_PER_RECOVERY, Recovery
from embed_pipeline.worker.lease_keeper import Clock
from embed_pipeline.worker.options import DrainOptions
from embed_pipeline.worker.report import DrainReport

INTERVAL = timedelta(seconds=60)
NOW = datetime(2030, 1, 1, tzinfo=UTC)
EXPIRED = RecoveredJob(
    job_id="job-1",
    entity_uid="e",
    former_owner="run-1/a",
    last_heartbeat=NOW,
    expired_at=NOW,
    status=JobStatus.PENDING,
    attempts=1,
)


class Expired(FakeQueue):
    """Has one more expired lease than anybody takes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[int] = []

    async def recover_expired(
        self, *, limit: int, grace: timedelta = timedelta(0)
    ) -> list[RecoveredJob]:
        self.limits.append(limit)
        return [EXPIRED] * min(limit, JOBS_PER_RECOVERY + 1)


def in_a_drain(store: FakeQueue, clock: Clock = time.monotonic) -> tuple[Recovery, DrainReport]:
    report = DrainReport(owner="run-2/b", model="m")
    return Recovery(store, DrainOptions(recovery_interval=INTERVAL), report, clock), report


async def test_m26_m37_it_is_due_once_per_interval_and_not_later() -> None:
    seconds = 0.0
    under_test, _ = in_a_drain(FakeQueue(), clock=lambda: seconds)
    await under_test.until_none_is_left()
    looked = []

    for seconds in (0.0, 59.9, 60.0, 60.1, 119.9, 120.0):
        is_due = seconds >= under_test.due_at
        await under_test.if_due()
        looked.append((seconds, is_due))

    assert [moment for moment, is_due in looked if is_due] == [60.0, 120.0]


async def test_m37_during_a_drain_it_takes_one_bounded_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Expired()
    under_test, report = in_a_drain(store)
    under_test.due_at = 0.0

    await under_test.if_due()

    assert store.limits == [JOBS_PER_RECOVERY]
    assert report.recovered == JOBS_PER_RECOVERY <= 1_000


async def test_m29_every_job_and_its_former_owner_are_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    under_test, _ = in_a_drain(Expired())
    under_test.due_at = 0.0

    with caplog.at_level(logging.INFO):
        await under_test.if_due()

    said = caplog.text
    assert said.count("job=job-1 recovered from owner=run-1/a last_heartbeat=2030") == 500
    assert "owner=run-2/b recovered 500 expired leases" in said
