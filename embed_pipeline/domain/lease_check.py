"""Judges the leases: finds jobs that are held but not worked on."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from embed_pipeline.domain.batch import Batch, BatchStatus
from embed_pipeline.domain.checks import LEASES
from embed_pipeline.domain.metrics import QueueMetrics
from embed_pipeline.domain.verdict import Verdict
from embed_pipeline.domain.words import number_of, span

ONE_TICK: Final = timedelta(seconds=30)
"""Recoveries come with the ticks of a sensor, which come late on a busy machine."""
LEFT_ALONE: Final = timedelta(minutes=15)
"""Batches are asked about once a minute, by a sensor and by every drain."""
_UNDER_WAY: Final = (BatchStatus.PREPARING, BatchStatus.CREATING, BatchStatus.SUBMITTED)


def leases(metrics: QueueMetrics, interval: timedelta, batches: Sequence[Batch] = ()) -> Verdict:
    """Whether every lease is worked on, or will soon be recovered."""
    age = metrics.oldest_expired or timedelta(0)
    figures = {
        "expired_leases": metrics.expired_leases,
        "oldest_expired_seconds": age.total_seconds(),
        "without_lock": metrics.without_lock,
    }
    if metrics.without_lock:
        message = (
            f"{metrics.without_lock} jobs are processing without an expiry; no worker writes that: "
            "they were changed by hand. Cancel them with cancel_jobs, or give them a lock_until"
        )
        return Verdict(LEASES, passed=False, message=message, figures=figures)
    if alone := left_alone(batches, metrics.at):
        return Verdict(LEASES, passed=False, message=alone, figures=figures)
    if not interval:
        message = f"recovery is off, {metrics.expired_leases} leases have expired"
        return Verdict(LEASES, metrics.expired_leases == 0, message, figures)
    is_fine = age <= 2 * interval + ONE_TICK
    message = f"{metrics.expired_leases} expired leases, the oldest for {span(age)}"
    if not is_fine:
        message += "; is the sensor stale_leases on? The job recover_stale_leases does it at once"
    return Verdict(LEASES, is_fine, message, figures)


def left_alone(batches: Sequence[Batch], now: datetime) -> str | None:
    """Batches that no worker polls, in words; None if there are none.

    Their jobs stay locked for more than a day, and the provider's work is paid for again if its
    answers are not read in that time.
    """
    seen = {
        batch.id: max(filter(None, (batch.created_at, batch.polled_at, batch.until)))
        for batch in batches
        if batch.status in _UNDER_WAY
    }
    alone = {id_: now - at for id_, at in seen.items() if now - at > LEFT_ALONE}
    if not alone:
        return None
    jobs = sum(batch.jobs for batch in batches if batch.id in alone)
    return (
        f"batch {', '.join(alone)} has not been asked about for {span(max(alone.values()))}; it "
        f"holds {number_of(jobs)}. Is the sensor embed_batches on? The job collect_batches does "
        "it at once, and so does embed-pipeline drain"
    )
