"""Jobs that others wrote or edited become jobs like any other.

Others are Memento's own worker in a shared database, the requirements' own queries, and people with
a Cypher prompt. They know a job by its ``status``; our labels, lanes and fences follow it here.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from embed_pipeline.domain.job import JobStatus, NewJob
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import adopt as cypher
from embed_pipeline.store.database import Transaction, fetch
from embed_pipeline.store.foreign import adopted, key_of, retired
from embed_pipeline.store.moves import BY_QUEUE
from embed_pipeline.store.records import Properties
from embed_pipeline.store.steps import Steps, ask, run

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Adopted:
    """How many jobs were repaired, and which must be enqueued in place of duplicates."""

    count: int
    wishes: tuple[NewJob, ...] = ()


async def adopt_ids(
    tx: Transaction, config: QueueConfig, ids: Iterable[str], *, token: int, now: int | None
) -> Adopted:
    """Adopt jobs that were found by their ids."""
    records = await fetch(tx, cypher.ELEMENTS_OF, ids=sorted(ids))
    elements = [record["element"] for record in records]
    return await adopt(tx, config, elements, token=token, now=now)


async def adopt(
    tx: Transaction, config: QueueConfig, elements: Sequence[str], *, token: int, now: int | None
) -> Adopted:
    """Repair those of the jobs that need it; the caller counts them and enqueues the wishes.

    A job whose key another one has already, once its version is a number, is ended with the reason;
    if it was waiting, the other one is asked for in its place. One that is leased keeps its key
    until the lease ends.
    """
    return await run(tx, adopting(config, elements, token=token, now=now))


def adopting(
    config: QueueConfig, elements: Sequence[str], *, token: int, now: int | None
) -> Steps[Adopted]:
    """The steps of ``adopt``."""
    unlocked = yield from ask(cypher.READ_STRAYS, elements=list(elements), now=now)
    order = sorted(unlocked, key=lambda record: (str(record["job"].get("id")), record["element"]))
    yield from ask(
        cypher.LOCK_STRAYS, elements=[record["element"] for record in order], token=token
    )
    records = yield from ask(cypher.READ_STRAYS, elements=list(elements), now=now)
    strays = [record for record in records if _is_stray(record)]
    keys = {record["element"]: key_of(record["job"], config) for record in strays}
    twins = yield from _twins(strays, keys)
    rows: list[dict[str, Any]] = []
    wishes: list[NewJob] = []
    for record in strays:
        element, job = record["element"], record["job"]
        status, properties = adopted(
            job, config, now=record["now"], was_leased=record["was_leased"]
        )
        if element not in twins:
            properties |= keys[element]
        elif status is not JobStatus.PROCESSING:
            if status is JobStatus.PENDING:
                wishes.append(NewJob(**keys[element], priority=properties["priority"]))
            ending = retired(job, now=record["now"], twin=twins[element], by=BY_QUEUE)
            status, properties = JobStatus.CANCELLED, properties | ending
        rows.append({"element": element, "status": status.value, "properties": properties})
        logger.info(
            "job=%s adopted status=%s was=%s owner=%s",
            properties["id"],
            status.value,
            job.get("status"),
            job.get("lock_owner"),
        )
    if rows:
        yield from ask(cypher.WRITE_ADOPTED, rows=rows)
    return Adopted(len(rows), tuple(wishes))


def _is_stray(record: Properties) -> bool:
    job = record["job"]
    has_lane = any(name in job for name in ("ready_at", "suspect_at", "run_after"))
    is_placed = has_lane or job.get("status") != JobStatus.PENDING
    return not (record["fits"] and is_placed and "fence" in job)


def _twins(strays: Sequence[Properties], keys: dict[str, dict[str, Any]]) -> Steps[dict[str, str]]:
    """The ids of the jobs that already have the keys that strays would get."""
    changed = [
        {
            "element": record["element"],
            "id": record["job"].get("id", record["element"]),
            **keys[record["element"]],
        }
        for record in strays
        if any(record["job"].get(name) != value for name, value in keys[record["element"]].items())
    ]
    whole_keys = [row for row in changed if None not in row.values()]
    records = (yield from ask(cypher.FIND_TWINS, rows=whole_keys)) if whole_keys else []
    twins = {record["element"]: record["id"] for record in records}
    first: dict[tuple[Any, ...], str] = {}
    for row in whole_keys:
        key = row["entity_uid"], row["model"], row["version"]
        if key in first:
            twins.setdefault(row["element"], first[key])
        elif row["element"] not in twins:
            first[key] = row["id"]
    return twins
