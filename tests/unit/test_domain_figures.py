"""A reading as flat numbers: every one is there, also when there is nothing."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from embed_pipeline.domain.batch import Batch, BatchStatus
from embed_pipeline.domain.breaker import Breaker, BreakerStatus
from embed_pipeline.domain.coverage import Coverage, CoverageReport
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.figures import COST, coverage_figures, queue_figures
from embed_pipeline.domain.holds import Hold
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.metrics import COUNTERS, QueueMetrics, QueueState

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
PAID = "text-embedding-3-small"
EMPTY = QueueMetrics(
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
    window=timedelta(seconds=30),
    completed_in_window=0,
    failed_in_window=0,
    cancelled_in_window=0,
    attempts={},
    categories=dict.fromkeys(ErrorCategory, 0),
    counters=dict.fromkeys(COUNTERS, 0),
    state=QueueState(Breaker()),
)
BUSY = replace(
    EMPTY,
    counts={status: number for number, status in enumerate(JobStatus, start=10)},
    ready=2,
    delayed=3,
    due_retries=4,
    suspects=5,
    oldest_pending=timedelta(seconds=61.2345),
    expired_leases=6,
    oldest_expired=timedelta(minutes=1),
    without_lock=7,
    completed_in_window=3,
    failed_in_window=1,
    cancelled_in_window=2,
    attempts={1: 3, 3: 1},
    categories={category: number for number, category in enumerate(ErrorCategory, start=20)},
    counters={name: number for number, name in enumerate(COUNTERS, start=100)},
    state=QueueState(
        Breaker(BreakerStatus.HALF_OPEN, reason="no credit", since=NOW), is_paused=True
    ),
    last_recovery=NOW - timedelta(seconds=9),
    hold=Hold(NOW, NOW + timedelta(seconds=90), timedelta(seconds=90)),
    batches=(
        Batch("a", "m", BatchStatus.SUBMITTED, NOW, jobs=5, expires_at=NOW + timedelta(hours=2)),
        Batch("b", "m", BatchStatus.SUBMITTED, NOW, jobs=2, expires_at=NOW + timedelta(hours=1)),
        Batch("c", "m", BatchStatus.REFUSED, NOW, jobs=9, expires_at=NOW + timedelta(minutes=1)),
    ),
)


@pytest.mark.parametrize("metrics", [EMPTY, BUSY], ids=["empty", "busy"])
def test_every_state_category_and_counter_is_in_it(metrics: QueueMetrics) -> None:
    figures = queue_figures(metrics)

    for status in JobStatus:
        assert figures[status.value] == metrics.counts[status]
    for category in ErrorCategory:
        assert figures[f"failed_{category.value.lower()}"] == metrics.categories[category]
    for name in {*COUNTERS} - {COST}:
        assert figures[f"{name}_total"] == metrics.counters[name]


@pytest.mark.parametrize("metrics", [EMPTY, BUSY], ids=["empty", "busy"])
def test_all_are_numbers_that_can_be_drawn(metrics: QueueMetrics) -> None:
    figures = queue_figures(metrics) | coverage_figures(CoverageReport("m"))

    assert {type(value) for value in figures.values()} == {int, float}


def test_an_empty_queue_has_the_same_figures_as_a_busy_one_and_all_are_zero() -> None:
    empty = queue_figures(EMPTY)

    assert empty.keys() == queue_figures(BUSY).keys()
    assert {name for name, value in empty.items() if value} == {"window_seconds"}


def test_the_figures_of_a_busy_queue() -> None:
    figures = queue_figures(BUSY)

    expected = {
        "jobs": 10 + 11 + 12 + 13 + 14,
        "ready": 2,
        "delayed": 3,
        "due_retries": 4,
        "suspects": 5,
        "oldest_pending_seconds": 61.234,
        "expired_leases": 6,
        "oldest_expired_seconds": 60.0,
        "without_lock": 7,
        "window_seconds": 30.0,
        "completed_in_window": 3,
        "failed_in_window": 1,
        "cancelled_in_window": 2,
        "throughput_per_minute": 6.0,
        "attempts_per_job": 1.5,
        "cost_usd_total": round(BUSY.counters[COST] / 1e9, 6),
        "is_paused": 1,
        "is_breaker_open": 1,
        "seconds_since_recovery": 9.0,
        "hold_seconds": 90.0,
        "in_batches": 7,
        "batch_expires_seconds": 3600.0,
    }
    assert {name: figures[name] for name in expected} == expected


def test_what_was_charged_keeps_its_price() -> None:
    charged = replace(BUSY, counters={**BUSY.counters, COST: 1_500_000_000})

    assert queue_figures(charged)["cost_usd_total"] == 1.5


def test_every_kind_of_coverage_is_in_it() -> None:
    counts = {kind: number for number, kind in enumerate(Coverage, start=1)}
    report = CoverageReport(
        "m",
        entities=sum(counts.values()),
        counts=counts,
        waiting=7,
        in_pieces=8,
        pieces=80,
        neighbours_changed=3,
        orphaned=9,
    )

    figures = coverage_figures(report)

    assert {kind: figures[f"entities_{kind.value}"] for kind in Coverage} == counts
    assert figures["coverage_percent"] == round(report.percent, 3)
    assert figures["entities"] == report.entities
    assert figures["entities_waiting"] == 7
    assert figures["entities_in_pieces"] == 8
    assert figures["pieces"] == 80
    assert figures["entities_neighbours_changed"] == 3
    assert figures["entities_orphaned"] == 9


def test_a_graph_without_entities_is_covered() -> None:
    assert coverage_figures(CoverageReport("m"))["coverage_percent"] == 100.0
