"""Item 8: where the processor time of a drain goes, in the client and in the server."""

import time
from collections import defaultdict
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psutil

from benchmarks.contestants import LEASE, UNLIMITED, drain, hash_of
from benchmarks.site import DIMENSIONS, MODEL, PoolEmbedder, Site
from benchmarks.table import Line
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.results import Completion
from embed_pipeline.domain.text import render_for, text_hash
from embed_pipeline.domain.vector import Vector
from embed_pipeline.worker.batching import judge_answer

MILLION: Final = 1_000_000
STARTS: Final = 10
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


def lines(steps: Mapping[str, Spent]) -> Iterator[Line]:
    """Say what each of ``STEPS`` takes for one job."""
    for name, spent in steps.items():
        each = spent * MILLION
        yield Line(
            8,
            f"{STEPS[name]}: microseconds per job",
            f"{each.wall:.0f}; processor time of the client {each.client:.0f},"
            f" of the server {each.server:.0f}",
        )


def mean(rounds: Sequence[Mapping[str, Spent]]) -> dict[str, Spent]:
    """The mean of several rounds; processor time is counted in steps that are too large for one."""
    return {
        name: sum((steps[name] for steps in rounds), Spent()) * (1 / len(rounds)) for name in STEPS
    }


async def steps(site: Site, neo4j_pid: int, entities: int, *, batch: int) -> dict[str, Spent]:
    """Do what a drain does, one step after the other: what each of ``STEPS`` takes for one job."""
    spent: dict[str, Spent] = defaultdict(Spent)
    await site.reset(entities, jobs=True)
    while await _one_batch(site, neo4j_pid, spent, batch):
        pass
    return {name: spent[name] * (1 / entities) for name in STEPS}


async def start(site: Site, neo4j_pid: int) -> Spent:
    """Begin and end a drain that finds nothing to do."""
    await site.reset(0, jobs=False)
    before = _clocks(neo4j_pid)
    for _ in range(STARTS):
        await drain(site, "owner")
    return (_clocks(neo4j_pid) - before) * (1 / STARTS)


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
    known = jobs.find_vectors(hashes, model=MODEL, dimensions=DIMENSIONS)
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


async def _judge(vectors: list[Vector]) -> None:
    judge_answer(vectors, expected=len(vectors), dimensions=DIMENSIONS)


def _clocks(pid: int) -> Spent:
    return Spent(time.perf_counter(), _cpu(psutil.Process()), _cpu(psutil.Process(pid)))


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
