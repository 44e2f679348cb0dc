"""The requests that a drain has under way, bounded by their number and by their vectors."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

from embed_pipeline.domain.embedding import RequestLimits
from embed_pipeline.worker.options import DrainOptions


class InFlight:
    """The running requests of a drain, bounded by their number and by their vectors."""

    def __init__(self, options: DrainOptions, limits: RequestLimits) -> None:
        self._options = options
        self._limits = limits
        self._tasks: dict[asyncio.Task[None], int] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        return iter(self._tasks)

    def start(self, work: Coroutine[Any, Any, None], *, vectors: int) -> None:
        """Begin; ``discard`` the task when it is done."""
        self._tasks[asyncio.create_task(work)] = vectors

    def discard(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def has_room(self, vectors: int) -> bool:
        """Whether another request may start; at least one always may."""
        if len(self._tasks) >= self._options.requests_at_once:
            return False
        return not self._tasks or self._vectors + vectors <= self._limits.inputs_in_flight

    @property
    def is_full(self) -> bool:
        """Whether too many vectors wait to be written, those copied from the graph included."""
        return (
            len(self._tasks) > self._options.requests_at_once
            or self._vectors > self._limits.inputs_in_flight
        )

    async def end(self) -> None:
        """Wait for all of them during the grace, then cancel the rest."""
        if self._tasks:
            grace = self._options.grace.total_seconds()
            _, late = await asyncio.wait(self._tasks, timeout=grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._tasks.clear()

    @property
    def _vectors(self) -> int:
        return sum(self._tasks.values())
