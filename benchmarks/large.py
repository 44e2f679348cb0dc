"""A scan of a large graph in which nothing has changed: ``python -m benchmarks.large``.

Seconds, memory of the process, database hits for each entity, and the share of a core that the
server and the client need while it goes on. Vectors are short, so that a million entities fit on
any disk; reading one of 1,536 numbers costs more.
"""

import argparse
import asyncio
import resource
import sys
import time
from datetime import timedelta
from typing import Any, Final, LiteralString

import psutil

from benchmarks.contestants import LEASE, hash_of
from benchmarks.profiled import ProfiledDatabase
from benchmarks.site import MODEL, Site, opened
from embed_pipeline.devserver.config import Memory
from embed_pipeline.devserver.temporary import temporary_server
from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.job import NewJob
from embed_pipeline.domain.results import Completion
from embed_pipeline.domain.text import memento_text, text_hash
from embed_pipeline.domain.vector import vector_of
from embed_pipeline.operations.scan import Scan
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.connection import Connection
from embed_pipeline.store.queue import open_queue
from embed_pipeline.store.scan import PAGE, Neo4jReconciler

DIMENSIONS: Final = 16
MEBIBYTE: Final = 2**20
COPY: Final[LiteralString] = """
MATCH (entity:Entity {name: 'e0'}), (job:EmbedJob {entity_uid: 'e0'})
WITH properties(entity) AS entity, job {.*, id: null, entity_uid: null} AS job
UNWIND range(1, $entities) AS n
CALL (n, entity, job) {
  CREATE (copy:Entity) SET copy = entity, copy.name = 'x' + n
  CREATE (done:EmbedJob:EmbedCompleted)
  SET done = job, done.id = 'x' + n, done.entity_uid = 'x' + n
} IN 2 CONCURRENT TRANSACTIONS OF 10000 ROWS
"""
"""Entities that differ in their keys alone, and their jobs: the copied hash is made right below."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entities", type=int, default=1_000_000)
    entities = parser.parse_args().entities
    with temporary_server(memory=Memory(heap="3g", pagecache="3g")) as server:
        connection = Connection(server.uri, server.username, server.password, server.database)
        asyncio.run(_measure(connection, server.status().pid or 0, entities))


async def _measure(connection: Connection, neo4j_pid: int, entities: int) -> None:
    async with opened(connection) as site:
        config = QueueConfig(dimensions=DIMENSIONS)
        await _fill(site, config, entities)
        queue = open_queue(site.driver, config=config, timeout=timedelta(seconds=60))
        warm = Scan.begin(queue.reconciler(MODEL))
        for _ in range(10):
            await warm.step(dry_run=True)
        profiled = ProfiledDatabase(site.driver, timeout=timedelta(seconds=60))
        await Neo4jReconciler(profiled, config, MODEL).page(dry_run=True)
        hits = profiled.hits.take() / PAGE
        scan = Scan.begin(queue.reconciler(MODEL))
        cpu, began = _cpu(neo4j_pid), time.perf_counter()
        own = time.process_time()
        await scan.go_on()
        seconds = time.perf_counter() - began
        served, used = _cpu(neo4j_pid) - cpu, time.process_time() - own
    counts = scan.report.counts
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(
        f"{scan.report.entities:,} entities, {counts.get(Coverage.CURRENT, 0):,} of them current: "
        f"{seconds:.0f} s, {scan.report.entities / seconds:,.0f}/s; {hits:.1f} database hits for "
        f"each; the server needed {served / seconds:.2f} cores, the client {used / seconds:.2f}; "
        f"at most {peak:.0f} MiB\n"
    )


async def _fill(site: Site, config: QueueConfig, entities: int) -> None:
    await site.prepare(1, has_index=False)
    queue = open_queue(site.driver, config=config)
    await queue.admin.enqueue([NewJob("e0", MODEL)])
    [leased] = (await queue.jobs.lease(owner="o", model=MODEL, limit=1, duration=LEASE)).jobs
    vector = vector_of(range(1, DIMENSIONS + 1))
    await queue.jobs.complete([Completion(leased.lease, vector, hash_of("e0"), tokens=1)])
    await site.run(COPY, entities=entities - 1)
    await site.run("CALL db.awaitIndexes(600)")
    for first in range(0, entities, 20_000):
        names = [f"x{n}" for n in range(max(first, 1), min(first + 20_000, entities))]
        rows: list[dict[str, Any]] = [{"name": name, "hash": _hash_of(name)} for name in names]
        await site.run(
            "UNWIND $rows AS row MATCH (e:Entity {name: row.name}) SET e.embedding_hash = row.hash",
            rows=rows,
        )


def _hash_of(name: str) -> str:
    properties = {"name": name, "entityType": "thing", "observations": '["0"]'}
    return text_hash(memento_text(properties))


def _cpu(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


if __name__ == "__main__":
    main()
