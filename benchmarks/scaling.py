"""Item 4: whether an operation costs more where the queue is longer."""

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, LiteralString

from benchmarks.contestants import LEASE, hash_of
from benchmarks.plan import Plan
from benchmarks.profiled import ProfiledDatabase
from benchmarks.site import DELETE_JOBS, MODEL, Site, opened
from benchmarks.table import Line, at_most
from embed_pipeline.domain.job import JobFilter, LeasedJob, NewJob
from embed_pipeline.domain.results import Completion
from embed_pipeline.store.connection import Connection
from embed_pipeline.store.job_store import Neo4jJobStore
from embed_pipeline.store.metrics import Neo4jQueueMetrics
from embed_pipeline.store.queue_admin import Neo4jQueueAdmin
from embed_pipeline.store.scan import Neo4jReconciler

BATCH: Final = 100
TURNS: Final = 24
WARM_UP: Final = 8
EQUAL: Final = at_most(1.01)
FLAT: Final = at_most(3)
"""Of milliseconds: what grows with the queue would be a hundred times as slow."""
URGENT: Final = 10
PENDING: Final = "EmbedPending"
YOUNGER: Final = timedelta(days=10)
"""The copies wait behind the jobs that are measured, and ended before anybody looked."""

COPY_JOBS: Final[LiteralString] = """
UNWIND range($first, $last) AS n
CALL (n) {
  CREATE (job:EmbedJob:$($state)) SET job = $pattern
  SET job.id = 'copy-' + $state + n, job.entity_uid = 'copy-' + $state + n,
      job.ready_at = job.ready_at + $younger + n, job.processed_at = job.processed_at - $younger
} IN 2 CONCURRENT TRANSACTIONS OF 10000 ROWS
"""
"""As many jobs as wanted that are what one real job is, in its state."""
JOBS_PER_ENTITY: Final = 10
COPY_ENTITIES: Final[LiteralString] = """
UNWIND range($first, $last) AS n
CALL (n) {
  MATCH (pattern:Entity {name: 'e0'}) CREATE (copy:Entity)
  SET copy = properties(pattern), copy.name = 'x' + n
} IN 2 CONCURRENT TRANSACTIONS OF 10000 ROWS
"""
"""They come behind the page that is measured."""


@dataclass
class Costs:
    """What every operation took, at one length of the queue."""

    hits: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


def lines(connection: Connection, plan: Plan) -> Iterator[Line]:
    """Compare the longest queue with the shortest."""
    costs = asyncio.run(_measure(connection, plan.backlogs))
    short, long = costs[plan.backlogs[0]], costs[plan.backlogs[-1]]
    between = f"{plan.backlogs[-1]:,} jobs in the queue, against {plan.backlogs[0]:,}"
    for name, before in short.hits.items():
        after = long.hits[name]
        yield Line(
            4,
            f"{name}: database hits, {between}",
            " / ".join(f"{costs[size].hits[name]:,}" for size in plan.backlogs),
            [(after + 1) / (before + 1)],
            EQUAL,
        )
    for name in short.hits:
        yield Line(
            4,
            f"{name}: time, {between}",
            " / ".join(f"{1000 * _median(costs[size], name):.1f} ms" for size in plan.backlogs),
            [_median(long, name) / _median(short, name)],
            FLAT,
        )


def _median(costs: Costs, name: str) -> float:
    return statistics.median(costs.seconds[name][WARM_UP:])


async def _measure(connection: Connection, sizes: tuple[int, ...]) -> dict[int, Costs]:
    costs = {}
    async with opened(connection) as site:
        await site.prepare((TURNS + 1) * BATCH, has_index=False)
        models, filled = await patterns(site), 0
        for size in sizes:
            await fill(site, models, filled, size)
            filled = size
            await site.run("CALL db.awaitIndexes(600)")
            costs[size] = await _cost_of_everything(site)
    return costs


async def patterns(site: Site) -> dict[str, dict[str, Any]]:
    """What a job looks like that waits, and one that is done."""
    queue = site.queue
    await queue.admin.enqueue([NewJob("waits", MODEL), NewJob("e0", MODEL, priority=URGENT)])
    [leased] = (await queue.jobs.lease(owner="o", model=MODEL, limit=1, duration=LEASE)).jobs
    await queue.jobs.complete([_completion(site, leased)])
    rows = await site.run(
        "MATCH (j:EmbedJob) RETURN CASE j.status WHEN 'pending' THEN $pending"
        " ELSE 'EmbedCompleted' END AS state, j {.*, id: null, entity_uid: null} AS pattern",
        pending=PENDING,
    )
    await site.run(DELETE_JOBS)
    return {row["state"]: row["pattern"] for row in rows}


