"""Judges a queue: one verdict per check, and what to do about it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from embed_pipeline.domain.batch import Batch
from embed_pipeline.domain.breaker import BreakerStatus
from embed_pipeline.domain.checks import (
    ACCOUNTED,
    CHECKS,
    COVERED,
    FAILED,
    FITTING,
    HOLD,
    INDEX,
    OLDEST,
    OPEN,
    REAL,
    RECOVERIES,
    RETENTION,
    SCANNED,
    SCHEMA,
    UNIFORM,
    UNIQUE,
    Subject,
)
from embed_pipeline.domain.coverage import OTHER_LENGTHS, Coverage, CoverageReport
from embed_pipeline.domain.failure_kinds import FailureKind
from embed_pipeline.domain.figures import nothing_to_embed
from embed_pipeline.domain.holds import HOW_TO_END
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.lease_check import ONE_TICK, leases
from embed_pipeline.domain.metrics import WHO_ADOPTS, QueueMetrics
from embed_pipeline.domain.misfits import Misfit
from embed_pipeline.domain.models import MOCK_PREFIX
from embed_pipeline.domain.pacing import ScanPace
from embed_pipeline.domain.prices import UNKNOWN, Price
from embed_pipeline.domain.quality import Quality
from embed_pipeline.domain.quality_check import follows_the_graph
from embed_pipeline.domain.queue_name import DEFAULT_QUEUE
from embed_pipeline.domain.spending_check import budget_left
from embed_pipeline.domain.verdict import Verdict
from embed_pipeline.domain.words import span

LONG_HOLD: Final = timedelta(minutes=2)
"""A busy account is told to wait for seconds, again and again; that is no news."""
CLEANUP_SLACK: Final = timedelta(days=1, hours=12)
"""The clean-up comes once a night, and may come late."""


@dataclass(frozen=True, slots=True)
class Objectives:
    """The service objectives of this deployment."""

    recovery_interval: timedelta
    reconcile_interval: timedelta
    retention: timedelta
    oldest_pending: timedelta
    failed_percent: float
    coverage_percent: float


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything read at one time; ``metrics`` is missing where the schema is.

    ``index`` describes the vector index, if there is one; today begins at midnight UTC.
    """

    model: str
    dimensions: int
    schema_problem: str | None
    index_problem: str | None
    metrics: QueueMetrics | None
    coverage: CoverageReport | None
    scan: ScanPace = field(default_factory=ScanPace)
    misfits: tuple[Misfit, ...] = ()
    batches: tuple[Batch, ...] = ()
    queue: str = DEFAULT_QUEUE
    price: Price = UNKNOWN
    quality: Quality | None = None
    index: Mapping[str, str | int] = field(default_factory=dict)
    overdue: Mapping[JobStatus, timedelta] = field(default_factory=dict)
    """How long ago jobs ended that are kept longer than their state, and a night, allow."""
    failed_today: tuple[FailureKind, ...] = ()


def examine(reading: Reading, objectives: Objectives) -> list[Verdict]:
    """Judge a reading; one verdict per check, in the order of ``CHECKS``."""
    problem = reading.schema_problem
    found = [Verdict(SCHEMA, problem is None, problem or "everything is there")]
    if reading.metrics is None:
        found += [
            Verdict(check, passed=False, message=f"cannot be read: {problem}")
            for check in CHECKS
            if check.subject is Subject.QUEUE and check is not SCHEMA
        ]
    else:
        found += _queue(reading, reading.metrics, objectives)
    found += _embeddings(reading, objectives)
    found.append(follows_the_graph(reading.quality))
    found.append(Verdict(INDEX, reading.index_problem is None, reading.index_problem or "online"))
    return found


