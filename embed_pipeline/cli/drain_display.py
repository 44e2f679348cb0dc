"""What a person sees while a drain works: a live line on a terminal, plain lines elsewhere."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from embed_pipeline.domain.outlook import Outlook, Progress
from embed_pipeline.worker.report import DrainReport

LIVE_SECONDS: Final = 0.25
LOOK_SECONDS: Final = 2.0
PLAIN_SECONDS: Final = 5.0
QUIET_SECONDS: Final = 60.0
"""A drain that waits for work says so once a minute, not once per look."""


class DrainDisplay:
    """Shows the report while it grows; its own errors never end a drain."""

    def __init__(
        self,
        console: Console,
        report: DrainReport,
        look: Callable[[], Awaitable[Outlook]],
        *,
        is_live: bool,
    ) -> None:
        """Nothing is shown before the ``async with`` block.

        Args:
            console: where to.
            report: counted by the drain.
            look: asks the database; a question that fails leaves the last answer.
            is_live: redraw one line; else print a new one every few seconds.
        """
        self._console = console
        self._report = report
        self._look = look
        self._outlook = Outlook()
        self._looked_at = float("-inf")
        self._ended_then = 0
        self._told = 0
        self._started = time.monotonic()
        self._live = Live(console=console, auto_refresh=False, transient=True) if is_live else None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._started = time.monotonic()
        if self._live:
            self._live.start()
        self._task = asyncio.create_task(self._redraw() if self._live else self._print_lines())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(escape(text), soft_wrap=True)

    def progress(self) -> Progress:
        """The current figures."""
        now = time.monotonic()
        left, wait = self._outlook.left, self._outlook.wait
        # Until the database is asked again, what this drain ended since is no longer left.
        ended = self._ended - self._ended_then
        return Progress(
            done=self._report.completed,
            failed=self._report.failed.total(),
            left=None if left is None else max(0, left - ended),
            seconds=now - self._started,
            wait=max(0.0, wait - (now - self._looked_at)) if wait else 0.0,
            closed=self._outlook.closed,
        )

    @property
    def _ended(self) -> int:
        return self._report.completed + self._report.failed.total() + self._report.superseded

    async def _redraw(self) -> None:
        while True:
            if time.monotonic() - self._looked_at >= LOOK_SECONDS:
                await self._update()
            self._tell_new_errors()
            if self._live:
                self._live.update(_drawing(self.progress()), refresh=True)
            await asyncio.sleep(LIVE_SECONDS)

    async def _print_lines(self) -> None:
        last: tuple[int, int, int | None, str | None] | None = None
        printed_at = time.monotonic()
        while True:
            await asyncio.sleep(PLAIN_SECONDS)
            await self._update()
            self._tell_new_errors()
            now = self.progress()
            figures = (now.done, now.failed, now.left, now.closed)
            if figures != last or time.monotonic() - printed_at >= QUIET_SECONDS:
                self.say(str(now))
                last, printed_at = figures, time.monotonic()

    def _tell_new_errors(self) -> None:
        """Print each kind of error once: a watching drain never reaches its report."""
        kinds = list(self._report.kinds.values())
        for kind in kinds[self._told :]:
            self.say(f"! {kind.category}: {kind.example}")
        self._told = len(kinds)

    async def _update(self) -> None:
        with suppress(Exception):
            ended = self._ended
            self._outlook = await self._look()
            self._ended_then = ended
        self._looked_at = time.monotonic()


def _drawing(progress: Progress) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=1.0, completed=progress.share, width=24)
    style = "yellow" if progress.wait >= 1 or progress.closed else ""
    words = escape(str(progress))
    grid.add_row(bar, f"[{style}]{words}[/]" if style else words)
    return grid
