"""``embed-pipeline report`` and ``metrics``: the history for people, the figures for Prometheus."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from embed_pipeline.cli.base import chosen_settings, console, each_chosen
from embed_pipeline.domain.errors import ConfigurationError

DEFAULT_PORT: Final = 9464


def report(
    since: Annotated[
        str, typer.Option(metavar="WHEN", help="From then on: 36h, 7d, 4w, or 2026-11-16.")
    ] = "7d",
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Where the page goes.")
    ] = Path("report.html"),
    dagster_home: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="The DAGSTER_HOME of another deployment; this project's if empty.",
        ),
    ] = None,
) -> None:
    """Write one self-contained page about the queue: can be mailed, needs no network.

    Are we keeping up, what fails, what did it cost, what should I change.
    """
    from embed_pipeline import history
    from embed_pipeline.operations.reading import objectives
    from embed_pipeline.report.page import render
    from embed_pipeline.report.source import History

    settings, now = chosen_settings(), datetime.now(UTC)
    start = _start(since, now=now)
    with _writing(out):
        _check_target(out)
    _check_home(dagster_home)
    # First what may not answer, then what may take long.
    failures = history.failures(since=start, settings=settings)
    found = History(
        since=start,
        now=now,
        model=settings.model,
        objectives=objectives(settings),
        metrics=history.queue_metrics(
            since=start, queue=settings.queue, instance=dagster_home, progress=True
        ),
        drains=history.drains(since=start, queue=settings.queue, instance=dagster_home),
        failures=failures,
    )
    page = render(found)
    with _writing(out):
        _write(out, page)
    console.print(
        f"✓ {len(found.metrics)} readings, {len(found.drains)} drains: {out}",
        markup=False,
        soft_wrap=True,
    )


def _start(since: str, *, now: datetime) -> datetime:
    from embed_pipeline.history.moments import ALLOWED, to_time

    try:
        start = to_time(since, now=now)
    except ValueError as error:
        raise ConfigurationError(f"--since: {error}") from None
    except OverflowError:
        raise ConfigurationError(f"--since: {since!r} is too long ago; give {ALLOWED}") from None
    if start is None or start >= now:
        raise ConfigurationError(f"--since: {since!r} is not in the past; give {ALLOWED}")
    return start


def _write(out: Path, page: str) -> None:
    """Write the file readable by this user only: it names entities and quotes errors."""
    from embed_pipeline.devserver.files import write_private

    if out.exists() and not out.is_file():
        # A pipe or a device must not be replaced.
        out.write_text(page, encoding="utf-8")
    else:
        write_private(out.resolve(), page)


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"--out: cannot write {out}: {error.strerror}") from error


def _check_target(out: Path) -> None:
    """Check the target before reading the history, which may take long."""
    if not out.parent.is_dir():
        raise ConfigurationError(f"--out: there is no folder {out.parent}; make it first")
    if out.is_dir():
        raise ConfigurationError(f"--out: {out} is a folder; name a file, such as report.html")


def _check_home(home: Path | None) -> None:
    from embed_pipeline.history.sources import has_storage

    if home is not None and not has_storage(home):
        raise ConfigurationError(
            f"--dagster-home: {home} holds no history of Dagster; name the DAGSTER_HOME of a "
            "deployment that has run"
        )


def metrics(
    serve: Annotated[
        bool, typer.Option("--serve", help="Answer scrapes until Ctrl-C; else print once.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=1, max=65_535, metavar="N", help="Port on 127.0.0.1.")
    ] = DEFAULT_PORT,
) -> None:
    """Give the queue's figures in the text format of Prometheus, read at the time of asking."""
    from embed_pipeline import prometheus
    from embed_pipeline.devserver.ports import answers
    from embed_pipeline.loopback_server import LOOPBACK

    embeddings = each_chosen()
    if not serve:
        typer.echo(prometheus.text(*embeddings), nl=False)
        return
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    # Asking first: on macOS a bind to 127.0.0.1 succeeds beside a listener on all addresses.
    if answers(port):
        raise ConfigurationError(_unusable(port, "another program listens there"))
    try:
        server, thread = prometheus.serve(*embeddings, port=port)
    except OSError as error:
        raise ConfigurationError(_unusable(port, error.strerror)) from error
    console.print(f"▸ http://{LOOPBACK}:{port}/metrics; Ctrl-C stops", soft_wrap=True)
    stop.wait()
    server.shutdown()
    server.server_close()
    thread.join()


def _unusable(port: int, reason: str | None) -> str:
    return f"--port: {port} cannot be used, {reason}; choose another one from 1024 to 65535"
