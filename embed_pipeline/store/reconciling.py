"""Finds entities without their vector, whoever wrote them and however.

Needs no APOC and no trigger, keeps nothing in memory but a page, and may be stopped and started
again at any cursor: a page that is done twice enqueues nothing twice.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from typing import Final

from embed_pipeline.domain.coverage import (
    Coverage,
    CoverageReport,
    EntityReading,
    ReconcilePage,
    classify,
)
from embed_pipeline.domain.job import JobStatus, NewJob
from embed_pipeline.domain.tally import Tally
from embed_pipeline.store import cypher_reconcile as cypher
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.database import Database, Transaction, fetch, fetch_one, moment
from embed_pipeline.store.enqueueing import enqueue
from embed_pipeline.store.naming import for_shape
from embed_pipeline.store.records import Properties
from embed_pipeline.store.transactions import new_token, write_once

logger = logging.getLogger(__name__)

PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Neo4jReconciler:
    """Compares every current entity with its vector, and enqueues what does not fit."""

    database: Database
    config: QueueConfig
    model: str

    async def pages(
        self, *, after: str = "", limit: int = PAGE, clear_orphans: bool = False
    ) -> AsyncIterator[ReconcilePage]:
        """Scan everything from ``after`` on."""
        cursor: str | None = after
        while cursor is not None:
            page = await self.page(after=cursor, limit=limit, clear_orphans=clear_orphans)
            yield page
            cursor = page.cursor

    async def page(
        self,
        *,
        after: str = "",
        limit: int = PAGE,
        dry_run: bool = False,
        clear_orphans: bool = False,
    ) -> ReconcilePage:
        """Scan one page; ``dry_run`` only counts."""
        token = new_token()

        async def work(tx: Transaction) -> ReconcilePage:
            statement = for_shape(cypher.SCAN_ENTITIES, self.config.shape)
            # One more than the page: it may have the key of the last one.
            records = await fetch(tx, statement, after=after, limit=limit + 1, model=self.model)
            last = records[limit - 1]["uid"] if len(records) > limit else None
            scanned = [(_reading(r.data()), self.config.hash_of(r["text"])) for r in records]
            ambiguous = _ambiguous(scanned)
            tally = Tally()
            wishes: list[NewJob] = []
            for reading, hash_ in scanned[:limit]:
                found = classify(
                    reading, model=self.model, text_hash=hash_, dimensions=self.config.dimensions
                )
                if reading.uid in ambiguous:
                    found = Coverage.UNEMBEDDABLE
                tally.add(reading, found)
                if found not in (Coverage.CURRENT, Coverage.UNEMBEDDABLE):
                    wishes.append(self._wish(reading, hash_))
            orphaned = await self._orphans(
                tx, after, last, token=token, clear=clear_orphans and not dry_run
            )
            outcomes = []
            if wishes and not dry_run:
                now = self.database.now_ms
                outcomes = await enqueue(tx, self.config, wishes, token=token, now=now)
            return tally.page(cursor=last, orphaned=orphaned, enqueued=dict(Counter(outcomes)))

        if dry_run:
            return await self.database.read(work)
        return await write_once(self.database, self.config.queue, token, work)

    async def save(self, report: CoverageReport) -> CoverageReport:
        """Keep the sum of a complete scan for ``last``; it ends now, by the server's time."""
        token = new_token()
        record = await self.database.write(
            lambda tx: fetch_one(
                tx,
                cypher.SAVE_COVERAGE,
                queue=self.config.queue,
                model=self.model,
                report=replace(report, at=None).to_json(),
                entities=report.entities,
                percent=report.percent,
                token=token,
                now=self.database.now_ms,
            )
        )
        return replace(report, at=moment(record["now"]))

    async def last(self) -> CoverageReport | None:
        """The sum of the last complete scan, without scanning."""
        records = await self.database.read(
            lambda tx: fetch(tx, cypher.READ_COVERAGE, queue=self.config.queue, model=self.model)
        )
        if not records:
            return None
        try:
            report = CoverageReport.from_json(records[0]["report"])
        except ValueError as error:
            # Another version of this program wrote it; the next scan writes it anew.
            logger.warning("the coverage of the last scan cannot be read: %s", error)
            return None
        return replace(report, at=moment(records[0]["at"]))

    def _wish(self, reading: EntityReading, hash_: str) -> NewJob:
        # A completed job with this text whose vector is gone: the text alone would not revive it.
        is_lost = reading.job_status is JobStatus.COMPLETED
        version = reading.version if isinstance(reading.version, int) else 1
        return NewJob(reading.uid, self.model, version, text_hash=hash_, force=is_lost)

    async def _orphans(
        self, tx: Transaction, after: str, until: str | None, *, token: int, clear: bool
    ) -> int:
        statement = cypher.CLEAR_ORPHANS if clear else cypher.COUNT_ORPHANS
        if until is None:
            statement = statement.replace(cypher.END_OF_PAGE, "")
        text = for_shape(statement, self.config.shape)
        return (await fetch_one(tx, text, after=after, until=until, token=token))["orphans"]


def _ambiguous(scanned: Iterable[tuple[EntityReading, str]]) -> set[str]:
    """Keys of several entities that differ: a job could not say which one it means."""
    texts: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for reading, hash_ in scanned:
        texts[reading.uid].add((repr(reading.version), hash_))
    return {uid for uid, different in texts.items() if len(different) > 1}


def _reading(record: Properties) -> EntityReading:
    job = record["job"] or {}
    type_ = record["type"]
    return EntityReading(
        uid=record["uid"],
        version=record["version"],
        has_vector=record["has_vector"],
        dimensions=record["dimensions"],
        vector_model=record["vector_model"],
        vector_hash=record["vector_hash"],
        vector_version=record["vector_version"],
        job_status=JobStatus(job["status"]) if job else None,
        entity_type="" if type_ is None else str(type_),
        is_truncated=bool(job.get("truncated")),
    )
