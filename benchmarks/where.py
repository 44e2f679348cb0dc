"""Item 8: where the processor time of a drain goes, in the client and in the server."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import psutil

from benchmarks.contestants import LEASE, UNLIMITED, hash_of
from benchmarks.plan import Plan
from benchmarks.site import BATCH, MODEL, PoolEmbedder, Site, opened
from benchmarks.table import Line
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.results import Completion
from embed_pipeline.domain.text import render_for, text_hash
from embed_pipeline.store.connection import Connection
from embed_pipeline.worker.batching import judge_answer

MILLION: Final = 1_000_000
STEPS: Final = {
    "lease": "lease",
    "load": "read the entities",
    "render": "render, hash and count tokens",
    "find": "look for known vectors",
    "check": "look for cancellations",
    "grant": "ask the rate limit",
    "judge": "look at the answer",
    "heartbeat": "heartbeat (a drain needs one in 100 s)",
    "complete": "complete, with the vectors",
}
"""What a drain does, in its order."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds."""

    wall: float = 0.0
    client: float = 0.0
    """Processor time of this process."""
    server: float = 0.0
    """Processor time of Neo4j."""

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(self.wall + other.wall, self.client + other.client, self.server + other.server)

    def __sub__(self, other: "Spent") -> "Spent":
        return self + other * -1

    def __mul__(self, factor: float) -> "Spent":
        return Spent(self.wall * factor, self.client * factor, self.server * factor)


def lines(connection: Connection, neo4j_pid: int, plan: Plan) -> Iterator[Line]:
    """Do what a drain does, one step after the other, and look at both clocks."""
    for name, spent in measure(connection, neo4j_pid, plan).items():
        each = spent * MILLION
        yield Line(
            8,
            f"{STEPS[name]}: microseconds per job",
            f"{each.wall:.0f}; processor time of the client {each.client:.0f},"
            f" of the server {each.server:.0f}",
        )


@cache
def measure(
    connection: Connection,
    neo4j_pid: int,
    plan: Plan,
    *,
    batch: int = BATCH,
    has_index: bool = False,
) -> dict[str, Spent]:
    """What each of ``STEPS`` takes for one job, in batches of a size; measured once in a run."""
    spent: dict[str, Spent] = defaultdict(Spent)
    entities = plan.indexed_entities if has_index else plan.entities

    async def work() -> None:
        async with opened(connection) as site:
            await site.prepare(entities, has_index=has_index)
            for number in range(plan.step_rounds + 1):
                await site.reset(entities, jobs=True)
                # The first round warms up the server and its plans.
                own = spent if number else defaultdict(Spent)
                while await _one_batch(site, neo4j_pid, own, batch):
                    pass

    asyncio.run(work())
    return {name: spent[name] * (1 / (plan.step_rounds * entities)) for name in STEPS}


async def _one_batch(site: Site, pid: int, spent: dict[str, Spent], size: int) -> int:
    jobs = site.queue.jobs

    async def step(name: str, work: Awaitable[Any]) -> Any:
        before = _clocks(pid)
        result = await work
        spent[name] += _clocks(pid) - before
        return result

    lease = jobs.lease(owner="owner", model=MODEL, limit=size, duration=LEASE)
    batch = (await step("lease", lease)).jobs
    if not batch:
        return 0
    leases = [leased.lease for leased in batch]
    loaded = await step("load", jobs.load(leases))
    texts = [item.properties for item in loaded]
    await step("render", _render(texts))
    hashes = [hash_of(lease.entity_uid) for lease in leases]
    known = jobs.find_vectors(hashes, model=MODEL, dimensions=len(site.vectors[0]))
    await step("find", known)
    await step("check", jobs.check(leases))
    await step("grant", site.queue.limiter(UNLIMITED).acquire(tokens=len(batch)))
    await step("judge", _judge(site.vectors[: len(batch)]))
    await step("heartbeat", jobs.heartbeat(leases, duration=LEASE))
    rows = [
        Completion(lease, site.vectors[n], digest, tokens=1)
        for n, (lease, digest) in enumerate(zip(leases, hashes, strict=True))
    ]
    await step("complete", jobs.complete(rows))
    return len(batch)


async def _render(texts: list[Any]) -> None:
    embedder, render = PoolEmbedder(), render_for(EntityShape())
    for properties in texts:
        text = render(properties)
        text_hash(text)
        embedder.prepare(text)


async def _judge(vectors: list[list[float]]) -> None:
    judge_answer(vectors, expected=len(vectors), dimensions=len(vectors[0]))


def _clocks(pid: int) -> Spent:
    return Spent(time.perf_counter(), _cpu(psutil.Process()), _cpu(psutil.Process(pid)))


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
