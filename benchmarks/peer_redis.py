"""A queue on Redis."""

import logging
import struct
import time
from functools import cache
from typing import Final

import redis
import rq

from benchmarks.site import BATCH, DIMENSIONS, pool

KEEP: Final = 500
"""Seconds for which RQ keeps results, its default."""


@cache
def _packed() -> list[bytes]:
    return [struct.pack(f"<{DIMENSIONS}f", *vector) for vector in pool(BATCH)]


@cache
def _client(address: str) -> redis.Redis:
    return redis.Redis.from_url(address)


def store(address: str, number: int) -> None:
    """The job: one vector into one hash."""
    vector = _packed()[number % BATCH]
    _client(address).hset(f"entity:e{number}", items=["embedding", vector, "model", "benchmark"])


def queued_in_redis(address: str, jobs: int) -> float:
    """RQ with its worker that does not fork, which is its fastest."""
    logging.getLogger("rq").setLevel(logging.WARNING)
    client = _client(address)
    client.flushall()
    queue = rq.Queue(connection=client)
    queue.enqueue_many(
        [rq.Queue.prepare_data(store, (address, number), result_ttl=KEEP) for number in range(jobs)]
    )
    worker = rq.SimpleWorker([queue], connection=client)
    began = time.perf_counter()
    worker.work(burst=True, logging_level="WARNING")
    seconds = time.perf_counter() - began
    if (done := queue.finished_job_registry.count) != jobs:
        raise RuntimeError(f"RQ has done {done} of {jobs} jobs")
    return seconds
