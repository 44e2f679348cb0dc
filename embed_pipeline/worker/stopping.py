"""Turns signals into an orderly end of a drain."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

ON_TERMINATION: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stopped_by_signals(stop: asyncio.Event, say: Callable[[str], None]) -> Iterator[None]:
    """Let SIGINT and SIGTERM set ``stop``, also when they are repeated; needs the main thread."""
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            say("Still giving jobs back; a job that is dropped now is locked until it expires")
            return
        stop.set()
        say("Stopping: no new jobs; requests in flight may end, the rest is given back")

    before = {number: signal.getsignal(number) for number in ON_TERMINATION}
    for number in ON_TERMINATION:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
