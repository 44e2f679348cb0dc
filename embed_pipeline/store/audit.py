"""Records who did what to the queue, in the transactions that do it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

from embed_pipeline.domain.audit import (
    MAX_ACTOR,
    MAX_FILTER,
    AuditEntry,
    OperatorAction,
    bounded,
)
from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.domain.redact import redact
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import audit as cypher
from embed_pipeline.store.database import (
    Database,
    Transaction,
    duration_ms,
    fetch,
    fetch_one,
    moment,
)
from embed_pipeline.store.records import Properties

PAGE: Final = 1_000
SHORTEST_RETENTION: Final = timedelta(days=1)
FOR_EVER: Final = timedelta(days=36_500)


@dataclass(frozen=True, slots=True)
class AuditNote:
    """The entry of one action, however many transactions that takes.

    Does nothing on a database without an operator: a sensor or a worker is none.
    """

    database: Database
    action: OperatorAction
    filter: str = ""
    secrets: Iterable[str] = field(default=(), repr=False)
    id: str = field(default_factory=lambda: uuid4().hex)

    async def write(self, tx: Transaction, count: int, *, is_complete: bool = True) -> None:
        """Record that ``count`` jobs have been changed so far, this transaction included.

        What changed nothing is not recorded.
        """
        if count and (entry := self.entry):
            await fetch(
                tx,
                cypher.RECORD_ACTION,
                id=self.id,
                entry=entry,
                count=count,
                complete=is_complete,
                now=self.database.now_ms,
            )

    async def finish(self) -> None:
        """Record that the action is complete."""
        if self.entry:
            await self.database.write(lambda tx: fetch(tx, cypher.FINISH_ACTION, id=self.id))

    @property
    def entry(self) -> dict[str, Any]:
        """What the node holds from the beginning; empty without an operator."""
        operator = self.database.operator
        if operator is None:
            return {}
        return {
            "id": self.id,
            "action": self.action.value,
            "actor": bounded(redact(operator.actor, self.secrets), MAX_ACTOR),
            "filter": bounded(redact(self.filter, self.secrets), MAX_FILTER),
            "run_id": operator.run_id,
        }


@dataclass(frozen=True, slots=True)
class Neo4jAudit:
    """The record of what operators did to a queue."""

    database: Database
    config: QueueConfig

    def note(self, action: OperatorAction, filter_: str = "") -> AuditNote:
        """Begin an entry; it is written with the first change."""
        return AuditNote(self.database, action, filter_, self.config.secrets)

    async def recent(
        self,
        *,
        within: timedelta = FOR_EVER,
        actions: Sequence[str] | None = None,
        limit: int = 100,
    ) -> list[AuditEntry]:
        """The newest entries first."""
        record = await self.database.read(
            lambda tx: fetch_one(
                tx,
                cypher.READ_ACTIONS,
                within=duration_ms(within),
                actions=sorted(actions) if actions else None,
                limit=limit,
                now=self.database.now_ms,
            )
        )
        return [_to_entry(properties) for properties in record["actions"]]

    async def purge(self, *, retention: timedelta, dry_run: bool = False) -> int:
        """Delete entries older than the retention; returns how many."""
        if retention < SHORTEST_RETENTION:
            raise ConfigurationError(f"the retention must be at least {SHORTEST_RETENTION}")
        parameters = {"retention": duration_ms(retention), "now": self.database.now_ms}
        if dry_run:
            record = await self.database.read(
                lambda tx: fetch_one(tx, cypher.COUNT_OLD_ACTIONS, **parameters)
            )
            return record["actions"]
        deleted, page = 0, PAGE
        while page == PAGE:
            record = await self.database.write(
                lambda tx: fetch_one(tx, cypher.DELETE_OLD_ACTIONS, **parameters, limit=PAGE)
            )
            page = record["actions"]
            deleted += page
        return deleted


def _to_entry(properties: Properties) -> AuditEntry:
    return AuditEntry(
        id=properties["id"],
        at=moment(properties["at"]),
        actor=properties["actor"],
        action=properties["action"],
        filter=properties["filter"],
        count=properties["count"],
        run_id=properties.get("run_id"),
        is_complete=properties["complete"],
    )
