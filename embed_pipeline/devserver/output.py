"""Printing that can neither fail nor hold anybody up."""

import os
import queue
import select
import threading
from contextlib import suppress
from typing import IO, Any, Final

from rich.console import Console

LINES_WAITING: Final = 1_000
FLUSH_SECONDS: Final = 2.0


class Outlet:
    """A text stream that goes quiet, instead of raising, once its reader is gone.

    ``rich`` ends the program when a pipe is broken, and a terminal that was closed raises an
    ``OSError`` of its own. Both came just when everything had to be stopped.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._is_lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def is_gone(self) -> bool:
        """Say whether the reader of the pipe has ended, or the terminal was closed."""
        if self._is_lost:
            return True
        try:
            poller = select.poll()
            poller.register(self._stream.fileno(), 0)
            return any(event & (select.POLLERR | select.POLLHUP) for _, event in poller.poll(0))
        except (OSError, ValueError):
            return False

    def write(self, text: str) -> int:
        """Write, unless the reader is gone."""
        if not self._is_lost:
            try:
                return self._stream.write(text)
            except (OSError, ValueError):
                self._lose()
        return len(text)

    def flush(self) -> None:
        """Flush, unless the reader is gone."""
        if not self._is_lost:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._lose()

    def _lose(self) -> None:
        self._is_lost = True
        # What is still in the buffer goes nowhere: at the end of the program Python flushes it.
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


class Speaker:
    """Prints from its own thread, for callers that must not block on a reader.

    A pager that is not scrolled, or a stopped terminal, blocks its writers.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines: queue.Queue[tuple[str, str | None] | None] = queue.Queue(LINES_WAITING)
        self._thread = threading.Thread(target=self._print, name="speaker", daemon=True)
        self._thread.start()

    def say(self, text: str, *, style: str | None = None) -> None:
        """Queue a line; dropped if a thousand others are queued."""
        with suppress(queue.Full):
            self._lines.put_nowait((text, style))

    def close(self) -> None:
        """Flush the queue, for a limited time."""
        with suppress(queue.Full):
            self._lines.put_nowait(None)
            self._thread.join(FLUSH_SECONDS)

    def _print(self) -> None:
        while (line := self._lines.get()) is not None:
            text, style = line
            self._console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
