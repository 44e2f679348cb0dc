"""Queues on PostgreSQL."""

import asyncio
import time
from typing import Any, Final

import procrastinate
import psycopg
from pgvector import Vector
from pgvector.psycopg import register_vector, register_vector_async
from procrastinate.exceptions import ConnectorException
from psycopg_pool import AsyncConnectionPool

from benchmarks.site import BATCH, pool

CONCURRENCY: Final = 10
"""Of 1, 4, 10 and 20 the one with which procrastinate is fastest here."""
TABLES: Final = """
CREATE EXTENSION IF NOT EXISTS vector;
CREATE TABLE IF NOT EXISTS entity (uid text PRIMARY KEY, embedding vector(1536));
CREATE TABLE IF NOT EXISTS job (
  id bigserial PRIMARY KEY, uid text NOT NULL, status text NOT NULL DEFAULT 'pending',
  attempts int NOT NULL DEFAULT 0, lock_owner text, lock_until timestamptz);
CREATE INDEX IF NOT EXISTS job_pending ON job (id) WHERE status = 'pending';
"""
STORE: Final = """
INSERT INTO entity VALUES (%s, %b)
ON CONFLICT (uid) DO UPDATE SET embedding = excluded.embedding
"""
CLAIM: Final = """
UPDATE job SET status = 'processing', attempts = attempts + 1, lock_owner = 'owner',
  lock_until = now() + interval '5 minutes'
WHERE id IN (
  SELECT id FROM job WHERE status = 'pending' ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)
RETURNING id, uid
"""
FINISH: Final = "UPDATE job SET status = 'completed', lock_owner = NULL WHERE id = ANY(%s)"


def by_hand(address: str, jobs: int) -> float:
    """What one would write oneself: claim, store and finish in batches."""
    vectors = [Vector(vector) for vector in pool(BATCH)]
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(TABLES)
        register_vector(connection)
        connection.execute("TRUNCATE job, entity")
        connection.execute(
            "INSERT INTO job (uid) SELECT 'e' || n FROM generate_series(1, %s) n", (jobs,)
        )
        began = time.perf_counter()
        while claimed := connection.execute(CLAIM, (BATCH,)).fetchall():
            with connection.transaction(), connection.cursor() as cursor:
                rows = [(uid, vectors[n]) for n, (_, uid) in enumerate(claimed)]
                cursor.executemany(STORE, rows)
                cursor.execute(FINISH, ([number for number, _ in claimed],))
        return time.perf_counter() - began


def procrastinated(address: str, jobs: int) -> float:
    """Procrastinate with asynchronous tasks, several at once."""
    return asyncio.run(_procrastinated(address, jobs))


async def _procrastinated(address: str, jobs: int) -> float:
    vectors = [Vector(vector) for vector in pool(BATCH)]
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=address))
    own = AsyncConnectionPool(
        address,
        min_size=CONCURRENCY,
        max_size=CONCURRENCY,
        configure=register_vector_async,
        open=False,
    )

    @app.task(name="store")
    async def store(number: int) -> None:
        async with own.connection() as connection:
            await connection.execute(STORE, (f"e{number}", vectors[number % BATCH]))

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(TABLES)
    async with app.open_async(), own:
        await _prepare(app)
        await store.batch_defer_async(*_wishes(jobs))
        began = time.perf_counter()
        await app.run_worker_async(
            concurrency=CONCURRENCY, wait=False, install_signal_handlers=False
        )
        seconds = time.perf_counter() - began
        done = await app.job_manager.list_jobs_async(status="succeeded")
        if len(list(done)) != jobs:
            raise RuntimeError("procrastinate has not done all jobs")
        return seconds


async def _prepare(app: procrastinate.App) -> None:
    try:
        await app.connector.execute_query_async("TRUNCATE procrastinate_jobs CASCADE")
    except ConnectorException:
        await app.schema_manager.apply_schema_async()


def _wishes(jobs: int) -> list[dict[str, Any]]:
    return [{"number": number} for number in range(jobs)]
