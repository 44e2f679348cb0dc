"""The bridge from sync callers to async work, also where an event loop runs already."""

import asyncio
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from typing import Any

import pytest
from neo4j import Record

from embed_pipeline.operations.blocking import finish
from embed_pipeline.store.sync_driver import as_async

PATIENCE = 60
"""Seconds until work that was not told to stop ends by itself."""


def in_a_notebook(cell: Any) -> None:
    """Call something inside a running loop; an interrupt is raised in the cell, as Jupyter does."""

    async def run() -> None:
        cell()

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


def is_waited_for() -> bool:
    """Whether the main thread waits for the thread; that happens just after the work began."""
    frame = sys._current_frames()[threading.main_thread().ident or 0]
    codes = {called.f_code for called, _ in traceback.walk_stack(frame)}
    return wait.__code__ in codes


def interrupt() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.fixture(autouse=True)
def interrupts_raise() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


async def test_what_a_coroutine_returns_or_raises_is_passed_on() -> None:
    async def answers() -> int:
        return 7

    async def fails() -> int:
        raise LookupError("not there")

    assert finish(answers()) == 7
    with pytest.raises(LookupError, match="not there"):
        finish(fails())


def test_m132_an_interrupt_in_a_notebook_cancels_the_work_and_waits_for_its_orderly_end() -> None:
    seen: list[str] = []

    async def work() -> None:
        while not is_waited_for():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0)
        interrupt()
        try:
            await asyncio.sleep(PATIENCE)
            seen.append("never heard")
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            seen.append("given back")
            raise

    with pytest.raises(KeyboardInterrupt):
        in_a_notebook(lambda: finish(work()))

    assert seen == ["given back"]


class Rows:
    """The part of a sync driver that reads, as a graph without rows."""

    @contextmanager
    def session(self, **_: object) -> Iterator["Rows"]:
        yield self

    @contextmanager
    def begin_transaction(self, **_: object) -> Iterator["Rows"]:
        yield self

    def run(self, *_: object) -> list[Record]:
        return []

    def commit(self) -> None: ...


@pytest.mark.parametrize("has_loop", [True, False], ids=["notebook", "script"])
def test_m132_an_interrupt_ends_what_only_waits_for_a_sync_driver(has_loop: bool) -> None:
    driver: Any = as_async(Rows())  # pyright: ignore[reportArgumentType]
    seen: list[str] = []

    async def read(tx: Any) -> None:
        await tx.run("RETURN 1")

    async def scan() -> None:
        while has_loop and not is_waited_for():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0)
        interrupt()
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            async with driver.session() as session:
                await session.execute_read(read)
        seen.append("never heard")

    with pytest.raises(KeyboardInterrupt):
        in_a_notebook(lambda: finish(scan())) if has_loop else finish(scan())

    assert seen == []
