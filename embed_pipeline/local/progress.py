"""The progress bar of the download."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from embed_pipeline.local.jars import OnProgress


@contextmanager
def download_bar(console: Console | None = None) -> Iterator[OnProgress]:
    """Show a bar on stderr as soon as something is downloaded, and nothing if nothing is."""
    columns = (
        TextColumn("Downloading Neo4j"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console or Console(stderr=True)) as progress:
        task = progress.add_task("jars", total=None, visible=False)

        def show(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total, visible=True)

        yield show
