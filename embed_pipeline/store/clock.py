"""Goes along when the server's clock is set back.

Times that the queue has written down for later would come too late by as much as the clock went
back: the leases of dead workers would look valid, retries and the probe of the breaker would wait.
So a recovery notes the time, and one that finds it later than now moves them: all waits begin
anew, none is longer than it would be from now. A live lease is not taken away by that, since its
holder goes on with heartbeats.

A clock set forward needs nothing: waits end early, and the fence makes an early end harmless.
"""

import logging
from datetime import timedelta
from typing import Any, Final

from embed_pipeline.domain.breaker import pause_after
from embed_pipeline.domain.lifecycle import RetryPolicy
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import clock as cypher
from embed_pipeline.store.cypher.admin import READ_STATE, SET_QUEUE
from embed_pipeline.store.cypher.worker import LOCK_JOBS, LOCK_QUEUE
from embed_pipeline.store.database import Database, Transaction, duration_ms, fetch, fetch_one
from embed_pipeline.store.records import Properties
from embed_pipeline.store.switch import read_breaker
from embed_pipeline.store.transactions import new_token

logger = logging.getLogger(__name__)

PAGE: Final = 1_000
"""Jobs per transaction."""
_ATTEMPTS: Final = 22
"""After so many the policy no longer doubles."""


async def follow_clock(database: Database, config: QueueConfig) -> None:
    """If the clock was set back since the last recovery, move future times to now."""

    async def gone_back(tx: Transaction) -> timedelta:
        record = await fetch_one(tx, cypher.READ_CLOCK, queue=config.queue, now=database.now_ms)
        last = record["last"]
        return timedelta(milliseconds=0 if last is None else max(0, last - record["now"]))

    step = await database.read(gone_back)
    if not step:
        return
    logger.warning("the clock of the server went back by %s; following it", step)
    # Pages, because a transaction over a million retries would not end in time.
    while await database.write(lambda tx: _follow_page(tx, config, clock=database.now_ms)) == PAGE:
        pass


async def note_clock(tx: Transaction, database: Database, config: QueueConfig) -> None:
    """Record the time; the last statement of a transaction."""
    await fetch(tx, cypher.NOTE_CLOCK, queue=config.queue, token=new_token(), now=database.now_ms)


async def _follow_page(tx: Transaction, config: QueueConfig, *, clock: int | None) -> int:
    """Move the breaker and at most a page of jobs of each kind; repeating is safe."""
    token = new_token()
    await fetch(tx, LOCK_QUEUE, queue=config.queue, token=token)
    record = await fetch_one(tx, READ_STATE, queue=config.queue, now=clock)
    queue, now = record["queue"], record["now"]
    probe_at = now + duration_ms(_pause_of_breaker(queue))
    if queue.get("breaker_probe_at", 0) > probe_at:
        properties = {"breaker_probe_at": probe_at}
        await fetch(tx, SET_QUEUE, queue=config.queue, properties=properties)
    leases = await fetch(tx, cypher.PICK_LEASES_AHEAD, now=now, limit=PAGE)
    waits = _waits(config.retry)
    retries = await fetch(tx, cypher.PICK_RETRIES_AHEAD, now=now, limit=PAGE, **waits)
    found = [sorted(row["id"] for row in rows) for rows in (leases, retries)]
    await fetch(tx, LOCK_JOBS, ids=sorted(found[0] + found[1]), token=token)
    await fetch(tx, cypher.FOLLOW_LEASES, ids=found[0], now=now)
    await fetch(tx, cypher.FOLLOW_RETRIES, ids=found[1], now=now, **waits)
    return max(len(found[0]), len(found[1]))


def _pause_of_breaker(queue: Properties) -> timedelta:
    """The longest time that a probe may lie ahead."""
    breaker = read_breaker(queue)
    return pause_after(breaker.failures, is_outage=breaker.is_outage)


def _waits(policy: RetryPolicy) -> dict[str, Any]:
    delays = [duration_ms(policy.delay(attempts, roll=0.0)) for attempts in range(_ATTEMPTS)]
    return {"delays": delays, "longest": duration_ms(policy.cap)}
