"""Judges a queue: one verdict per check, and what to do about it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from embed_pipeline.domain.breaker import BreakerStatus
from embed_pipeline.domain.checks import (
    CHECKS,
    COVERED,
    FAILED,
    INDEX,
    LEASES,
    OLDEST,
    OPEN,
    REAL,
    RECOVERIES,
    RETENTION,
    SCHEMA,
    UNIFORM,
    Check,
    Severity,
    Subject,
)
from embed_pipeline.domain.coverage import OTHER_LENGTHS, Coverage, CoverageReport
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.metrics import QueueMetrics
from embed_pipeline.domain.models import MOCK_PREFIX
from embed_pipeline.domain.queue_name import DEFAULT_QUEUE

ONE_TICK: Final = timedelta(seconds=30)
"""Recoveries come with the ticks of a sensor, which come late on a busy machine."""
CLEANUP_SLACK: Final = timedelta(days=1, hours=12)
"""The clean-up comes once a night, and may come late."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found; ``passed`` is ``None`` where it could not be looked at yet."""

    check: Check
    passed: bool | None
    message: str
    figures: Mapping[str, float] = field(default_factory=dict)
    milder: bool = False

    @property
    def severity(self) -> Severity:
        """How bad it is if it has not passed."""
        return Severity.WARN if self.milder or self.passed is None else self.check.severity


@dataclass(frozen=True, slots=True)
class Objectives:
    """What this deployment has set itself."""

    recovery_interval: timedelta
    retention: timedelta
    oldest_pending: timedelta
    failed_percent: float
    coverage_percent: float


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything that was read at one time; ``metrics`` is missing where the schema is."""

    model: str
    dimensions: int
    schema_problem: str | None
    index_problem: str | None
    metrics: QueueMetrics | None
    coverage: CoverageReport | None
    queue: str = DEFAULT_QUEUE


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
        found += _queue(reading.metrics, objectives)
    found += _embeddings(reading, objectives)
    found.append(Verdict(INDEX, reading.index_problem is None, reading.index_problem or "online"))
    return found


def _queue(metrics: QueueMetrics, objectives: Objectives) -> Iterator[Verdict]:
    yield _open(metrics)
    yield _leases(metrics, objectives.recovery_interval)
    yield _recoveries(metrics, objectives.recovery_interval)
    age = metrics.oldest_pending or timedelta(0)
    yield Verdict(
        OLDEST,
        age <= objectives.oldest_pending,
        f"the oldest job waits for {_round(age)}, {_round(objectives.oldest_pending)} are allowed",
        {"oldest_pending_seconds": age.total_seconds()},
    )
    yield _failed(metrics, objectives.failed_percent)
    age, allowed = metrics.oldest_ended or timedelta(0), objectives.retention + CLEANUP_SLACK
    is_honoured = age <= allowed
    advice = "" if is_honoured else "; look at the runs of cleanup_expired_jobs"
    yield Verdict(
        RETENTION,
        is_honoured,
        f"the oldest ended job ended {_round(age)} ago, {_round(allowed)} are allowed{advice}",
        {"oldest_ended_days": age / timedelta(days=1)},
    )


def _open(metrics: QueueMetrics) -> Verdict:
    state, breaker = metrics.state, metrics.state.breaker
    if breaker.status is not BreakerStatus.CLOSED:
        message = (
            f"the breaker is open since {breaker.since:%Y-%m-%d %H:%M:%S} UTC: {breaker.reason}; "
            "mend it, the queue then goes on by itself, at once with the job resume_queue"
        )
        return Verdict(OPEN, passed=False, message=message)
    if state.is_paused:
        message = f"paused by {state.paused_by}; the job resume_queue gives out jobs again"
        return Verdict(OPEN, passed=False, message=message, milder=True)
    return Verdict(OPEN, passed=True, message="gives out jobs")


def _leases(metrics: QueueMetrics, interval: timedelta) -> Verdict:
    age = metrics.oldest_expired or timedelta(0)
    figures = {
        "expired_leases": metrics.expired_leases,
        "oldest_expired_seconds": age.total_seconds(),
        "without_lock": metrics.without_lock,
    }
    if metrics.without_lock:
        message = (
            f"{metrics.without_lock} jobs are processing without an expiry; no worker writes that: "
            "somebody changed them by hand. Cancel them with cancel_jobs, or give them a lock_until"
        )
        return Verdict(LEASES, passed=False, message=message, figures=figures)
    if not interval:
        message = f"recovery is off, {metrics.expired_leases} leases have expired"
        return Verdict(LEASES, metrics.expired_leases == 0, message, figures)
    is_fine = age <= 2 * interval + ONE_TICK
    message = f"{metrics.expired_leases} expired leases, the oldest for {_round(age)}"
    if not is_fine:
        message += "; is the sensor stale_leases on? The job recover_stale_leases does it at once"
    return Verdict(LEASES, is_fine, message, figures)


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
        f"the last one ran {_round(age)} ago, one is due every {_round(interval)}{advice}",
        {"seconds_since_recovery": age.total_seconds()},
    )


def _failed(metrics: QueueMetrics, allowed: float) -> Verdict:
    failed = metrics.counts[JobStatus.FAILED]
    ended = failed + metrics.counts[JobStatus.COMPLETED]
    percent = 100 * failed / ended if ended else 0.0
    kinds = ", ".join(f"{count} {kind}" for kind, count in metrics.categories.items() if count)
    return Verdict(
        FAILED,
        percent <= allowed,
        f"{failed} of {ended} ended jobs failed{f' ({kinds})' if kinds else ''}: {percent:.2f} %, "
        f"{allowed:g} % are allowed",
        {"failed_percent": percent},
    )


def _embeddings(reading: Reading, objectives: Objectives) -> Iterator[Verdict]:
    report = reading.coverage
    if report is None:
        for check in (COVERED, UNIFORM, REAL):
            yield Verdict(check, passed=None, message="no scan of the entities has ended yet")
        return
    yield Verdict(
        COVERED,
        report.percent >= objectives.coverage_percent,
        f"{report.counts[Coverage.CURRENT]} of {report.entities} entities are current "
        f"({report.percent:.2f} %), {objectives.coverage_percent:g} % are wanted",
        {"coverage_percent": report.percent},
    )
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


def _length(size: int) -> str:
    return "other lengths" if size == OTHER_LENGTHS else f"length {size}"


def _round(duration: timedelta) -> str:
    seconds = duration.total_seconds()
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
