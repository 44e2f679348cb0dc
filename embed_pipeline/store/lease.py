"""How jobs are given out."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from embed_pipeline.domain.breaker import PROBE_LASTS, BreakerStatus, allowed_jobs
from embed_pipeline.domain.errors import SchemaError
from embed_pipeline.domain.fairness import (
    SUSPECTS_AT_ONCE,
    Lane,
    group_of,
    slots_for_oldest,
    suspects_first,
)
from embed_pipeline.domain.results import LeaseBatch
from embed_pipeline.store.adopt import adopt_ids
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import worker as cypher
from embed_pipeline.store.cypher.admin import PROBE_BREAKER
from embed_pipeline.store.database import (
    Transaction,
    duration_ms,
    fetch,
    fetch_one,
    from_ms,
    moment,
)
from embed_pipeline.store.enqueue import enqueue
from embed_pipeline.store.identity import refuse_other
from embed_pipeline.store.records import to_leased_job
from embed_pipeline.store.switch import read_breaker
from embed_pipeline.store.transactions import count, new_token

_SMALLEST_SWEEP: Final = 100
"""Retries whose time has come enter their lanes at least so many at a time."""


async def lease(
    tx: Transaction,
    config: QueueConfig,
    *,
    owner: str,
    model: str,
    limit: int,
    duration: timedelta,
    lane: Lane,
    request: str,
    is_repeated: bool,
    now: int | None,
) -> LeaseBatch:
    """Give out jobs by the rules of ``domain.fairness``, under the mutex of the queue."""
    token = new_token()
    if not await fetch(tx, cypher.LOCK_QUEUE, queue=config.queue, token=token):
        raise SchemaError(f"there is no queue {config.queue!r}; run 'embed-pipeline init'")
    if is_repeated:
        held = await fetch_one(tx, cypher.FIND_REQUEST, request=request)
        if held["jobs"]:
            return _batch(held, owner=owner, model=model)
    heads = await _read_heads(tx, config, model=model, limit=limit, now=now)
    queue = heads["queue"]
    # Under the mutex: a drain that is under way when the queue gets another model ends here.
    refuse_other(queue, config)
    if queue.get("paused"):
        return LeaseBatch(refusal=f"paused by {queue.get('paused_by')}")
    breaker = read_breaker(queue)
    if breaker.is_outage and breaker.is_probe_due(moment(heads["now"])):
        until = heads["now"] + duration_ms(PROBE_LASTS)
        await fetch(tx, PROBE_BREAKER, queue=config.queue, probe_at=until)
        return LeaseBatch(refusal=str(breaker), is_probe=True)
    allowed = allowed_jobs(breaker, moment(heads["now"]), limit)
    if allowed == 0:
        return LeaseBatch(refusal=str(breaker))
    if heads["due"]:
        await fetch(tx, cypher.LOCK_JOBS, ids=sorted(heads["due"]), token=token)
        await fetch(tx, cypher.ENTER_LANES, ids=sorted(heads["due"]), now=heads["now"])
        heads = await _read_heads(tx, config, model=model, limit=limit, now=now)
    ids, slots = _choose(heads, lane, allowed)
    if not ids:
        return LeaseBatch()
    await fetch(tx, cypher.LOCK_JOBS, ids=sorted(ids), token=token)
    claimed = await fetch_one(
        tx,
        cypher.CLAIM_JOBS,
        ids=sorted(ids),
        owner=owner,
        request=request,
        queue=config.queue,
        slots=slots,
        duration=duration_ms(duration),
        now=now,
    )
    if claimed["jobs"] and breaker.status is not BreakerStatus.CLOSED:
        until = heads["now"] + duration_ms(duration)
        await fetch(tx, PROBE_BREAKER, queue=config.queue, probe_at=until)
    batch = _batch(claimed, owner=owner, model=model, order=ids)
    if left := set(ids) - {item.lease.job_id for item in batch.jobs}:
        # Leased or ended by another program: they are in the way of those behind them.
        await _adopt(tx, config, left, token=token, now=now)
        if not batch.jobs:
            return await lease(
                tx,
                config,
                owner=owner,
                model=model,
                limit=limit,
                duration=duration,
                lane=lane,
                request=request,
                is_repeated=False,
                now=now,
            )
    return batch


async def _adopt(
    tx: Transaction, config: QueueConfig, ids: Iterable[str], *, token: int, now: int | None
) -> None:
    found = await adopt_ids(tx, config, ids, token=token, now=now)
    if found.wishes:
        await enqueue(tx, config, found.wishes, now=now)
    await count(tx, config.queue, {"adopted": found.count}, token=new_token())


def _batch(
    record: Mapping[str, Any], *, owner: str, model: str, order: Sequence[str] | None = None
) -> LeaseBatch:
    leased = [to_leased_job(values, owner=owner, model=model) for values in record["jobs"]]
    jobs = {item.lease.job_id: item for item in leased}
    chosen = jobs if order is None else [id_ for id_ in order if id_ in jobs]
    return LeaseBatch(tuple(jobs[id_] for id_ in chosen), lock_until=from_ms(record["lock_until"]))


async def _read_heads(
    tx: Transaction, config: QueueConfig, *, model: str, limit: int, now: int | None
) -> dict[str, Any]:
    record = await fetch_one(
        tx,
        cypher.READ_QUEUE,
        queue=config.queue,
        model=model,
        limit=limit,
        suspects=min(limit, SUSPECTS_AT_ONCE),
        sweep=max(limit, _SMALLEST_SWEEP),
        oldest=slots_for_oldest(9, limit),
        now=now,
    )
    return dict(record)


def _choose(heads: dict[str, Any], lane: Lane, limit: int) -> tuple[list[str], int]:
    """The ids to lease, most urgent first, and how many count for the share of the oldest."""
    queue, suspects = heads["queue"], group_of(heads["suspects"], limit)
    if suspects and suspects_first(queue["turns"], lane):
        return suspects, 0
    if lane is Lane.SUSPECT:
        return [], 0
    oldest = heads["oldest"][: slots_for_oldest(queue["slots"], limit)]
    chosen = dict.fromkeys([*oldest, *heads["urgent"]])
    ids = list(chosen)[:limit]
    if ids:
        # In the order of urgency; an old job that is not urgent comes last.
        urgency = {id_: place for place, id_ in enumerate(heads["urgent"])}
        return sorted(ids, key=lambda id_: urgency.get(id_, len(urgency))), len(ids)
    return (suspects if lane is Lane.ANY else []), 0
