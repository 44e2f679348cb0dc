"""Batches from settings: what drain, sensor and command line share."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from embed_pipeline.domain.errors import EmbeddingError
from embed_pipeline.domain.models import Provider
from embed_pipeline.operations import wiring
from embed_pipeline.operations.tracing import drain_trace, traced_batches
from embed_pipeline.worker.batch_collecting import Collector
from embed_pipeline.worker.batch_parts import BatchParts
from embed_pipeline.worker.batch_submitting import Submitter
from embed_pipeline.worker.options import Batching

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from embed_pipeline.domain.ports import Embedder
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.queue import Queue
    from embed_pipeline.worker.batch_collecting import Tended
    from embed_pipeline.worker.options import DrainOptions, Parts
    from embed_pipeline.worker.outage import Say
    from embed_pipeline.worker.report import DrainReport


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
            traced_batches(provider, settings),
            queue.limiter(limits, name=settings.rate_limit_name),
            settings.queue,
        )
    finally:
        await provider.close()


@dataclass(slots=True)
class BatchWork:
    """What a drain does about batches: collects what is ready, and submits what can wait."""

    queue: Queue
    settings: Settings
    embedder: Embedder
    options: DrainOptions
    submits: bool
    say: Say
    _said: set[str] = field(default_factory=set)

    async def look(self, report: DrainReport) -> None:
        """Look after all batches; whatever goes wrong, the drain can work meanwhile."""
        settings = self.settings
        parts = wiring.parts_on(self.queue, settings, self.embedder)
        lines: list[str] = []
        try:
            async with opened_batches(self.queue, settings, parts) as batches:
                tended = await Collector(batches, price=settings.batch_price).tend()
                lines += tended.lines
                if self.submits and not tended.outage:
                    await self._submit_all(batches, report, lines)
        except Exception as error:
            # It is written down how far it came.
            said = str(error) if isinstance(error, EmbeddingError) else type(error).__name__
            logger.warning("batches could not be looked after: %s", said)
            lines.append(f"batches could not be looked after now ({said})")
        for line in lines:
            if line not in self._said:
                self.say(line)
        self._said = set(lines)

    async def _submit_all(self, batches: BatchParts, report: DrainReport, lines: list[str]) -> None:
        least, model = self.settings.batch_least, self.settings.model
        while (most := self.options.jobs_left(report)) >= least:
            if (await self.queue.metrics.backlog(model, most=least)).due < least:
                return
            sent = await Submitter(batches).submit(most=most)
            if sent.batch:
                report.in_batches += sent.jobs
                lines.append(f"batch {sent.batch} submitted with {sent.jobs} jobs")
            if sent.reason:
                lines.append(f"no further batch: {sent.reason}")
            # What is left is too long, or suspect, or waits for a budget: a drain does it.
            if sent.reason or sent.jobs < least:
                return


async def batching_of(
    queue: Queue,
    settings: Settings,
    embedder: Embedder,
    options: DrainOptions,
    *,
    mode: str,
    say: Say,
) -> Batching | None:
    """What a drain has to do with batches: nothing where none is wanted, and none is there."""
    submits = mode == "batch"
    if submits and settings.no_batches:
        say(f"no batches: {settings.no_batches}")
    if settings.provider is not Provider.OPENAI:
        return None
    if not submits and not await queue.batches.every():
        return None
    work = BatchWork(queue, settings, embedder, options, submits, say)
    return Batching(work.look, settings.batch_least)


async def tend_batches(queue: Queue, settings: Settings, *, collects: bool) -> Tended | None:
    """Poll and collect all batches; None if there are none."""
    if settings.provider is not Provider.OPENAI or not await queue.batches.every():
        return None
    embedder = wiring.open_embedder(settings)
    try:
        parts = wiring.parts_on(queue, settings, embedder)
        async with opened_batches(queue, settings, parts) as batches:
            collector = Collector(batches, price=settings.batch_price)
            if not collects:
                return await collector.tend(collects=False)
            with drain_trace(collector.report, queue=settings.queue, operation="collect"):
                return await collector.tend()
    finally:
        await embedder.close()
