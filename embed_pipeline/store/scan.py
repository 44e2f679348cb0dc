"""Finds entities without a current vector, whichever program wrote them.

Needs no APOC and no trigger, keeps nothing in memory but a page, and may be stopped and started
again at any cursor: a page that is done twice enqueues nothing twice.
"""

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, LiteralString
from uuid import uuid4

from embed_pipeline.domain.audit import OperatorAction
from embed_pipeline.domain.contents import Content, Contents
from embed_pipeline.domain.coverage import Coverage, ReconcilePage
from embed_pipeline.domain.errors import TooMuchAtOnceError
from embed_pipeline.domain.job import JobStatus, NewJob
from embed_pipeline.domain.judging import EntityReading, Forced, classify
from embed_pipeline.domain.keys import (
    KeyValue,
    Unfit,
)
from embed_pipeline.domain.relations import BEHIND
from embed_pipeline.domain.tally import Tally
from embed_pipeline.domain.text import only_neighbours_differ, recipe_of
from embed_pipeline.store.adoption import Neo4jAdoption
from embed_pipeline.store.audit import AuditNote
from embed_pipeline.store.cypher import reconcile as cypher
from embed_pipeline.store.database import Transaction, fetch_one
from embed_pipeline.store.enqueue import enqueue
from embed_pipeline.store.entity_readings import readings_of
from embed_pipeline.store.former import supersede_former
from embed_pipeline.store.identity import refuse_other_in
from embed_pipeline.store.naming import for_shape
from embed_pipeline.store.pieces import sweep_pieces
from embed_pipeline.store.scan_page import (
    Stretch,
    keys_in_use,
    next_key,
    read_page,
    read_unkeyed,
    stretches,
)
from embed_pipeline.store.scan_record import ScanRecord
from embed_pipeline.store.transactions import count, new_token, write_once

logger = logging.getLogger(__name__)

PAGE: Final = 500
_LEFT_ALONE: Final = frozenset({Coverage.CURRENT, Coverage.EMPTY_TEXT, Coverage.UNEMBEDDABLE})


@dataclass(frozen=True, slots=True)
class _Look:
    """The start of a page, and what may be done there."""

    after: KeyValue
    dry_run: bool
    cleared_before: int
    force: Forced | None = None
    forced_before: int = 0


