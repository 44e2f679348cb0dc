"""Batches to test: the real store, the real client, a provider on loopback.

``python -m tests.support.batch_main`` is the same in a process that kills itself.
"""

import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from neo4j import AsyncDriver

from embed_pipeline.domain.budget import NO_BUDGET, Budget
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.prices import Price
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.domain.text import memento_text, recipe_of, render_for
from embed_pipeline.embedding.openai import OpenAIEmbedder
from embed_pipeline.embedding.openai_batch import OpenAIBatches
from embed_pipeline.embedding.tokens import document_splitter
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.connection import fault_of
from embed_pipeline.store.queue import Queue, open_queue
from embed_pipeline.worker.batch_collecting import Collector, Tended
from embed_pipeline.worker.batch_parts import BatchParts, Step
from embed_pipeline.worker.batch_submitting import Submitted, Submitter
from embed_pipeline.worker.options import Parts
from tests.support.openai_server import KEY
from tests.support.queue_harness import DIMENSIONS, MODEL

NO_PATIENCE = timedelta(0)
HALF_PRICE = Price(0.5, "half")


class CrashError(BaseException):
    """Somebody has died: nobody catches that."""


def text_of(uid: str) -> str:
    """The text of an entity that a test has put into the graph."""
    return memento_text({"name": uid, "entityType": "test", "observations": ["text"]})


def crash_after(step: Step) -> Callable[[Step], None]:
    def passed(now: Step) -> None:
        if now is step:
            raise CrashError(step)

    return passed


def killed_after(step: Step) -> Callable[[Step], None]:
    def passed(now: Step) -> None:
        if now is step:
            os.kill(os.getpid(), signal.SIGKILL)

    return passed


@dataclass
class Ahead:
    """The real time, and as much more as a test has moved it by."""

    by: timedelta = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.by


@dataclass
class Batching:
    """Makes and collects batches."""

    driver: AsyncDriver
    database: str
    base_url: str
    clock: Ahead = field(default_factory=Ahead)
    shape: EntityShape = field(default_factory=EntityShape)
    budget: Budget = NO_BUDGET

    @property
    def queue(self) -> Queue:
        config = QueueConfig(shape=self.shape, dimensions=DIMENSIONS)
        return open_queue(self.driver, database=self.database, config=config, clock=self.clock)

    @asynccontextmanager
    async def parts(
        self, passed: Callable[[Step], None] = lambda _: None
    ) -> AsyncGenerator[BatchParts]:
        queue = self.queue
        options = {
            "model": MODEL,
            "dimensions": DIMENSIONS,
            "api_key": KEY,
            "base_url": self.base_url,
        }
        embedder, provider = OpenAIEmbedder(**options), OpenAIBatches(**options)
        limits = RateLimits(requests=1, interval=timedelta(minutes=1), budget=self.budget)
        limiter = queue.limiter(limits)
        parts = Parts(
            store=queue.jobs,
            open_store=partial(nullcontext, queue.jobs),
            limiter=limiter,
            switch=queue.switch,
            counters=queue.admin,
            embedder=embedder,
            render=render_for(self.shape),
            recipe=recipe_of(self.shape),
            prepare=document_splitter(self.shape, max_tokens=embedder.limits.tokens_per_input),
            fault_of=fault_of,
        )
        try:
            yield BatchParts(parts, queue.batches, provider, limiter, "embeddings", passed=passed)
        finally:
            await provider.close()
            await embedder.close()

    async def submit(self, passed: Callable[[Step], None] = lambda _: None) -> Submitted:
        async with self.parts(passed) as parts:
            return await Submitter(parts).submit()

    async def tend(
        self, passed: Callable[[Step], None] = lambda _: None, *, collects: bool = True
    ) -> Tended:
        async with self.parts(passed) as parts:
            collector = Collector(parts, price=HALF_PRICE)
            return await collector.tend(collects=collects, patience=NO_PATIENCE)

    async def submit_and_tend(self, passed: Callable[[Step], None]) -> None:
        await self.submit(passed)
        await self.tend(passed)
