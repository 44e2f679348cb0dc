"""Batches from settings: what drain, sensor and command line share."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from embed_pipeline.domain.models import Provider
from embed_pipeline.operations import wiring
from embed_pipeline.worker.batch_collecting import Collector
from embed_pipeline.worker.batch_parts import BatchParts
from embed_pipeline.worker.batch_submitting import Submitted, Submitter

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from embed_pipeline.domain.ports import Embedder
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.queue import Queue
    from embed_pipeline.worker.batch_collecting import Tended
    from embed_pipeline.worker.options import DrainOptions, Parts


@dataclass(slots=True)
class BatchWork:
    """What was done about batches before a drain."""

    submitted: list[Submitted] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @property
    def jobs(self) -> int:
        """The number of submitted jobs."""
        return sum(done.jobs for done in self.submitted if done.batch)


@asynccontextmanager
async def opened_batches(
    queue: Queue, settings: Settings, parts: Parts
) -> AsyncGenerator[BatchParts]:
    """Open the provider's side of batches; closes it too."""
    from embed_pipeline.embedding.openai_batch import OpenAIBatches

    limits = replace(wiring.rate_limits(settings), budget=settings.batch_budget)
    provider = OpenAIBatches(
        model=settings.model,
        dimensions=settings.dimensions,
        api_key=key.get_secret_value() if (key := settings.openai_api_key) else "",
        base_url=settings.openai_base_url,
        profile=settings.profile,
    )
    try:
        yield BatchParts(
            parts,
            queue.batches,
            provider,
            queue.limiter(limits, name=settings.rate_limit_name),
            settings.queue,
        )
    finally:
        await provider.close()


async def prepare_drain(
    queue: Queue, settings: Settings, embedder: Embedder, options: DrainOptions, *, mode: str
) -> tuple[BatchWork, DrainOptions]:
    """Collect what is ready, and submit what can wait; how the drain is to go on.

    In mode batch an ordinary drain does at most as many jobs as make a batch, and then lets the
    next one look again: a backlog that comes meanwhile is not paid for in full.
    """
    done = BatchWork()
    if settings.provider is not Provider.OPENAI:
        return done, options
    if mode != "batch" and not await queue.batches.every():
        return done, options
    parts = wiring.parts_on(queue, settings, embedder)
    try:
        async with opened_batches(queue, settings, parts) as batches:
            tended = await Collector(batches, price=settings.batch_price).tend()
            done.lines += tended.lines
            if mode == "batch":
                await _submit_all(queue, settings, batches, done)
    except Exception as error:
        # Whatever it is, it is written down how far it came, and a drain can work meanwhile.
        logger.warning("batches could not be looked after: %s", type(error).__name__)
        done.lines.append(f"batches could not be looked after now ({type(error).__name__})")
    if mode != "batch":
        return done, options
    least = settings.batch_least
    return done, replace(options, max_jobs=min(least, options.max_jobs or least))


async def _submit_all(
    queue: Queue, settings: Settings, batches: BatchParts, done: BatchWork
) -> None:
    least = settings.batch_least
    while (await queue.metrics.backlog(settings.model, most=least)).due >= least:
        sent = await Submitter(batches).submit()
        done.submitted.append(sent)
        if sent.batch:
            done.lines.append(f"batch {sent.batch} submitted with {sent.jobs} jobs")
        if sent.reason:
            done.lines.append(f"no further batch: {sent.reason}")
        # What is left is too long, or suspect, or waits for a budget: a drain does it.
        if sent.reason or sent.jobs < least:
            return


async def tend_batches(queue: Queue, settings: Settings, *, collects: bool) -> Tended | None:
    """Poll and collect all batches; None if there are none."""
    if settings.provider is not Provider.OPENAI or not await queue.batches.every():
        return None
    embedder = wiring.open_embedder(settings)
    try:
        parts = wiring.parts_on(queue, settings, embedder)
        async with opened_batches(queue, settings, parts) as batches:
            return await Collector(batches, price=settings.batch_price).tend(collects=collects)
    finally:
        await embedder.close()
