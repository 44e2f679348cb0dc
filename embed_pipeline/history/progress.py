"""A progress bar for reading long histories; by time, as the number of records is unknown."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from rich.console import Console
from rich.progress import Progress

Tick = Callable[[datetime], None]


@contextmanager
def shown_progress(is_shown: bool, start: datetime | None, end: datetime) -> Iterator[Tick]:
    """Show the progress of reading from ``start``, or the first tick, to ``end``."""
    if not is_shown:
        yield lambda _: None
        return
    first = start
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Reading history", total=1.0)

        def tick(at: datetime) -> None:
            nonlocal first
            first = first or at
            span = (end - first).total_seconds()
            bar.update(task, completed=(at - first).total_seconds() / span if span > 0 else 1.0)

        yield tick
