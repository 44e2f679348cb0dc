"""A reading as flat numbers under names that stay, and the coverage in words."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from embed_pipeline.domain.breaker import BreakerStatus
from embed_pipeline.domain.budget import fullest
from embed_pipeline.domain.coverage import Coverage, CoverageReport
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.metrics import QueueMetrics
from embed_pipeline.domain.prices import NANO

Figures = Mapping[str, int | float]
COST: Final = "cost_nano_usd"


def queue_figures(metrics: QueueMetrics) -> dict[str, int | float]:
    """Every figure of the queue; 0 where there is nothing, so that no series has gaps.

    What ends in ``_total`` counts since the installation and only rises. ``cost_usd_total`` is what
    the tokens cost at the price of the time when they were charged.
    """
    counts, counters = metrics.counts, metrics.counters
    ended = sum(metrics.attempts.values())
    tried = sum(attempts * jobs for attempts, jobs in metrics.attempts.items())
    used = fullest(metrics.budget)
    since_recovery = metrics.at - metrics.last_recovery if metrics.last_recovery else None
    return {
        **{status.value: counts[status] for status in JobStatus},
        "jobs": sum(counts.values()),
        "ready": metrics.ready,
        "delayed": metrics.delayed,
        "due_retries": metrics.due_retries,
        "suspects": metrics.suspects,
        "former_model": metrics.former_model,
        "oldest_pending_seconds": _seconds(metrics.oldest_pending),
        "expired_leases": metrics.expired_leases,
        "oldest_expired_seconds": _seconds(metrics.oldest_expired),
        "without_lock": metrics.without_lock,
        "unadopted": metrics.unadopted,
        "window_seconds": _seconds(metrics.window),
        "completed_in_window": metrics.completed_in_window,
        "failed_in_window": metrics.failed_in_window,
        "cancelled_in_window": metrics.cancelled_in_window,
        "throughput_per_minute": round(metrics.throughput_per_minute, 3),
        "attempts_per_job": round(tried / ended, 3) if ended else 0.0,
        **{f"failed_{c.value.lower()}": number for c, number in metrics.categories.items()},
        **{f"{name}_total": number for name, number in counters.items() if name != COST},
        "cost_usd_total": round(counters[COST] / NANO, 6),
        "budget_used_percent": round(used.percent, 3) if used else 0.0,
        "hold_seconds": _seconds(metrics.hold_left),
        "in_batches": metrics.in_batches,
        "batch_expires_seconds": _seconds(metrics.batch_left),
        "is_paused": int(metrics.state.is_paused),
        "is_breaker_open": int(metrics.state.breaker.status is not BreakerStatus.CLOSED),
        "seconds_since_recovery": _seconds(since_recovery),
    }


def coverage_figures(report: CoverageReport) -> dict[str, int | float]:
    """How well the entities are covered."""
    return {
        "coverage_percent": round(report.percent, 3),
        "entities": report.entities,
        **{f"entities_{kind.value}": report.counts[kind] for kind in Coverage},
        "entities_waiting": report.waiting,
        "entities_in_pieces": report.in_pieces,
        "pieces": report.pieces,
        "entities_neighbours_changed": report.neighbours_changed,
        "entities_orphaned": report.orphaned,
        "entities_oversized": report.oversized,
        "entities_same_text": report.contents.same_text,
        "entities_duplicate": report.contents.duplicates,
    }


def coverage_in_words(report: CoverageReport) -> str:
    """The share that is current, and what that leaves out."""
    share = f"{report.percent:.2f} % are current{report.left_out}"
    return share if report.embeddable else nothing_to_embed(report)


def nothing_to_embed(report: CoverageReport) -> str:
    """What to say instead of a percentage where no entity can have a vector."""
    return f"nothing to embed{report.left_out.replace('besides ', '')}"


def _seconds(duration: timedelta | None) -> float:
    return round(duration.total_seconds(), 3) if duration else 0.0
