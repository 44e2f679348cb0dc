"""Turns signals into an orderly end of a drain."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

Result = TypeVar("Result")
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


async def unless_stopped(
    work: Coroutine[Any, Any, Result], stop: asyncio.Event, *, seconds: float | None = None
) -> Result | None:
    """What ``work`` returns; None where it was not done before the stop, or in so many seconds."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait(
            {working, stopping}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        return working.result() if working.done() else None
    finally:
        stopping.cancel()
        working.cancel()
        await asyncio.wait({working, stopping})
