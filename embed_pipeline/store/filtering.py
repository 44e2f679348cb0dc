"""A filter as parameters, and changes that walk over all jobs it means."""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import JobFilter, JobStatus
from embed_pipeline.domain.results import BulkReport
from embed_pipeline.store.audit import AuditNote
from embed_pipeline.store.cypher import admin as cypher, worker as cypher_worker
from embed_pipeline.store.database import Database, Transaction, fetch, to_ms
from embed_pipeline.store.moves import Change
from embed_pipeline.store.records import Properties
from embed_pipeline.store.transactions import change_jobs, count, lock_jobs, new_token, write_once

logger = logging.getLogger(__name__)

PAGE: Final = 500
MAX_REPORTED_IDS: Final = 1_000

Decide = Callable[[Properties, int], Change | None]
"""A locked job and the time in; what to change, or nothing, out."""


def filter_parameters(
    which: JobFilter, *, exclude: ErrorCategory | None = None, not_by: str | None = None
) -> dict[str, Any]:
    """The parameters of every statement that filters.

    ``not_by`` leaves jobs that were cancelled by another actor.
    """
    return {
        "ids": sorted(set(which.ids)) if which.ids is not None else None,
        "statuses": sorted(which.statuses) if which.statuses is not None else None,
        "model": which.model,
        "entity_uids": sorted(set(which.entity_uids)) if which.entity_uids is not None else None,
        "categories": sorted(which.categories) if which.categories is not None else None,
        "excluded_category": exclude,
        "owner": which.owner,
        "created_before": to_ms(which.created_before) if which.created_before else None,
        "ended_before": to_ms(which.ended_before) if which.ended_before else None,
        "has_lock": which.has_lock,
        "not_by": not_by,
    }


async def read_page(
    tx: Transaction, parameters: dict[str, Any], *, limit: int, after: str
) -> list[Properties]:
    """Read a page of jobs in order of their ids."""
    statement = cypher.PAGE_OF_JOBS[_source(parameters)]
    records = await fetch(tx, statement, **parameters, limit=limit, after=after)
    return [record["job"] for record in records]


async def read_newest(
    tx: Transaction, parameters: dict[str, Any], *, limit: int, after: str | None
) -> list[Properties]:
    """Read a page of jobs, the newest first, beginning after the id ``after``."""
    last = await fetch(tx, cypher_worker.READ_JOBS, ids=[after], now=0) if after else []
    jobs = last[0]["jobs"] if last else []
    created = jobs[0]["created_at"] if jobs else None
    statement = cypher.NEWEST_JOBS[_source(parameters)]
    asked = {**parameters, "after": "", "created_at": created, "last": after or ""}
    return [record["job"] for record in await fetch(tx, statement, **asked, limit=limit)]


def _source(parameters: dict[str, Any]) -> str:
    """The smallest index that contains all jobs of the filter."""
    for name in ("ids", "entity_uids"):
        if parameters[name] is not None:
            return name
    return "failed" if parameters["statuses"] == [JobStatus.FAILED] else "all"


async def preview(database: Database, parameters: dict[str, Any]) -> BulkReport:
    """Say what a change would touch; changes nothing."""

    async def work(tx: Transaction) -> BulkReport:
        statement = cypher.COUNT_OF_JOBS[_source(parameters)]
        records = await fetch(tx, statement, **parameters, after="")
        page = await read_page(tx, parameters, limit=MAX_REPORTED_IDS, after="")
        counts = {JobStatus(record["status"]): record["jobs"] for record in records}
        ids = tuple(job["id"] for job in page)
        uids = tuple(str(job["entity_uid"]) for job in page)
        count = sum(counts.values())
        return BulkReport(count, ids, is_preview=True, counts=counts, entity_uids=uids)

    return await database.read(work)


async def change_all(
    database: Database,
    queue: str,
    parameters: dict[str, Any],
    decide: Decide,
    *,
    counter: str,
    note: AuditNote,
) -> BulkReport:
    """Walk over the jobs page by page; each page is locked, read again and changed."""
    changed: Counter[JobStatus] = Counter()
    ids: list[str] = []
    after = ""
    while True:
        last, changes = await _change_page(
            database,
            queue,
            parameters,
            decide,
            counter=counter,
            after=after,
            note=note,
            before=changed.total(),
        )
        changed.update(change.before for change in changes)
        if changes:
            changed_ids = ",".join(change.job_id for change in changes)
            logger.info("%s jobs=%d ids=%s", counter, len(changes), changed_ids)
        ids += [change.job_id for change in changes[: MAX_REPORTED_IDS - len(ids)]]
        if last is None:
            return BulkReport(changed.total(), tuple(ids), is_preview=False, counts=changed)
        after = last


async def _change_page(
    database: Database,
    queue: str,
    parameters: dict[str, Any],
    decide: Decide,
    *,
    counter: str,
    after: str,
    note: AuditNote,
    before: int,
) -> tuple[str | None, list[Change]]:
    token = new_token()

    async def work(tx: Transaction) -> tuple[str | None, list[Change]]:
        page = await read_page(tx, parameters, limit=PAGE, after=after)
        jobs, now = await lock_jobs(
            tx, (job["id"] for job in page), token=token, now=database.now_ms
        )
        changes = [change for job in jobs.values() if (change := decide(job, now))]
        await change_jobs(tx, changes)
        last = page[-1]["id"] if len(page) == PAGE else None
        await note.write(tx, before + len(changes), is_complete=last is None)
        await count(tx, queue, {counter: len(changes)}, token=token)
        return last, changes

    return await write_once(database, queue, token, work)
