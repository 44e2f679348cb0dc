"""Item 3: queues that people use instead, doing the same work on their own database.

Each claims a job, stores 1,536 numbers and marks the job as done, in one process; ours also reads
and renders the text, looks for a known vector, and writes vector and completion in one fenced
transaction.
"""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from benchmarks.contestants import drain
from benchmarks.crew import hired
from benchmarks.peer_postgres import by_hand, procrastinated
from benchmarks.peer_redis import queued_in_redis
from benchmarks.plan import Plan
from benchmarks.site import Site, on_site
from benchmarks.table import Goal, Line, at_least, per_second, ratios
from embed_pipeline.store.connection import Connection
from tests.support.postgres import running_postgres
from tests.support.redis_server import running_redis

AHEAD: Final = at_least(1)
Peer = Callable[[str, int], float]
"""Address of its server and number of jobs in, seconds out."""

PEERS: Final[dict[str, tuple[str, Peer, Goal | None]]] = {
    "procrastinate (PostgreSQL, pgvector)": ("postgres", procrastinated, AHEAD),
    "RQ (Redis)": ("redis", queued_in_redis, AHEAD),
    # No queue that anybody could install: no fence, no retry, no limit; and it batches.
    "SKIP LOCKED by hand in batches of 500 (PostgreSQL, pgvector)": ("postgres", by_hand, None),
}


def lines(connection: Connection, plan: Plan) -> Iterator[Line]:
    """Measure every peer beside a drain, in turn."""
    ours: list[float] = []
    theirs: dict[str, list[float]] = {name: [] for name in PEERS}
    on_site(connection, Site.prepare, plan.entities, has_index=False)
    spawn = multiprocessing.get_context("spawn")
    with (
        running_postgres() as postgres,
        running_redis() as redis,
        hired(1, connection) as crew,
        ProcessPoolExecutor(1, mp_context=spawn) as pool,
    ):
        addresses = {"postgres": postgres, "redis": redis}
        for _ in range(plan.rounds):
            on_site(connection, Site.reset, plan.entities, jobs=True)
            ours.append(plan.entities / crew.work(drain, ("owner",)).seconds)
            for name, (server, peer, goal) in PEERS.items():
                jobs = plan.peer_jobs if goal else plan.entities
                seconds = pool.submit(peer, addresses[server], jobs).result()
                theirs[name].append(jobs / seconds)
    for name, (_, _, goal) in PEERS.items():
        yield Line(
            3,
            f"a drain, against {name}; 1 process, no vector index",
            f"{per_second(ours)} against {per_second(theirs[name])}",
            ratios(ours, theirs[name]),
            goal,
        )
