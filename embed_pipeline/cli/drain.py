"""``embed-pipeline drain``: embed what waits in the queue, and say what was done."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from embed_pipeline.cli.base import (
    chosen_settings,
    console,
    is_screen,
    safe,
    show,
    table,
    warn_about,
)
from embed_pipeline.domain.breaker import BreakerStatus
from embed_pipeline.domain.errors import EmbedPipelineError, ErrorCategory
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.redact import printable
from embed_pipeline.domain.words import number_of

if TYPE_CHECKING:
    from embed_pipeline.domain.outlook import Outlook
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.queue import Queue
    from embed_pipeline.worker.engine import Drain
    from embed_pipeline.worker.options import DrainOptions
    from embed_pipeline.worker.report import DrainReport


def drain(
    once: Annotated[
        bool,
        typer.Option("--once/--watch", help="End when nothing is left, or wait for new jobs."),
    ] = True,
    max_jobs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after so many jobs.")
    ] = None,
    max_seconds: Annotated[
        int | None,
        typer.Option(min=1, max=31_536_000, metavar="S", help="End after so many seconds."),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, max=64, metavar="C", help="Requests to the provider at once."),
    ] = None,
    batch: Annotated[
        bool | None,
        typer.Option(
            "--batch/--no-batch",
            help="Send a large backlog to the provider's Batch API; EMBEDDING_MODE if not said.",
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log what happens to each job, to stderr.")
    ] = False,
) -> None:
    """Embed the jobs of the queue, from recovery to a report.

    Ctrl-C or SIGTERM ends it in an orderly way: no new jobs, up to 30 seconds for requests in
    flight, everything else is given back. Exit code 1: nothing can work until somebody acts, or
    nothing was completed and something failed.
    """
    from embed_pipeline.operations import wiring
    from embed_pipeline.operations.blocking import finish
    from embed_pipeline.tracing import export_spans

    settings = chosen_settings()
    warn_about(settings)
    _set_up_log(verbose)
    export_spans()
    options = wiring.drain_options(settings)
    options = replace(
        options,
        until_empty=once,
        max_jobs=max_jobs,
        max_time=None if max_seconds is None else timedelta(seconds=max_seconds),
        requests_at_once=concurrency or options.requests_at_once,
    )
    if batch is not None:
        settings = settings.model_copy(update={"mode": "batch" if batch else "sync"})
    reports = finish(_drain_all(settings, options, is_live=is_screen() and not verbose))
    if fault := next((report.fault for report in reports if report.fault), None):
        raise EmbedPipelineError(fault)


async def _drain_all(
    settings: Settings, options: DrainOptions, *, is_live: bool
) -> list[DrainReport]:
    """Drain the live queue, then the candidate's; with ``--watch`` both at once."""
    import asyncio

    from embed_pipeline.operations import wiring
    from embed_pipeline.operations.following import fresh_settings
    from embed_pipeline.store.connection import connected

    async with connected(wiring.connection(settings)) as driver:
        sides = await fresh_settings(driver, settings)
    if options.until_empty or len(sides) == 1:
        return [await _drain(side, options, is_live=is_live) for side in sides]
    return await asyncio.gather(*(_drain(side, options, is_live=False) for side in sides))


async def _drain(settings: Settings, options: DrainOptions, *, is_live: bool) -> DrainReport:
    import asyncio

    from embed_pipeline.cli.drain_display import DrainDisplay
    from embed_pipeline.operations import wiring
    from embed_pipeline.worker.stopping import stopped_by_signals

    stop = asyncio.Event()
    with stopped_by_signals(stop, _say):
        owner = wiring.owner_of(f"cli-{uuid.uuid4()}")
        embedder = wiring.open_embedder(settings)
        async with wiring.opened_drain(
            settings, embedder, owner=owner, options=options, stop=stop, say=_say
        ) as (queue, work):
            console.print(
                f"▸ Draining with {safe(work.report.model)} as {safe(owner)}", soft_wrap=True
            )
            look = _outlook(queue, work)
            try:
                async with DrainDisplay(console, work.report, look, is_live=is_live):
                    await work.run()
            finally:
                _print_report(work.report)
            await _print_rest(queue)
            return work.report


def _say(message: str) -> None:
    console.print(f"▸ {message}")


def _outlook(queue: Queue, drain: Drain) -> Callable[[], Awaitable[Outlook]]:
    from embed_pipeline.domain.outlook import Outlook

    async def look() -> Outlook:
        counts = await queue.admin.counts()
        left = counts[JobStatus.PENDING] + counts[JobStatus.PROCESSING]
        state = await queue.switch.state()
        closed = printable(state.closed) if state.closed else None
        return Outlook(left, drain.waiting, closed)

    return look


def _print_report(report: DrainReport) -> None:
    rows = table()
    for name, value in report_rows(report):
        rows.add_row(name, safe(value))
    show(rows)


def report_rows(report: DrainReport) -> Iterator[tuple[str, str]]:
    """The report for people: what always matters, and what happened at all."""
    by_category = [f"{report.failed[c]} {c}" for c in ErrorCategory if report.failed[c]]
    yield "Completed", f"{report.completed} ({report.throughput:.1f} per second)"
    yield "Failed", ", ".join(by_category) or "0"
    yield "Given back", str(report.released + report.given_back)
    yield "Cache hits", str(report.cache_hits)
    for name, count in (
        ("To be tried again", report.retried),
        ("Superseded", report.superseded),
        ("Text changed meanwhile", report.moved),
        ("Cancelled or lost", report.lost),
        ("Writes refused", report.fenced),
        ("Recovered", report.recovered),
        ("Texts in pieces", report.in_pieces),
        ("Submitted in batches", report.in_batches),
        ("Recoveries failed", report.recovery_errors),
        ("Heartbeats failed", report.heartbeats_failed),
    ):
        if count:
            yield name, str(count)
    for kind in report.errors:
        yield "Error", str(kind)
    cost = report.cost_usd
    price = "price unknown" if cost is None else f"${cost:.4f}"
    yield "Requests", f"{report.requests}, {report.tokens} tokens, {price}"
    yield "Time", f"{report.seconds:.1f} s, {report.seconds_waiting:.1f} s waiting for the limit"
    ending = report.ending or "an error cut it short"
    yield "Ended because", f"{ending}: {report.reason}" if report.reason else str(ending)
    if report.breaker is not None and report.breaker.status is BreakerStatus.OPEN:
        done = "kept open" if report.breaker.failures > 1 else "opened"
        until = f"no drain gets jobs before the {report.breaker.next_try}"
        yield "Breaker", f"{done}, {until}, or before 'embed-pipeline resume --close-breaker'"


async def _print_rest(queue: Queue) -> None:
    metrics = await queue.metrics.read()
    left = metrics.counts[JobStatus.PENDING] + metrics.counts[JobStatus.PROCESSING]
    if left:
        later = f", {metrics.delayed} of them to be tried again later" if metrics.delayed else ""
        console.print(f"▸ {number_of(left)} left{later}; 'embed-pipeline status' shows more")


def _set_up_log(is_verbose: bool) -> None:
    from embed_pipeline.logs import LOGGER, log_to_stderr

    if is_verbose:
        log_to_stderr()
    else:
        # The report says what the lines of the log say one by one.
        logging.getLogger(LOGGER).setLevel(logging.CRITICAL)
