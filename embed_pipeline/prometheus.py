"""The queue's figures for Prometheus, read on each scrape."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from embed_pipeline.domain.coverage import Coverage, CoverageReport
from embed_pipeline.domain.errors import EmbedPipelineError, ErrorCategory, SchemaError
from embed_pipeline.domain.figures import Figures, coverage_figures, queue_figures
from embed_pipeline.domain.health import Objectives, Reading, examine
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.metrics import QueueMetrics
from embed_pipeline.loopback_server import LoopbackServer, serve_on_loopback
from embed_pipeline.operations import wiring
from embed_pipeline.operations.blocking import finish
from embed_pipeline.operations.reading import objectives, read_everything
from embed_pipeline.settings import Settings
from embed_pipeline.store.connection import connected

log = logging.getLogger(__name__)

PREFIX: Final = "embed_queue_"
FRESH_SECONDS: Final = 5.0
"""A reading answers all scrapes within so many seconds; Prometheus asks every 15 or more."""

EMBEDDING: Final = "embedding"
"""The label, where there are several."""

GAUGES: Final = {
    "ready": ("ready_jobs", "Pending jobs that can be leased now."),
    "delayed": ("delayed_jobs", "Pending jobs that wait for the time of their next attempt."),
    "due_retries": ("due_retry_jobs", "Pending jobs whose next attempt is due."),
    "suspects": (
        "suspect_jobs",
        "Pending jobs whose last lease expired; they are leased only among themselves.",
    ),
    "former_model": ("former_model_jobs", "Pending jobs of a former model of the queue."),
    "oldest_pending_seconds": ("oldest_pending_seconds", "Age of the oldest job that is due."),
    "expired_leases": ("expired_leases", "Leases whose worker has stopped sending heartbeats."),
    "oldest_expired_seconds": ("oldest_expired_seconds", "How long ago the first lease expired."),
    "without_lock": ("jobs_without_lock", "Processing jobs without an expiry: changed by hand."),
    "unadopted": ("jobs_unadopted", "Jobs of another program that are not yet put right."),
    "hold_seconds": ("hold_seconds", "Until the provider may be asked again; 0 without a pause."),
    "in_batches": ("batch_jobs", "Processing jobs in batches at the provider."),
    "batch_expires_seconds": (
        "batch_expires_seconds",
        "Until the first batch expires; 0 without one.",
    ),
    "is_paused": ("paused", "1 while the queue is paused."),
    "is_breaker_open": ("breaker_open", "1 while the queue is closed by a fault that hits all."),
}
"""The names and the meaning of what goes up and down."""

COUNTERS: Final = {
    "completed": "Jobs completed by our own workers.",
    "recoveries": "Searches for expired leases.",
    "recovered": "Leases taken away from silent workers.",
    "exhausted": "Jobs that failed because their attempts were used up.",
    "fenced": "Writes that came after the lease was lost, and were refused.",
    "released": "Leases given back untried with their attempt: rate limit, or a stop.",
    "retried": "Failed attempts that lead to another one.",
    "given_back": "Failed attempts given back, because the job was not at fault.",
    "moved": "Vectors not written because the text had changed meanwhile.",
    "cancelled": "Jobs cancelled by an operator.",
    "superseded": "Jobs cancelled because of a newer version of their entity, or its deletion.",
    "revived": "Ended jobs opened again by an enqueue.",
    "reopened": "Failed jobs opened again by an operator.",
    "adopted": "Jobs of another program that were put right.",
    "heartbeats_failed": "Heartbeats that did not reach the database.",
    "requests": "Requests to the provider.",
    "requests_limited": "Requests that the provider refused as too many.",
    "tokens": "Tokens that the provider has counted.",
    "cost_usd": "Dollars that they cost, at the price of the time.",
    "cache_hits": "Texts whose vector was known already.",
}
"""The events that are counted since the installation, under their own names."""


def families(reading: Reading, wanted: Objectives) -> Iterator[Metric]:
    """Name the figures of a reading by the conventions of Prometheus."""
    is_up = reading.metrics is not None
    yield _gauge("up", "1 if the queue could be read.", is_up)
    labels = {
        "queue": reading.queue,
        "model": reading.model,
        "dimensions": str(reading.dimensions),
    }
    info = GaugeMetricFamily(
        f"{PREFIX}info", "The queue, and the model in use.", labels=list(labels)
    )
    info.add_metric(list(labels.values()), 1)
    yield info
    if (price := reading.price.usd_per_million) is not None:
        meaning = "What the provider charges for one token."
        yield _gauge("token_price_usd", meaning, price / 1_000_000)
    if reading.metrics is not None:
        yield from _of_queue(reading.metrics, queue_figures(reading.metrics))
    if reading.coverage is not None:
        yield from _of_coverage(reading.coverage)
    checks = GaugeMetricFamily(
        f"{PREFIX}check_passed", "1 if the check passed.", labels=["check", "severity"]
    )
    for verdict in examine(reading, wanted):
        if verdict.passed is not None:
            checks.add_metric([verdict.check.name, verdict.severity.value], verdict.passed)
    yield checks


def _of_queue(metrics: QueueMetrics, figures: Figures) -> Iterator[Metric]:
    jobs = {status.value: figures[status.value] for status in JobStatus}
    yield _labelled("jobs", "Jobs by status.", "status", jobs)
    kinds = {kind.value: figures[f"failed_{kind.value.lower()}"] for kind in ErrorCategory}
    yield _labelled("failed_jobs", "Failed jobs by category of their error.", "category", kinds)
    for figure, (name, meaning) in GAUGES.items():
        yield _gauge(name, meaning, figures[figure])
    meaning = "Share of the fullest budget that is used; 0 where none is set."
    yield _gauge("budget_used_ratio", meaning, figures["budget_used_percent"] / 100)
    window = metrics.window.total_seconds()
    rates = {
        ended: figures[f"{ended}_in_window"] / window
        for ended in ("completed", "failed", "cancelled")
    }
    # No counter: a changed text takes its job out of the ended ones again, and Prometheus takes
    # every fall of a counter for a new beginning at 0.
    meaning = f"Jobs that ended per second, over the last {window:g} seconds."
    yield _labelled("ended_jobs_per_second", meaning, "status", rates)
    if metrics.last_recovery is not None:
        meaning = "When expired leases were last looked for."
        yield _gauge("last_recovery_timestamp_seconds", meaning, metrics.last_recovery.timestamp())
    for name, meaning in COUNTERS.items():
        yield CounterMetricFamily(PREFIX + name, meaning, value=figures[f"{name}_total"])
    deleted = CounterMetricFamily(
        f"{PREFIX}deleted_jobs", "Ended jobs deleted after their retention.", labels=["status"]
    )
    for status in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED):
        deleted.add_metric([status.value], figures[f"deleted_{status.value}_total"])
    yield deleted


def _of_coverage(report: CoverageReport) -> Iterator[Metric]:
    figures = coverage_figures(report)
    kinds = {kind.value: figures[f"entities_{kind.value}"] for kind in Coverage}
    yield _labelled("entities", "Entities by how well their vector fits.", "coverage", kinds)
    yield _gauge("coverage_ratio", "Share of current entities.", figures["coverage_percent"] / 100)
    for name, meaning in (
        ("entities_waiting", "Entities that are not current, but have a job that is not ended."),
        ("entities_in_pieces", "Entities whose text was embedded in pieces, because it is long."),
        ("pieces", "Pieces of these texts, each with a vector of its own."),
        ("entities_neighbours_changed", "Stale entities of which only neighbours have changed."),
        ("entities_orphaned", "Vectors on entities that are no longer current."),
        ("entities_oversized", "Entities of whose text only the beginning is read."),
        ("entities_same_text", "Entities that share the most frequent text."),
        ("entities_duplicate", "Entities that share their key with another one."),
    ):
        yield _gauge(name, meaning, figures[name])
    if report.at is not None:
        meaning = "When the scan ended that these figures are from."
        yield _gauge("coverage_timestamp_seconds", meaning, report.at.timestamp())


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, meaning, value=value)


def _labelled(name: str, meaning: str, label: str, values: Figures) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, meaning, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


class QueueCollector(Collector):
    """Answers a scrape with a reading; a failed one is logged, and ``up`` is 0."""

    def __init__(self, read: Callable[[], Reading], *, wanted: Objectives) -> None:
        self._read = read
        self._wanted = wanted
        self._said: str | None = None

    def collect(self) -> Iterator[Metric]:
        try:
            reading = self._read()
        except EmbedPipelineError as error:
            self._say(str(error))
            yield _gauge("up", "1 if the queue could be read.", value=0)
            return
        self._say(reading.schema_problem)
        yield from families(reading, self._wanted)

    def _say(self, problem: str | None) -> None:
        """Log a problem once, not with every scrape."""
        if problem and problem != self._said:
            log.warning("embed_queue_up is 0: %s", problem)
        self._said = problem


class Together(Collector):
    """Several embeddings in one answer, told apart by a label."""

    def __init__(self, collectors: Mapping[str, Collector]) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        found: dict[str, Metric] = {}
        for name, collector in self._collectors.items():
            for family in collector.collect():
                known = found.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                known.samples += [
                    sample._replace(labels={**sample.labels, EMBEDDING: name})
                    for sample in family.samples
                ]
        yield from found.values()


class Recent:
    """One reading shared by all who ask within a short time, also if it failed."""

    def __init__(self, read: Callable[[], Reading]) -> None:
        self._read = read
        self._reading = threading.Lock()
        self._last: Reading | EmbedPipelineError | None = None
        self._at = 0.0

    def __call__(self) -> Reading:
        """Return the last reading, or take one.

        Raises:
            EmbedPipelineError: the queue cannot be read.
        """
        with self._reading:
            if self._last is None or time.monotonic() - self._at >= FRESH_SECONDS:
                try:
                    self._last = self._read()
                except EmbedPipelineError as error:
                    self._last = error
                self._at = time.monotonic()
            last = self._last
        if isinstance(last, EmbedPipelineError):
            raise last
        return last


def read(settings: Settings) -> Reading:
    """Take a reading on a separate connection."""

    async def work() -> Reading:
        async with connected(wiring.connection(settings)) as driver:
            return await read_everything(driver, settings)

    return finish(work())


def serve(*embeddings: Settings, port: int) -> tuple[LoopbackServer, threading.Thread]:
    """Answer scrapes on loopback until the server is shut down."""
    readers = {own.queue: (Recent(partial(read, own)), own) for own in embeddings}
    return serve_on_loopback(make_wsgi_app(_registry(readers)), port=port)


def text(*embeddings: Settings) -> str:
    """One scrape as text.

    Raises:
        EmbedPipelineError: a queue cannot be read.
    """
    readers: dict[str, tuple[Callable[[], Reading], Settings]] = {}
    for own in embeddings:
        reading = read(own)
        if reading.schema_problem is not None:
            raise SchemaError(reading.schema_problem)
        readers[own.queue] = (lambda found=reading: found, own)
    return generate_latest(_registry(readers)).decode()


def _registry(
    readers: Mapping[str, tuple[Callable[[], Reading], Settings]],
) -> CollectorRegistry:
    collectors = {
        queue: QueueCollector(read, wanted=objectives(own))
        for queue, (read, own) in readers.items()
    }
    registry = CollectorRegistry(auto_describe=False)
    # One alone is as it was before there were several.
    is_alone = len(collectors) == 1
    registry.register(next(iter(collectors.values())) if is_alone else Together(collectors))
    return registry
