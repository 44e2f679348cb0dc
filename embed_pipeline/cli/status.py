"""``embed-pipeline status``: how the queue stands, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from embed_pipeline.cli.base import (
    AsJson,
    as_plain,
    at,
    console,
    duration,
    each_chosen,
    print_json,
    safe,
    show,
    table,
    with_queue,
)
from embed_pipeline.cli.entities import scan
from embed_pipeline.domain.breaker import BreakerStatus
from embed_pipeline.domain.holds import HOW_TO_END
from embed_pipeline.domain.lease_check import left_alone
from embed_pipeline.domain.metrics import WHO_ADOPTS
from embed_pipeline.domain.queue_name import DEFAULT_QUEUE
from embed_pipeline.domain.words import span

if TYPE_CHECKING:
    from embed_pipeline.domain.breaker import Breaker
    from embed_pipeline.domain.coverage import CoverageReport
    from embed_pipeline.domain.metrics import QueueMetrics
    from embed_pipeline.domain.misfits import Misfit
    from embed_pipeline.domain.profiles import Learnt
    from embed_pipeline.operations.reading import Arrival
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.queue import Queue

DIFFERENT: Final = "Settings differ"
MISFIT: Final = "Does not fit"
ALONE: Final = "Left alone"
ALARMING: Final = (
    *("Paused", "Breaker", "Held", "Budget used", "Without expiry", "Recovery overdue"),
    ALONE,
    MISFIT,
)
STYLES: Final = dict.fromkeys(ALARMING, "[bold red]") | {DIFFERENT: "[yellow]"}
LATELY: Final = timedelta(minutes=5)


def status(
    window: Annotated[
        timedelta | None,
        typer.Option(
            parser=duration, metavar="DURATION", help="What 'lately' means: 30s, 15m, 2h. [5m]"
        ),
    ] = None,
    coverage: Annotated[
        bool, typer.Option(help="Compare every entity with its vector now; reads all of them.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Show how the queue stands: jobs by state, what is overdue, pause, breaker and hold."""
    every = each_chosen()
    shown = {}
    for settings in every:
        if len(every) > 1 and not json:
            console.print(f"[bold]{safe(settings.queue)}")
        shown[settings.queue] = _status(settings, window or LATELY, coverage=coverage, json=json)
    if json:
        print_json(shown if len(every) > 1 else next(iter(shown.values())))


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that ``status`` shows about one embedding."""

    metrics: QueueMetrics
    arrival: Arrival
    report: CoverageReport | None
    misfits: list[Misfit]
    differs: str | None
    """What the settings say otherwise than the alias of a cut-over, or than the queue."""
    server: Learnt | None = None
    """What the server was found to take, where no profile knows it."""


async def look(
    queue: Queue,
    settings: Settings,
    as_set: Settings,
    *,
    window: timedelta = LATELY,
    report: CoverageReport | None = None,
) -> Seen:
    """Read the state of one embedding; ``report`` is the current scan, or the last one kept."""
    from embed_pipeline.operations.fit import find_misfits
    from embed_pipeline.operations.following import difference, read_live
    from embed_pipeline.operations.reading import how_jobs_appear, read_metrics
    from embed_pipeline.store.servers import read_learnt

    metrics = await read_metrics(queue, settings, window=window)
    arrival = await how_jobs_appear(queue, settings)
    known = report or await queue.reconciler(settings.model).last()
    misfits = await find_misfits(queue, settings, known) if known else []
    following = await read_live(queue.database, as_set)
    differs = difference(as_set, following.alias) or await queue.identity.refusal()
    learnt = await read_learnt(queue.database, settings.queue)
    server = learnt if learnt and learnt.server == settings.unknown_server else None
    return Seen(metrics, arrival, known, misfits, differs, server)


def rows_about(seen: Seen, settings: Settings) -> Iterator[tuple[str, str]]:
    """All rows in words, most urgent first."""
    if settings.queue != DEFAULT_QUEUE:
        yield "Name", settings.queue
    yield from status_rows(seen.metrics, settings.recovery_interval)
    if alone := left_alone(seen.metrics.batches, seen.metrics.at):
        yield ALONE, alone
    for batch in seen.metrics.batches:
        yield "Batch", batch.line(seen.metrics.at)
    if seen.server:
        yield "Server", f"{seen.server}; asked {seen.server.at:%Y-%m-%d %H:%M} UTC"
    if seen.differs:
        yield DIFFERENT, seen.differs
    yield "New jobs", f"appear {seen.arrival.detail}"
    if seen.report is not None:
        yield "Coverage", coverage_line(seen.report, seen.metrics.at)
        if changed := seen.report.neighbours_changed:
            wait = span(settings.relations_delay)
            yield "Neighbours", f"changed of {changed} entities, nothing else; they wait {wait}"
    for misfit in seen.misfits:
        yield MISFIT, str(misfit)


def _status(
    as_set: Settings, window: timedelta, *, coverage: bool, json: bool
) -> dict[str, Any] | None:
    """Show one embedding; with ``--json`` its figures are returned."""

    async def work(queue: Queue, settings: Settings) -> Seen:
        report = (await scan(queue, settings, dry_run=True)).report if coverage else None
        return await look(queue, settings, as_set, window=window, report=report)

    seen = with_queue(work, as_set)
    if json:
        metrics = seen.metrics
        plain = as_plain(metrics) | {
            "throughput_per_minute": metrics.throughput_per_minute,
            "eta_seconds": metrics.eta.total_seconds() if metrics.eta else None,
            "jobs_appear": seen.arrival.detail,
            "server": as_plain(seen.server) if seen.server else None,
            "batches": [batch.figures(metrics.at) for batch in seen.metrics.batches],
        }
        if seen.report:
            said = {"misfits": [str(misfit) for misfit in seen.misfits]}
            plain["coverage"] = coverage_figures(seen.report, metrics.at) | said
        return plain
    rows = table()
    for name, value in rows_about(seen, as_set):
        rows.add_row(f"{STYLES.get(name, '')}{name}", safe(value))
    show(rows)
    return None


def coverage_line(report: CoverageReport, now: datetime) -> str:
    """How many entities are current, and as of when."""
    from embed_pipeline.domain.coverage import Coverage
    from embed_pipeline.domain.figures import nothing_to_embed

    known = "" if report.at is None else f", {span(now - report.at)} ago"
    if report.embeddable == 0:
        return f"{nothing_to_embed(report)}{known}"
    if report.at is None:
        current = report.counts[Coverage.CURRENT]
        return f"{current} of {report.embeddable} entities are current{report.left_out}"
    # 99.96 % is not all of them.
    percent = report.percent if report.percent == 100 else min(report.percent, 99.9)
    return f"{percent:.1f} % of {report.embeddable} entities are current{known}{report.left_out}"


def coverage_figures(report: CoverageReport, now: datetime) -> dict[str, object]:
    """The coverage for programs; ``as_of`` of a scan by this command is the time of the reading."""
    figures = {
        "percent": report.percent,
        "in_pieces": report.in_pieces,
        "pieces": report.pieces,
        "neighbours_changed": report.neighbours_changed,
        "at": report.at or now,
    }
    return {**report.summary, **figures}


def status_rows(metrics: QueueMetrics, interval: timedelta) -> Iterator[tuple[str, str]]:
    """The reading as rows, most urgent first."""
    state = metrics.state
    if state.is_paused:
        yield "Paused", f"{_since(state.paused_since, metrics.at)} by {state.paused_by}"
    if state.breaker.status is not BreakerStatus.CLOSED:
        yield "Breaker", breaker_in_words(state.breaker, metrics.at)
    elif not state.is_paused:
        yield "Queue", "open"
    if metrics.hold is not None:
        yield "Held", f"for {span(metrics.hold_left)}: {metrics.hold}; {HOW_TO_END}"
    for use in metrics.budget:
        yield "Budget used" if use.is_spent else "Budget", str(use)
    for job_status, count in metrics.counts.items():
        yield job_status.capitalize(), f"{count}{_details(metrics, job_status)}"
    oldest = metrics.oldest_pending
    yield "Oldest waiting", "–" if oldest is None else span(oldest)
    expired = f", the oldest for {span(metrics.oldest_expired)}" if metrics.oldest_expired else ""
    yield "Expired leases", f"{metrics.expired_leases}{expired}"
    if metrics.without_lock:
        yield "Without expiry", f"{metrics.without_lock} processing jobs; no worker left them so"
    if metrics.unadopted:
        yield (
            "Edited by others",
            f"{metrics.unadopted} jobs not yet put right; {WHO_ADOPTS}",
        )
    yield from _recovery(metrics, interval)
    rate = f"{metrics.throughput_per_minute:.1f} per minute"
    ended = f"{metrics.failed_in_window} failed, {metrics.cancelled_in_window} cancelled"
    yield (
        f"Last {span(metrics.window)}",
        f"{metrics.completed_in_window} completed ({rate}), {ended}",
    )
    if eta := metrics.outlook:
        yield "Time left", eta


def _recovery(metrics: QueueMetrics, interval: timedelta) -> Iterator[tuple[str, str]]:
    """When a recovery last ran: the one trace of Dagster in Neo4j that exists without any work."""
    from embed_pipeline.domain.health import is_overdue

    if metrics.last_recovery is None or not interval:
        return
    elapsed = max(timedelta(0), metrics.at - metrics.last_recovery)
    last = f"{span(elapsed)} ago"
    if is_overdue(elapsed, interval):
        yield "Recovery overdue", f"the last one was {last}; is the Dagster daemon running?"
    else:
        yield "Last recovery", last


def _details(metrics: QueueMetrics, job_status: str) -> str:
    parts: dict[str, int] = {}
    if job_status == "pending":
        parts = {
            "ready": metrics.ready,
            "to be tried again later": metrics.delayed,
            "due to be tried again": metrics.due_retries,
            "suspects, leased apart from others": metrics.suspects,
        }
    elif job_status == "failed":
        parts = {category.value: count for category, count in metrics.categories.items()}
    words = ", ".join(f"{count} {name}" for name, count in parts.items() if count)
    return f" ({words})" if words else ""


def breaker_in_words(breaker: Breaker, now: datetime) -> str:
    """The state of the breaker, since when and why."""
    if breaker.is_outage:
        return f"{breaker.status.replace('_', '-')}: {breaker.at(now)}"
    if breaker.status is BreakerStatus.HALF_OPEN:
        probe = "one job is being tried"
    elif breaker.probe_at is None or breaker.probe_at <= now:
        probe = "the next drain tries one job"
    else:
        probe = f"one job may be tried in {span(breaker.probe_at - now)}"
    word = breaker.status.replace("_", "-")
    return f"{word} {_since(breaker.since, now)}: {breaker.reason}; {probe}"


def _since(moment: datetime | None, now: datetime) -> str:
    return f"since {at(moment)} ({span(now - moment)})" if moment else ""