def _queue(reading: Reading, metrics: QueueMetrics, objectives: Objectives) -> Iterator[Verdict]:
    yield _open(metrics)
    yield _hold(metrics)
    yield budget_left(metrics)
    yield leases(metrics, objectives.recovery_interval, reading.batches)
    yield _recoveries(metrics, objectives.recovery_interval)
    yield _accounted(metrics)
    age = metrics.oldest_pending or timedelta(0)
    yield Verdict(
        OLDEST,
        age <= objectives.oldest_pending,
        f"the oldest job waits for {span(age)}, {span(objectives.oldest_pending)} are allowed",
        {"oldest_pending_seconds": age.total_seconds()},
    )
    yield _failed(metrics, objectives.failed_percent)
    yield _retention(reading, metrics, objectives.retention)


def _retention(reading: Reading, metrics: QueueMetrics, longest: timedelta) -> Verdict:
    age, allowed = metrics.oldest_ended or timedelta(0), longest + CLEANUP_SLACK
    said = f"the oldest ended job ended {span(age)} ago, {span(allowed)} are allowed"
    if reading.overdue:
        kept = ", ".join(
            f"{state} jobs that ended {span(n)}" for state, n in reading.overdue.items()
        )
        said += f"; there are still {kept} ago"
    is_fine = age <= allowed and not reading.overdue
    if not is_fine:
        said += "; look at the runs of cleanup_expired_jobs"
    return Verdict(RETENTION, is_fine, said, {"oldest_ended_days": age / timedelta(days=1)})


def _open(metrics: QueueMetrics) -> Verdict:
    state, breaker = metrics.state, metrics.state.breaker
    if breaker.is_outage:
        message = f"{breaker}; nothing needs to be done, the queue goes on by itself"
        return Verdict(OPEN, passed=False, message=message)
    if breaker.status is not BreakerStatus.CLOSED:
        message = (
            f"the breaker is open since {breaker.since:%Y-%m-%d %H:%M:%S} UTC: {breaker.reason}; "
            "mend it, the queue then goes on by itself, at once with the job resume_queue and "
            "close_breaker: true"
        )
        return Verdict(OPEN, passed=False, message=message)
    if state.is_paused:
        message = f"paused by {state.paused_by}; the job resume_queue gives out jobs again"
        return Verdict(OPEN, passed=False, message=message, milder=True)
    return Verdict(OPEN, passed=True, message="gives out jobs")


def _hold(metrics: QueueMetrics) -> Verdict:
    hold, figures = metrics.hold, {"hold_seconds": metrics.hold_left.total_seconds()}
    if hold is None:
        return Verdict(HOLD, passed=True, message="the provider asks for no pause", figures=figures)
    is_short = hold.until - hold.since <= LONG_HOLD
    return Verdict(HOLD, is_short, f"{hold}; {HOW_TO_END}", figures)


def is_overdue(age: timedelta, interval: timedelta) -> bool:
    """Say whether two recoveries in a row have not happened."""
    return age > 2 * interval + ONE_TICK


def _recoveries(metrics: QueueMetrics, interval: timedelta) -> Verdict:
    if not interval:
        return Verdict(RECOVERIES, passed=True, message="recovery is off, as the settings say")
    if metrics.last_recovery is None:
        message = "none has run yet; the sensor stale_leases should be on"
        return Verdict(RECOVERIES, passed=None, message=message)
    age = max(timedelta(0), metrics.at - metrics.last_recovery)
    is_fine = not is_overdue(age, interval)
    advice = "" if is_fine else "; look at the ticks of the sensor stale_leases"
    return Verdict(
        RECOVERIES,
        is_fine,
        f"the last one ran {span(age)} ago, one is due every {span(interval)}{advice}",
        {"seconds_since_recovery": age.total_seconds()},
    )


def _accounted(metrics: QueueMetrics) -> Verdict:
    number = metrics.unadopted
    message = "all jobs are counted in their states"
    if number:
        message = (
            f"{number} jobs that another program wrote or edited are not yet put right; "
            f"{WHO_ADOPTS}, the job reconcile_embeddings at once"
        )
    return Verdict(ACCOUNTED, number == 0, message, {"unadopted": number})


