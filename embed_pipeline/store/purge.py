"""Deletes finished jobs whose retention is over."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from neo4j import Record

from embed_pipeline.domain.audit import OperatorAction
from embed_pipeline.domain.errors import CleanupFailedError, ConfigurationError
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.redact import redact
from embed_pipeline.domain.results import ENDED, PurgeReport, retention_in_words
from embed_pipeline.store.audit import AuditNote
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import purge as cypher
from embed_pipeline.store.database import Database, duration_ms, fetch_one
from embed_pipeline.store.naming import for_queue
from embed_pipeline.store.transactions import new_token

logger = logging.getLogger(__name__)

BATCH: Final = 1_000
SHORTEST_RETENTION: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Neo4jPurge:
    """The clean-up; through APOC where the server has it."""

    database: Database
    config: QueueConfig

    async def purge_terminal(
        self,
        *,
        retention: timedelta | Mapping[JobStatus, timedelta],
        dry_run: bool = False,
        use_apoc: bool | None = None,
    ) -> PurgeReport:
        """Delete completed, failed and cancelled jobs that ended before the retention of theirs.

        Raises:
            CleanupFailedError: a batch was rolled back; what the others deleted stays deleted.
        """
        # A negative retention deletes everything, a null one nothing: neither may pass.
        kept: Mapping[JobStatus, timedelta] = (
            dict.fromkeys(ENDED, retention) if isinstance(retention, timedelta) else retention
        )
        shortest = min(kept[status] for status in ENDED)
        if shortest < SHORTEST_RETENTION:
            raise ConfigurationError(f"the retention must be at least {SHORTEST_RETENTION}")
        found = await self.database.read(
            lambda tx: fetch_one(
                tx,
                cypher.COUNT_EXPIRED,
                now=self.database.now_ms,
                retention={status.value: duration_ms(kept[status]) for status in ENDED},
                shortest=duration_ms(shortest),
            )
        )
        has_apoc = await self._has_apoc() if use_apoc is None else use_apoc
        if dry_run or found["jobs"] == 0:
            deleted = found["jobs"] if dry_run else 0
            return PurgeReport(deleted, 0, used_apoc=has_apoc, is_dry_run=dry_run)
        if not has_apoc:
            logger.warning(
                "APOC is missing (apoc.periodic.iterate): cleaning up with CALL IN TRANSACTIONS"
            )
        asked = f"ended more than {retention_in_words(kept)} ago"
        note = AuditNote(self.database, OperatorAction.PURGE, asked, self.config.secrets)
        outcome = await self._purge(found, has_apoc=has_apoc, note=note)
        if outcome["failed_batches"]:
            errors = redact("; ".join(map(str, outcome["errors"])), self.config.secrets)[:500]
            raise CleanupFailedError(
                f"{outcome['failed_batches']} batches were rolled back after "
                f"{outcome['deleted']} jobs had been deleted: {errors}"
            )
        await note.finish()
        return PurgeReport(outcome["deleted"], 0, used_apoc=has_apoc, is_dry_run=False)

    async def _purge(self, found: Record, *, has_apoc: bool, note: AuditNote) -> Record:
        parameters: dict[str, Any] = {
            "cutoffs": found["cutoffs"],
            "last": found["last"],
            "queue": self.config.queue,
            "token": new_token(),
            "batch": BATCH,
            "entries": [note.entry] if note.entry else [],
            "now": self.database.now_ms,
        }
        queue = self.config.queue
        statement = for_queue(cypher.PURGE_WITHOUT_APOC, queue)
        if has_apoc:
            statement = cypher.PURGE_WITH_APOC
            parameters |= {
                "outer": for_queue(cypher.OUTER, queue),
                "inner": for_queue(cypher.INNER, queue),
            }
        # Auto-commit, because batches cannot commit inside another transaction.
        async with self.database.session() as session:
            result = await session.run(statement, parameters)
            [outcome] = [record async for record in result]
            return outcome

    async def _has_apoc(self) -> bool:
        record = await self.database.read(lambda tx: fetch_one(tx, cypher.HAS_APOC))
        return record["present"]
