"""Drains to test: the real engine, the real store with the server's own clock, a real provider."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from neo4j import AsyncDriver

from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.job import NewJob
from embed_pipeline.domain.ports import JobStore
from embed_pipeline.domain.prices import UNKNOWN, Price
from embed_pipeline.domain.profiles import OPENAI, Profile
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.domain.text import recipe_of, render_for
from embed_pipeline.embedding.openai import OpenAIEmbedder
from embed_pipeline.embedding.tokens import document_splitter
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.connection import Connection, fault_of, open_driver
from embed_pipeline.store.queue import Queue, open_queue
from embed_pipeline.testing.clock import FakeClock
from embed_pipeline.worker.engine import Drain
from embed_pipeline.worker.lease_keeper import Clock
from embed_pipeline.worker.options import DrainOptions, Parts
from embed_pipeline.worker.outage import Say
from embed_pipeline.worker.report import DrainReport
from tests.support.openai_server import KEY, OpenAIServer
from tests.support.queue_harness import DIMENSIONS, MODEL, SHAPE, Neo4jUnderTest

PLENTY = RateLimits(requests=10_000, interval=timedelta(seconds=1))
OPTIONS = DrainOptions(idle_pause=timedelta(milliseconds=50))


@dataclass
class DrainUnderTest(Neo4jUnderTest):
    """The queue of the other tests, with time that passes by itself, and drains on it."""

    connection: Connection | None = None
    server: OpenAIServer | None = None
    shape: EntityShape = SHAPE
    limits: RateLimits = PLENTY
    price: Price = UNKNOWN
    limiter_clock: FakeClock | None = None
    """Lets a test decide when the window of the rate limit has passed."""
    store_clock: FakeClock | None = None
    """Lets a test decide when a lease has expired; without it the server's own time passes."""

    relations_delay: timedelta = timedelta(0)
    keeps_foreign: bool = False
    keeps_old: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.config = QueueConfig(
            shape=self.shape,
            dimensions=DIMENSIONS,
            keeps_foreign=self.keeps_foreign,
            keeps_old=self.keeps_old,
            relations_delay=self.relations_delay,
        )
        self.queue = self._opened(self.driver)
        self.jobs, self.admin, self.switch = (
            self.queue.jobs,
            self.queue.admin,
            self.queue.switch,
        )

    def _opened(self, driver: AsyncDriver) -> Queue:
        return open_queue(
            driver, database=self.database, config=self.config, clock=self.store_clock
        )

    def on_a_clock(self) -> "DrainUnderTest":
        """The same queue in a time that stands still until it is moved."""
        return replace(self, store_clock=FakeClock())

    @property
    def provider(self) -> OpenAIServer:
        assert self.server is not None
        return self.server

    async def given(self, count: int, *, prefix: str = "e") -> None:
        """Entities with a pending job each."""
        uids = [f"{prefix}{number}" for number in range(count)]
        await self.run(
            """
            UNWIND $uids AS uid
            CREATE (:Entity {name: uid, entityType: 'test', observations: ['text'], version: 1})
            """,
            uids=uids,
        )
        await self.admin.enqueue([NewJob(uid, MODEL) for uid in uids])

    @asynccontextmanager
    async def drain(
        self,
        *,
        owner: str = "run-1/test",
        stop: asyncio.Event | None = None,
        store: Any = None,
        heartbeat_store: Any = None,
        api_key: str = KEY,
        profile: Profile = OPENAI,
        base_url: str | None = None,
        say: Say = lambda _: None,
        clock: Clock = time.monotonic,
        model: str = MODEL,
        **options: Any,
    ) -> AsyncGenerator[Drain]:
        embedder = OpenAIEmbedder(
            model=model,
            dimensions=DIMENSIONS,
            api_key=api_key,
            base_url=base_url or self.provider.base_url,
            profile=profile,
        )

        @asynccontextmanager
        async def open_store() -> AsyncGenerator[JobStore]:
            if heartbeat_store is not None:
                yield heartbeat_store
                return
            assert self.connection is not None
            async with open_driver(self.connection) as driver:
                yield self._opened(driver).jobs

        parts = Parts(
            store=store or self.jobs,
            open_store=open_store,
            limiter=open_queue(
                self.driver, database=self.database, clock=self.limiter_clock
            ).limiter(self.limits),
            switch=self.switch,
            counters=self.admin,
            embedder=embedder,
            render=render_for(self.shape),
            recipe=recipe_of(self.shape),
            prepare=document_splitter(self.shape, max_tokens=embedder.limits.tokens_per_input),
            fault_of=fault_of,
            release_owner=self.admin.release_owner,
            price=self.price,
            clock=clock,
        )
        try:
            yield Drain(
                parts,
                owner=owner,
                options=replace(OPTIONS, **options),
                stop=stop,
                say=say,
            )
        finally:
            await embedder.close()

    async def drained(self, **options: Any) -> DrainReport:
        """Run one drain to its end."""
        async with self.drain(**options) as drain:
            return await drain.run()

    async def counted(self) -> dict[str, int]:
        """Jobs per state, without the empty ones."""
        return {s.value: n for s, n in (await self.admin.counts()).items() if n}

    async def attempts(self) -> dict[int, int]:
        """How many jobs have had how many attempts."""
        rows = await self.run("MATCH (j:EmbedJob) RETURN j.attempts AS attempts, count(*) AS jobs")
        return {row["attempts"]: row["jobs"] for row in rows}


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that another task, thread or process does."""
    async with asyncio.timeout(300):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)
