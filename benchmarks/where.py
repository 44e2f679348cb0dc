"""Item 8: where the processor time of a drain goes, in the client and in the server."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Iterator
from typing import Any, Final

import psutil

from benchmarks.contestants import LEASE, hash_of
from benchmarks.plan import Plan
from benchmarks.site import BATCH, MODEL, PoolEmbedder, Site, opened
from benchmarks.table import Line
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.results import Completion
from embed_pipeline.domain.text import render_for, text_hash
from embed_pipeline.store.connection import Connection

MILLION: Final = 1_000_000


def lines(connection: Connection, neo4j_pid: int, plan: Plan) -> Iterator[Line]:
    """Do what a drain does, one step after the other, and look at both clocks."""
    spent = asyncio.run(_measure(connection, neo4j_pid, plan))
    jobs = plan.rounds * plan.entities
    for name, (wall, client, server) in spent.items():
        yield Line(
            8,
            f"{name}: microseconds per job",
            f"{wall * MILLION / jobs:.0f}; processor time of the client"
            f" {client * MILLION / jobs:.0f}, of the server {server * MILLION / jobs:.0f}",
        )


async def _measure(connection: Connection, pid: int, plan: Plan) -> dict[str, list[float]]:
    spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    async with opened(connection) as site:
        await site.prepare(plan.entities, has_index=False)
        for number in range(plan.rounds + 1):
            await site.reset(plan.entities, jobs=True)
            own = spent if number else defaultdict(lambda: [0.0, 0.0, 0.0])
            while await _one_batch(site, pid, own):
                pass
    return spent


async def _one_batch(site: Site, pid: int, spent: dict[str, list[float]]) -> int:
    jobs = site.queue.jobs

    async def step(name: str, work: Awaitable[Any]) -> Any:
        before = _clocks(pid)
        result = await work
        after = _clocks(pid)
        spent[name] = [
            total + new - old for total, new, old in zip(spent[name], after, before, strict=True)
        ]
        return result

    lease = jobs.lease(owner="owner", model=MODEL, limit=BATCH, duration=LEASE)
    batch = (await step("lease", lease)).jobs
    if not batch:
        return 0
    leases = [leased.lease for leased in batch]
    loaded = await step("read the entities", jobs.load(leases))
    texts = [item.properties for item in loaded]
    await step("render, hash and count tokens", _render(texts))
    hashes = [hash_of(lease.entity_uid) for lease in leases]
    known = jobs.find_vectors(hashes, model=MODEL, dimensions=len(site.vectors[0]))
    await step("look for known vectors", known)
    await step("look for cancellations", jobs.check(leases))
    await step("heartbeat (a drain needs one in 100 s)", jobs.heartbeat(leases, duration=LEASE))
    rows = [
        Completion(lease, site.vectors[n], digest, tokens=1)
        for n, (lease, digest) in enumerate(zip(leases, hashes, strict=True))
    ]
    await step("complete, with the vectors", jobs.complete(rows))
    return len(batch)


async def _render(texts: list[Any]) -> None:
    embedder, render = PoolEmbedder(), render_for(EntityShape())
    for properties in texts:
        text = render(properties)
        text_hash(text)
        embedder.prepare(text)


def _clocks(pid: int) -> tuple[float, float, float]:
    return time.perf_counter(), _cpu(psutil.Process()), _cpu(psutil.Process(pid))


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