@dataclass(frozen=True, slots=True)
class Neo4jReconciler(ScanRecord):
    """Compares every current entity with its vector, and enqueues what does not fit."""

    audit_id: str = field(default_factory=lambda: uuid4().hex)
    """Names the scan in the audit, whose pages are one action."""

    async def adopt(self, *, after: str) -> str | None:
        """Adopt a page of foreign jobs; returns where the next page begins."""
        adoption = Neo4jAdoption(self.database, self.config)
        await adoption.strays()
        await supersede_former(self.database, self.config)
        if not after:
            await sweep_pieces(self.database, self.config)
        return (await adoption.page(after=after)).cursor

    async def page(
        self,
        *,
        after: KeyValue = "",
        limit: int = PAGE,
        dry_run: bool = False,
        cleared_before: int = 0,
        force: Forced | None = None,
        forced_before: int = 0,
    ) -> ReconcilePage:
        """Scan one page, or less of it where the database cannot do it; ``dry_run`` only counts.

        What ``force`` means is embedded again by the provider, also where everything fits;
        ``forced_before`` of them were on the pages before, and ``cleared_before`` vectors of
        outdated versions were removed there, for the audit. The last page has the entities, too,
        that are on none for their keys.
        """
        look = _Look(after, dry_run, cleared_before, force, forced_before)
        while True:
            try:
                tally, page = await self._page(look, limit)
            except TooMuchAtOnceError as error:
                if limit == 1:
                    tally, page = await self._passed_over(look, error)
                else:
                    limit //= 2
                    logger.info("%s; the scan goes on with pages of %d", error, limit)
                    continue
            if page.cursor is None:
                for reason, number, ids in await read_unkeyed(self.database, self.config):
                    tally.add_unfit(reason, number, ids)
                page = tally.page(
                    cursor=None,
                    orphaned=page.orphaned,
                    cleared=page.cleared,
                    enqueued=page.enqueued,
                )
            return page

    async def _page(self, look: _Look, limit: int) -> tuple[Tally, ReconcilePage]:
        token = new_token()

        async def work(tx: Transaction) -> tuple[Tally, ReconcilePage]:
            await refuse_other_in(tx, self.config)
            found = await read_page(tx, self.config, after=look.after, limit=limit)
            tally = Tally()
            wishes: list[NewJob] = []
            now_ms = (await fetch_one(tx, cypher.READ_TIME, now=self.database.now_ms))["now"]
            readings = await readings_of(tx, self.config, self.model, found)
            for (reading, hash_), record in zip(readings, found.records, strict=True):
                kind = classify(
                    reading, model=self.model, text_hash=hash_, dimensions=self.config.dimensions
                )
                only_neighbours = only_neighbours_differ(
                    reading.vector_hash, hash_, recipe=recipe_of(self.config.shape)
                )
                tally.add(reading, kind, only_neighbours=only_neighbours)
                is_forced = look.force is not None and look.force.means(
                    reading, kind, now_ms=now_ms
                )
                if self._is_wanted(kind, is_forced=is_forced):
                    tally.forced += is_forced
                    tally.add_wanted(kind, record["measured"])
                    wishes.append(
                        self._wish(
                            reading, hash_, is_forced=is_forced, only_neighbours=only_neighbours
                        )
                    )
            tally.contents = Contents.of(
                (
                    Content(reading.uid, hash_, record["present"], reading.is_blank)
                    for (reading, hash_), record in zip(readings, found.records, strict=True)
                ),
                self.config.shape.read,
            )
            if found.unread:
                tally.add_unfit(Unfit.DUPLICATE, found.unread, [])
            orphaned, cleared = await self._orphans(tx, look, found.stretches, token=token)
            outcomes = []
            if wishes and not look.dry_run:
                now = self.database.now_ms
                outcomes = await enqueue(tx, self.config, wishes, token=token, now=now)
            await self._record_forced(tx, look, tally.forced, found.cursor)
            await self._record_cleared(tx, look, cleared, found.cursor, token=token)
            return tally, tally.page(
                cursor=found.cursor,
                orphaned=orphaned,
                cleared=cleared,
                enqueued=dict(Counter(outcomes)),
            )

        if look.dry_run:
            return await self.database.read(work, is_divisible=True)
        return await write_once(self.database, self.config.queue, token, work, is_divisible=True)

    async def _passed_over(self, look: _Look, error: Exception) -> tuple[Tally, ReconcilePage]:
        """Count an entity whose text cannot be read, and leave it behind.

        That its key can be read shows that the server is not just busy.
        """
        token = new_token()

        async def work(tx: Transaction) -> tuple[Tally, ReconcilePage]:
            key = await next_key(tx, self.config, look.after)
            tally = Tally()
            if key is not None:
                name = str(key)
                tally.add_unreadable(name, (await keys_in_use(tx, self.config, [key]))[key])
                logger.warning(
                    "entity %r is passed over: %s; make its text shorter", name[:100], error
                )
            parts = stretches(look.after, key)
            orphaned, cleared = await self._orphans(tx, look, parts, token=token)
            await self._record_cleared(tx, look, cleared, key, token=token)
            return tally, tally.page(cursor=key, orphaned=orphaned, cleared=cleared, enqueued={})

        return await write_once(self.database, self.config.queue, token, work)

    async def _record_forced(
        self, tx: Transaction, look: _Look, forced: int, last: KeyValue | None
    ) -> None:
        if look.force is not None and not look.dry_run:
            note = AuditNote(
                self.database,
                OperatorAction.FORCE,
                str(look.force),
                secrets=self.config.secrets,
                id=f"{self.audit_id}-force",
            )
            await note.write(tx, look.forced_before + forced, is_complete=last is None)

    async def _record_cleared(
        self, tx: Transaction, look: _Look, cleared: int, last: KeyValue | None, *, token: int
    ) -> None:
        if not (self.config.keeps_old or look.dry_run):
            note = AuditNote(
                self.database,
                OperatorAction.CLEAR_ORPHANS,
                secrets=self.config.secrets,
                id=self.audit_id,
            )
            await note.write(tx, look.cleared_before + cleared, is_complete=last is None)
            # The receipt: a repetition finds nothing left to clear.
            await count(tx, self.config.queue, {}, token=token, has_changes=cleared > 0)

    def _is_wanted(self, kind: Coverage, *, is_forced: bool) -> bool:
        if kind is Coverage.FOREIGN and self.config.keeps_foreign:
            return False
        return is_forced or kind not in _LEFT_ALONE

    def _wish(
        self, reading: EntityReading, hash_: str, *, is_forced: bool, only_neighbours: bool
    ) -> NewJob:
        # A completed job with this text whose vector is gone: the text alone would not revive it.
        is_lost = reading.job_status is JobStatus.COMPLETED
        is_forced = is_forced or reading.is_wanted_anew
        can_wait = only_neighbours and not is_forced
        return NewJob(
            reading.uid,
            self.model,
            reading.version,
            text_hash=hash_ or None,
            is_lost=is_lost,
            force=is_forced,
            priority=BEHIND if can_wait else 0,
            delay=self.config.relations_delay if can_wait else None,
        )

    async def _orphans(
        self, tx: Transaction, look: _Look, parts: Iterable[Stretch], *, token: int
    ) -> tuple[int, int]:
        """Count the vectors of outdated versions, and remove them unless they are to be kept."""
        orphaned = cleared = 0
        for stretch in parts:
            found = await self._of_stretch(tx, cypher.COUNT_ORPHANS, stretch)
            if found and not (self.config.keeps_old or look.dry_run):
                foreign = not self.config.keeps_foreign
                cleared += await self._of_stretch(
                    tx, cypher.CLEAR_ORPHANS, stretch, foreign=foreign, token=token
                )
            orphaned += found
        return orphaned, cleared

    async def _of_stretch(
        self, tx: Transaction, statement: LiteralString, stretch: Stretch, **parameters: Any
    ) -> int:
        if stretch.until is None:
            statement = statement.replace(cypher.END_OF_PAGE, "")
        text = for_shape(statement, self.config.shape)
        bounds = {"after": stretch.after, "until": stretch.until}
        return (await fetch_one(tx, text, **bounds, **parameters))["orphans"]
