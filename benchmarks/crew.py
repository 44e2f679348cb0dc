"""Processes that work at the same time, each with a connection of its own, for all rounds."""

import asyncio
import multiprocessing
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from typing import Any

from benchmarks.site import Site, opened
from embed_pipeline.operations.resident import set_loaded_modules_aside
from embed_pipeline.store.connection import Connection

Work = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Shift:
    """What a crew needed for one piece of work."""

    seconds: float
    answers: tuple[Any, ...]


@dataclass(frozen=True)
class Crew:
    """Some processes; ``work`` lets each do its share and waits for the last."""

    members: Sequence[tuple[BaseProcess, Pipe]]

    def work(self, work: Work, *shares: tuple[Any, ...]) -> Shift:
        """Let one member do each share, all at the same time."""
        chosen = self.members[: len(shares)]
        began = time.perf_counter()
        for (_, pipe), share in zip(chosen, shares, strict=True):
            pipe.send((work, share))
        answers = tuple(pipe.recv() for _, pipe in chosen)
        seconds = time.perf_counter() - began
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return Shift(seconds, answers)


@contextmanager
def hired(size: int, connection: Connection) -> Generator[Crew]:
    """Start processes and end them with the block."""
    context = multiprocessing.get_context("spawn")
    members: list[tuple[BaseProcess, Pipe]] = []
    try:
        for _ in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, connection), daemon=True)
            process.start()
            members.append((process, ours))
        yield Crew(members)
    finally:
        for process, pipe in members:
            pipe.close()
            process.join()


def _serve(pipe: Pipe, connection: Connection) -> None:
    asyncio.run(_work_for_ever(pipe, connection))


async def _work_for_ever(pipe: Pipe, connection: Connection) -> None:
    async with opened(connection) as site:
        # As in every process that drains.
        set_loaded_modules_aside()
        while True:
            try:
                work, share = await asyncio.to_thread(pipe.recv)
            except EOFError:
                return
            pipe.send(await _done(work, site, share))


async def _done(work: Work, site: Site, share: tuple[Any, ...]) -> Any:
    try:
        return await work(site, *share)
    except Exception as error:
        return error
