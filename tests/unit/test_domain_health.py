"""What is checked about a queue: each check passes and fails at its bound."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from embed_pipeline.domain.batch import Batch, BatchStatus
from embed_pipeline.domain.breaker import Breaker, BreakerStatus
from embed_pipeline.domain.budget import BudgetUse, Period, Unit
from embed_pipeline.domain.checks import CHECKS, Severity, Subject
from embed_pipeline.domain.coverage import (
    OTHER_LENGTHS,
    Coverage,
    CoverageKey,
    CoverageReport,
)
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.health import (
    CLEANUP_SLACK,
    LONG_HOLD,
    Objectives,
    Reading,
    Verdict,
    examine,
)
from embed_pipeline.domain.holds import Hold, Origin
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.lease_check import LEFT_ALONE, ONE_TICK
from embed_pipeline.domain.metrics import COUNTERS, QueueMetrics, QueueState
from embed_pipeline.domain.misfits import Misfit
from embed_pipeline.domain.pacing import ScanPace
from embed_pipeline.domain.quality import Auc, Quality

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
BIT = timedelta(milliseconds=1)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
OBJECTIVES = Objectives(
    recovery_interval=MINUTE,
    reconcile_interval=MINUTE,
    retention=14 * DAY,
    oldest_pending=15 * MINUTE,
    failed_percent=1,
    coverage_percent=95,
)
METRICS = QueueMetrics(
    at=NOW,
    counts=dict.fromkeys(JobStatus, 0),
    ready=0,
    delayed=0,
    due_retries=0,
    suspects=0,
    oldest_pending=None,
    expired_leases=0,
    oldest_expired=None,
    without_lock=0,
    window=MINUTE,
    completed_in_window=0,
    failed_in_window=0,
    cancelled_in_window=0,
    attempts={},
    categories=dict.fromkeys(ErrorCategory, 0),
    counters=dict.fromkeys(COUNTERS, 0),
    state=QueueState(Breaker()),
    last_recovery=NOW,
)
COVERAGE = CoverageReport("m", at=NOW)
READING = Reading(
    model="m",
    dimensions=4,
    schema_problem=None,
    index_problem=None,
    metrics=METRICS,
    coverage=COVERAGE,
    scan=ScanPace(ended=NOW, moved=NOW),
    quality=Quality("m", None),
)
MISFIT = Misfit("no node has the label Movies", "set EMBED_ENTITY_LABEL")
RECOVERY_BOUND = 2 * MINUTE + ONE_TICK
SCAN_BOUND = 2 * (MINUTE + 5 * MINUTE) + ONE_TICK
"""Two intervals, and twice what a scan takes."""
RETENTION_BOUND = 14 * DAY + CLEANUP_SLACK


def queue(**changes: Any) -> Reading:
    return replace(READING, metrics=replace(METRICS, **changes))


def held(length: timedelta) -> Reading:
    origin = Origin("acme", "run-1", "slow down")
    return queue(hold=Hold(NOW - MINUTE, NOW - MINUTE + length, length, origin))


def spent(used: float) -> Reading:
    use = BudgetUse(Period.DAY, Unit.USD, used, 100.0, NOW + MINUTE)
    return queue(budget=(use,), counts={**METRICS.counts, JobStatus.PENDING: 7})


def graded(value: float) -> Reading:
    return replace(
        READING, quality=Quality("m", Auc(value, 0.7, 0.9, 400), words=0.7, earlier=(0.85,))
    )


def in_a_batch(ago: timedelta, status: BatchStatus = BatchStatus.SUBMITTED) -> Reading:
    batch = Batch("7", "m", status, NOW - 2 * DAY, jobs=20, polled_at=NOW - ago)
    return replace(READING, batches=(batch,))


def ended(completed: int, failed: int) -> Reading:
    counts = {JobStatus.COMPLETED: completed, JobStatus.FAILED: failed}
    return queue(counts={**METRICS.counts, **counts})


def scanned(**pace: Any) -> Reading:
    return replace(READING, scan=ScanPace(**pace))


def covered(current: int, missing: int) -> Reading:
    counts = {Coverage.CURRENT: current, Coverage.MISSING: missing}
    report = CoverageReport(
        "m", entities=current + missing, counts={**COVERAGE.counts, **counts}, at=NOW
    )
    return replace(READING, coverage=report)


def vectors(*, model: str = "m", lengths: dict[int, int] | None = None) -> Reading:
    rows = {CoverageKey("person", model, Coverage.CURRENT): 3}
    report = replace(COVERAGE, rows=rows, dimensions=lengths or {4: 3})
    return replace(READING, coverage=report)


def verdict(name: str, reading: Reading, objectives: Objectives = OBJECTIVES) -> Verdict:
    [found] = [one for one in examine(reading, objectives) if one.check.name == name]
    return found


OPEN = QueueState(Breaker(BreakerStatus.OPEN, reason="no credit", since=NOW))
HALF_OPEN = QueueState(Breaker(BreakerStatus.HALF_OPEN, reason="no credit", since=NOW))
DOWN = QueueState(
    Breaker(BreakerStatus.OPEN, reason="503", since=NOW, probe_at=NOW, is_outage=True)
)
PAUSED = QueueState(Breaker(), is_paused=True, paused_by="ada", paused_since=NOW)
PAUSED_AND_OPEN = replace(PAUSED, breaker=OPEN.breaker)


def test_a_fresh_and_empty_queue_passes_everything() -> None:
    found = examine(READING, OBJECTIVES)

    assert [one.check for one in found] == list(CHECKS)
    assert [one.check.name for one in found if one.passed is not True] == []


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("schema_present", READING, replace(READING, schema_problem="no constraint")),
        ("queue_open", READING, queue(state=OPEN)),
        ("queue_open", READING, queue(state=HALF_OPEN)),
        ("queue_open", READING, queue(state=PAUSED)),
        ("no_long_hold", held(LONG_HOLD), held(LONG_HOLD + BIT)),
        ("budget_left", spent(79), spent(80)),
        ("vectors_follow_the_graph", graded(0.8), graded(0.79)),
        (
            "no_forgotten_leases",
            queue(expired_leases=1, oldest_expired=RECOVERY_BOUND),
            queue(expired_leases=1, oldest_expired=RECOVERY_BOUND + BIT),
        ),
        ("no_forgotten_leases", READING, queue(without_lock=1)),
        ("no_forgotten_leases", in_a_batch(LEFT_ALONE), in_a_batch(LEFT_ALONE + BIT)),
        (
            "no_forgotten_leases",
            in_a_batch(DAY, status=BatchStatus.ABANDONED),
            in_a_batch(DAY, status=BatchStatus.CREATING),
        ),
        (
            "recoveries_ran",
            queue(last_recovery=NOW - RECOVERY_BOUND),
            queue(last_recovery=NOW - RECOVERY_BOUND - BIT),
        ),
        ("jobs_accounted", READING, queue(unadopted=1)),
        (
            "oldest_pending_in_time",
            queue(oldest_pending=15 * MINUTE),
            queue(oldest_pending=15 * MINUTE + BIT),
        ),
        ("few_failed_jobs", ended(99, 1), ended(98, 1)),
        (
            "retention_honoured",
            queue(oldest_ended=RETENTION_BOUND),
            queue(oldest_ended=RETENTION_BOUND + BIT),
        ),
        (
            "scan_ran",
            scanned(ended=NOW - SCAN_BOUND, took=5 * MINUTE),
            scanned(ended=NOW - SCAN_BOUND - BIT, took=5 * MINUTE),
        ),
        ("scan_ran", READING, scanned(moved=NOW - RECOVERY_BOUND - BIT)),
        ("coverage_above_floor", covered(95, 5), covered(94, 6)),
        ("dimensions_uniform", vectors(), vectors(lengths={4: 2, 5: 1})),
        ("no_mock_vectors", vectors(), vectors(model="mock-m")),
        ("settings_fit_data", READING, replace(READING, misfits=(MISFIT,))),
        ("keys_unique", READING, replace(READING, misfits=(replace(MISFIT, is_of_keys=True),))),
        ("vector_index_online", READING, replace(READING, index_problem="POPULATING")),
    ],
)
def test_a_check_passes_at_its_bound_and_fails_beyond_it(
    name: str, good: Reading, bad: Reading
) -> None:
    assert verdict(name, good).passed is True
    assert verdict(name, bad).passed is False
    assert [one.check.name for one in examine(bad, OBJECTIVES) if not one.passed] == [name]


def test_every_check_has_such_a_case() -> None:
    [mark] = test_a_check_passes_at_its_bound_and_fails_beyond_it.pytestmark  # pyright: ignore[reportFunctionMemberAccess]

    assert {case[0] for case in mark.args[1]} == {check.name for check in CHECKS}


@pytest.mark.parametrize(
    ("reading", "severity", "said"),
    [
        (queue(state=PAUSED), Severity.WARN, "paused by ada; the job resume_queue"),
        (queue(state=OPEN), Severity.ERROR, "open since 2030-01-01 12:00:00 UTC: no credit"),
        (queue(state=HALF_OPEN), Severity.ERROR, "no credit"),
        (
            queue(state=DOWN),
            Severity.ERROR,
            "provider down since 2030-01-01 12:00:00 UTC, next try at 2030-01-01 12:00:00 UTC: 503",
        ),
        (queue(state=PAUSED_AND_OPEN), Severity.ERROR, "no credit"),
    ],
)
def test_a_pause_is_milder_than_an_open_breaker(
    reading: Reading, severity: Severity, said: str
) -> None:
    found = verdict("queue_open", reading)

    assert found.severity is severity
    assert said in found.message


def test_what_has_not_been_looked_at_is_unknown_and_only_warns() -> None:
    never = replace(queue(last_recovery=None), coverage=None, scan=ScanPace(), quality=None)

    unknown = [one for one in examine(never, OBJECTIVES) if one.passed is None]

    assert [one.check.name for one in unknown] == [
        "recoveries_ran",
        "scan_ran",
        "coverage_above_floor",
        "dimensions_uniform",
        "no_mock_vectors",
        "settings_fit_data",
        "keys_unique",
        "vectors_follow_the_graph",
    ]
    assert {one.severity for one in unknown} == {Severity.WARN}


def test_without_schema_nothing_of_the_queue_passes_and_each_says_why() -> None:
    reading = replace(READING, schema_problem="no constraint", metrics=None)

    found = [one for one in examine(reading, OBJECTIVES) if one.check.subject is Subject.QUEUE]

    assert len(found) == len([check for check in CHECKS if check.subject is Subject.QUEUE])
    assert {one.passed for one in found} == {False}
    assert all("no constraint" in one.message for one in found)


def test_m110_a_spent_budget_says_what_waits_and_until_when() -> None:
    found = verdict("budget_left", spent(100))

    assert (found.passed, found.severity) == (False, Severity.WARN)
    assert "the budget of the day is used: $100.00 of $100.00" in found.message
    assert "goes on at 2030-01-01 12:01 UTC" in found.message
    assert found.message.endswith("7 jobs wait")


class TestRecoveryThatIsOff:
    OFF = replace(OBJECTIVES, recovery_interval=timedelta(0))

    def test_nobody_waits_for_it(self) -> None:
        assert verdict("recoveries_ran", queue(last_recovery=None), self.OFF).passed is True

    def test_any_expired_lease_is_forgotten(self) -> None:
        expired = queue(expired_leases=1, oldest_expired=BIT)

        assert verdict("no_forgotten_leases", READING, self.OFF).passed is True
        assert verdict("no_forgotten_leases", expired, self.OFF).passed is False


def test_a_first_scan_that_gets_on_is_not_late_however_long_it_takes() -> None:
    assert verdict("scan_ran", scanned(moved=NOW - MINUTE)).passed is True


def test_a_scan_that_is_off_is_not_late() -> None:
    off = replace(OBJECTIVES, reconcile_interval=timedelta(0))

    found = verdict("scan_ran", scanned(ended=NOW - 40 * DAY), off)

    assert (found.passed, found.message) == (True, "the scan is off, as the settings say")


@pytest.mark.parametrize(
    ("reading", "name", "said"),
    [
        (
            queue(expired_leases=2, oldest_expired=DAY),
            "no_forgotten_leases",
            "2 expired leases, the oldest for 24 h; is the sensor stale_leases on?",
        ),
        (queue(last_recovery=NOW - DAY), "recoveries_ran", "look at the ticks of the sensor"),
        (
            held(15 * MINUTE),
            "no_long_hold",
            (
                "the provider told run-1 of queue acme to wait until 2030-01-01 12:14:00 UTC: "
                "\"slow down\"; 'embed-pipeline limits clear' or the job clear_limits ends it"
            ),
        ),
        (queue(oldest_ended=40 * DAY), "retention_honoured", "the runs of cleanup_expired_jobs"),
        (
            replace(READING, overdue={JobStatus.FAILED: 9 * DAY}),
            "retention_honoured",
            "failed jobs that ended 9 d ago; look at the runs of cleanup_expired_jobs",
        ),
        (
            queue(unadopted=1),
            "jobs_accounted",
            "the next scan does it at the latest, the job reconcile_embeddings at once",
        ),
        (
            ended(1, 1),
            "few_failed_jobs",
            "50.00 %, 1 % are allowed; failed_today of embed_queue_metrics says why",
        ),
        (
            scanned(ended=NOW - DAY, took=MINUTE),
            "scan_ran",
            "ended 24 h ago, 4 min are allowed; look at the ticks of the sensor reconcile",
        ),
        (scanned(moved=NOW - DAY), "scan_ran", "none has ended yet, the first one got on 24 h"),
        (covered(1, 1), "coverage_above_floor", "1 of 2 entities are current (50.00 %), 95 %"),
        (vectors(lengths={8: 2, 4: 1}), "dimensions_uniform", "2 of length 8; m makes 4"),
        (
            vectors(lengths={8: 2, OTHER_LENGTHS: 7}),
            "dimensions_uniform",
            "2 of length 8, 7 of other lengths; m makes 4",
        ),
        (vectors(model="mock-m"), "no_mock_vectors", "3 vectors of mock-m mean nothing; set"),
    ],
)
def test_a_failed_check_says_what_was_found_and_what_to_do(
    reading: Reading, name: str, said: str
) -> None:
    assert said in verdict(name, reading).message


def test_nothing_is_no_perfect_percentage() -> None:
    counts = {**COVERAGE.counts, Coverage.CURRENT: 0, Coverage.MISSING: 0, Coverage.EMPTY_TEXT: 4}
    empty = CoverageReport("m", entities=4, counts=counts, at=NOW)

    found = verdict("coverage_above_floor", replace(READING, coverage=empty))

    assert (found.passed, found.message) == (True, "nothing to embed (4 without text)")
    assert "coverage_percent" not in found.figures