def _failed(metrics: QueueMetrics, allowed: float) -> Verdict:
    failed = metrics.counts[JobStatus.FAILED]
    ended = failed + metrics.counts[JobStatus.COMPLETED]
    percent = 100 * failed / ended if ended else 0.0
    kinds = ", ".join(f"{count} {kind}" for kind, count in metrics.categories.items() if count)
    message = (
        f"{failed} of {ended} ended jobs failed{f' ({kinds})' if kinds else ''}: {percent:.2f} %, "
        f"{allowed:g} % are allowed"
    )
    if failed:
        message += "; failed_today of embed_queue_metrics says why and what to do"
    return Verdict(FAILED, percent <= allowed, message, {"failed_percent": percent})


def _scanned(reading: Reading, interval: timedelta) -> Verdict:
    if not interval:
        return Verdict(SCANNED, passed=True, message="the scan is off, as the settings say")
    pace = reading.scan
    # A first scan of a large graph takes as long as it takes, if only it gets on.
    since = pace.ended or pace.moved
    if since is None or reading.metrics is None:
        message = "none has begun yet; the sensor reconcile_entities should be on"
        return Verdict(SCANNED, passed=None, message=message)
    age = max(timedelta(0), reading.metrics.at - since)
    allowed = 2 * (interval + pace.took) + ONE_TICK
    is_fine = age <= allowed
    what = "the last one ended" if pace.ended else "none has ended yet, the first one got on"
    advice = "" if is_fine else "; look at the ticks of the sensor reconcile_entities"
    return Verdict(
        SCANNED,
        is_fine,
        f"{what} {span(age)} ago, {span(allowed)} are allowed{advice}",
        {"seconds_since_scan": age.total_seconds(), "scan_seconds": pace.took.total_seconds()},
    )


def _covered(report: CoverageReport, wanted: float) -> Verdict:
    if report.embeddable == 0:
        return Verdict(COVERED, passed=True, message=nothing_to_embed(report))
    return Verdict(
        COVERED,
        report.percent >= wanted,
        f"{report.counts[Coverage.CURRENT]} of {report.embeddable} entities are current "
        f"({report.percent:.2f} %), {wanted:g} % are wanted{report.left_out}",
        {"coverage_percent": report.percent},
    )


def _embeddings(reading: Reading, objectives: Objectives) -> Iterator[Verdict]:
    report = reading.coverage
    yield _scanned(reading, objectives.reconcile_interval)
    if report is None:
        for check in (COVERED, UNIFORM, REAL, FITTING, UNIQUE):
            yield Verdict(check, passed=None, message="no scan of the entities has ended yet")
        return
    yield _covered(report, objectives.coverage_percent)
    others = {size: n for size, n in report.dimensions.items() if size != reading.dimensions}
    found = ", ".join(f"{others[size]} of {_length(size)}" for size in sorted(others, reverse=True))
    yield Verdict(
        UNIFORM,
        not others,
        f"{found}; {reading.model} makes {reading.dimensions}. The scan enqueues them again"
        if others
        else f"all have {reading.dimensions} numbers",
        {"wrong_dimensions": sum(others.values())},
    )
    mocks = {m: n for m, n in report.models().items() if m and m.startswith(MOCK_PREFIX)}
    yield Verdict(
        REAL,
        not mocks,
        f"{sum(mocks.values())} vectors of {', '.join(mocks)} mean nothing; set OPENAI_API_KEY, "
        "or EMBEDDING_PROVIDER=local, and they are made again"
        if mocks
        else "none",
        {"mock_vectors": sum(mocks.values())},
    )
    for check, is_of_keys in ((FITTING, False), (UNIQUE, True)):
        seen = [str(misfit) for misfit in reading.misfits if misfit.is_of_keys is is_of_keys]
        yield Verdict(check, not seen, ". ".join(seen) or "nothing found", {"misfits": len(seen)})


def _length(size: int) -> str:
    return "other lengths" if size == OTHER_LENGTHS else f"length {size}"
