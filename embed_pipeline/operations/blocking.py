"""The bridge from sync callers to the async store: the only one, as a test of the layers sees."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, Final, TypeVar

Result = TypeVar("Result")
HEARD_WITHIN: Final = 0.5
"""Seconds of one wait: Python hears a signal that comes just before a wait only at its end."""


def finish(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end; in a thread if an event loop runs already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return _finish_in_thread(work)


def _finish_in_thread(work: Coroutine[Any, Any, Result]) -> Result:
    """An interrupt cancels the work, and is raised once that has ended in an orderly way."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)

    async def ended() -> Result:
        return await task

    def run() -> Result:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(ended())

    with ThreadPoolExecutor(max_workers=1) as thread:
        running = thread.submit(run)
        try:
            while not running.done():
                wait([running], timeout=HEARD_WITHIN)
            return running.result()
        except BaseException:
            # A closed loop: the work has ended, or this is its own error.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)
            raise
