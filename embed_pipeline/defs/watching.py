"""A tick of a queue at rest watches it for a while: Dagster looks every five seconds at best."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from typing import Final, TypeAlias

import dagster as dg

from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.operations import wiring
from embed_pipeline.operations.blocking import finish
from embed_pipeline.operations.following import fresh_settings
from embed_pipeline.settings import Settings
from embed_pipeline.store.connection import connected
from embed_pipeline.store.queue import Queue

Pause: TypeAlias = Callable[[float], Awaitable[None]]

LONGEST: Final = timedelta(seconds=8)
"""The tick ends before the daemon's next loop but one, ten seconds after it was due, also on a busy
machine, where it takes a second to begin: six ticks a minute instead of twelve. A daemon that is
stopped waits for its ticks, so no longer than that."""
EVERY: Final = timedelta(seconds=1)
"""A look costs two reads of the count store, one transaction."""


def watch_for_jobs(
    context: dg.SensorEvaluationContext, neo4j: Neo4jResource, *, pause: Pause = asyncio.sleep
) -> None:
    """Return as soon as a queue has something to look at, after ``LONGEST`` otherwise.

    The first tick does not wait, nor does the preview of a tick in the UI. An embedding on standby
    is passed over: its drain watches by itself. Where all are, no tick waits.
    """
    watched = [one for one in neo4j.embeddings if one.standby != "true"]
    if context.last_tick_completion_time is None or not watched:
        return
    # What is wrong is said by the look that follows, for each embedding.
    with suppress(Exception):
        finish(asyncio.wait_for(_watch(neo4j, watched, pause), LONGEST.total_seconds()))


async def _watch(neo4j: Neo4jResource, watched: Sequence[Settings], pause: Pause) -> None:
    """Return when a queue is not at rest; the queues beside live ones are watched, too."""
    async with AsyncExitStack() as stack:
        queues: list[Queue] = []
        for settings in watched:
            opened = connected(wiring.connection(settings), neo4j.open_driver)
            driver = await stack.enter_async_context(opened)
            sides = await fresh_settings(driver, settings)
            queues += [wiring.queue_on(driver, side) for side in sides]
        while await _are_at_rest(queues):
            await pause(EVERY.total_seconds())


async def _are_at_rest(queues: Sequence[Queue]) -> bool:
    for queue in queues:
        if not await queue.lookout.is_at_rest():
            return False
    return True
