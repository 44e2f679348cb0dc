"""What is kept about the scans of one model: their result, and when they began, moved and ended."""

import logging
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import LiteralString

from embed_pipeline.domain.coverage import CoverageReport
from embed_pipeline.domain.pacing import ScanPace
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import reconcile as cypher
from embed_pipeline.store.database import Database, Record, fetch, fetch_one, from_ms, moment
from embed_pipeline.store.transactions import new_token

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ScanRecord:
    """The node with the scans of one queue and model."""

    database: Database
    config: QueueConfig
    model: str

    async def save(self, report: CoverageReport) -> CoverageReport:
        """Store the sum of a complete scan for ``last``; it ends now, by the server's clock."""
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

    async def begin(self) -> None:
        """Record that a scan begins."""
        await self._note(cypher.BEGIN_SCAN)

    async def move(self) -> None:
        """Record that a scan has moved on, but not ended."""
        await self._note(cypher.MOVE_SCAN)

    async def last(self) -> CoverageReport | None:
        """The sum of the last complete scan, without scanning."""
        return (await self.state())[0]

    async def state(self) -> tuple[CoverageReport | None, ScanPace]:
        """The sum of the last complete scan, and the progress of scans."""
        records = await self.database.read(
            lambda tx: fetch(tx, cypher.READ_COVERAGE, queue=self.config.queue, model=self.model)
        )
        if not records:
            return None, ScanPace()
        [found] = records
        pace = ScanPace(
            ended=from_ms(found["at"]),
            moved=from_ms(found["moved_at"]),
            took=timedelta(milliseconds=found["took_ms"]),
        )
        return self._report(found), pace

    def _report(self, found: Record) -> CoverageReport | None:
        if found["report"] is None:
            return None
        try:
            report = CoverageReport.from_json(found["report"])
        except ValueError as error:
            # Another version of this program wrote it; the next scan writes it anew.
            logger.warning("the coverage of the last scan cannot be read: %s", error)
            return None
        return replace(report, at=moment(found["at"]))

    async def _note(self, statement: LiteralString) -> None:
        token = new_token()
        await self.database.write(
            lambda tx: fetch(
                tx,
                statement,
                queue=self.config.queue,
                model=self.model,
                token=token,
                now=self.database.now_ms,
            )
        )