async def fill(site: Site, patterns: dict[str, dict[str, Any]], first: int, last: int) -> None:
    """Lengthen the queue: half of it waits, half is done; and let the graph grow with it."""
    for state, pattern in patterns.items():
        await copy_jobs(site, state, pattern, first // 2, last // 2)
    entities = first // JOBS_PER_ENTITY, last // JOBS_PER_ENTITY - 1
    await site.run(COPY_ENTITIES, first=entities[0], last=entities[1])


async def copy_jobs(site: Site, state: str, pattern: dict[str, Any], first: int, last: int) -> None:
    """Jobs of one state, alike but for their names."""
    await site.run(
        COPY_JOBS,
        state=state,
        pattern=pattern,
        first=first,
        last=last - 1,
        younger=YOUNGER // timedelta(milliseconds=1),
    )


async def _cost_of_everything(site: Site) -> Costs:
    costs = Costs()
    profiled = ProfiledDatabase(site.driver, timeout=timedelta(seconds=60))
    turn = _Turn(
        Neo4jJobStore(profiled, site.queue.config),
        Neo4jQueueAdmin(profiled, site.queue.config),
        Neo4jQueueMetrics(profiled, site.queue.config),
        Neo4jReconciler(profiled, site.queue.config, MODEL),
    )
    await _renew_urgent_jobs(site)
    await turn.run(site, lambda name, _: costs.hits.update({name: profiled.hits.take()}))
    queue = site.queue
    plain = _Turn(queue.jobs, queue.admin, queue.metrics, queue.reconciler(MODEL))
    for _ in range(TURNS):
        await _renew_urgent_jobs(site)
        await plain.run(site, lambda name, seconds: costs.seconds[name].append(seconds))
    return costs


async def _renew_urgent_jobs(site: Site) -> None:
    await site.run("MATCH (j:EmbedJob) WHERE j.entity_uid STARTS WITH 'e' DELETE j")
    wishes = [NewJob(f"e{n}", MODEL, priority=URGENT) for n in range(BATCH)]
    await site.queue.admin.enqueue(wishes)


@dataclass(frozen=True)
class _Turn:
    jobs: Neo4jJobStore
    admin: Neo4jQueueAdmin
    metrics: Neo4jQueueMetrics
    scan: Neo4jReconciler

    async def run(self, site: Site, note: Callable[[str, float], object]) -> None:
        """Do every operation once, on the most urgent jobs, which have entities."""

        async def timed(name: str, work: Awaitable[Any]) -> Any:
            began = time.perf_counter()
            result = await work
            note(name, time.perf_counter() - began)
            return result

        leased = await timed(f"lease {BATCH}", self._lease())
        leases = [item.lease for item in leased]
        await timed(f"heartbeat {BATCH}", self.jobs.heartbeat(leases, duration=LEASE))
        await timed("recover, nothing is due", self.jobs.recover_expired(limit=BATCH))
        await timed(f"release {BATCH}", self.jobs.release(leases))
        leased = await timed(f"lease {BATCH}", self._lease())
        rows = [_completion(site, item) for item in leased]
        await timed(f"complete {BATCH}", self.jobs.complete(rows))
        await timed("counts", self.admin.counts())
        await timed("metrics", self.metrics.read())
        # All of one kind: what a job costs to read depends on what it has.
        page = self.admin.find_jobs(JobFilter(), limit=BATCH, after=f"copy-{PENDING}")
        await timed(f"list {BATCH}", page)
        few = self.admin.find_jobs(JobFilter(entity_uids=("e0",)))
        await timed("list the jobs of an entity", few)
        await timed("look for failed jobs", self.admin.retry_failed(JobFilter(), preview=True))
        await timed(f"scan {BATCH}", self.scan.page(limit=BATCH, dry_run=True))

    async def _lease(self) -> tuple[LeasedJob, ...]:
        batch = await self.jobs.lease(owner="o", model=MODEL, limit=BATCH, duration=LEASE)
        return batch.jobs


def _completion(site: Site, leased: LeasedJob) -> Completion:
    uid = leased.lease.entity_uid
    return Completion(leased.lease, site.vectors[0], hash_of(uid), tokens=1)
