"""The queue node: pause and breaker, shared by all workers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from embed_pipeline.domain.audit import OperatorAction
from embed_pipeline.domain.breaker import Breaker, BreakerStatus, opened
from embed_pipeline.domain.errors import SchemaError
from embed_pipeline.domain.metrics import QueueState
from embed_pipeline.domain.redact import MAX_MESSAGE, redact
from embed_pipeline.store.audit import AuditNote
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import admin as cypher
from embed_pipeline.store.cypher.worker import LOCK_QUEUE
from embed_pipeline.store.database import (
    Database,
    Transaction,
    fetch,
    fetch_one,
    from_ms,
    moment,
    to_ms,
)
from embed_pipeline.store.records import Properties
from embed_pipeline.store.transactions import new_token

Decide = Callable[[Properties, int], dict[str, Any]]
"""The locked queue node and the time in; the properties to set out."""

_NOT_PAUSED: Final = {"paused": False, "paused_by": None, "paused_since": None}
_CLOSED: Final = {
    "breaker": BreakerStatus.CLOSED.value,
    "breaker_reason": None,
    "breaker_since": None,
    "breaker_failures": 0,
    "breaker_probe_at": None,
    "breaker_outage": None,
}


def read_breaker(queue: Properties) -> Breaker:
    """Read the breaker from the queue node."""
    return Breaker(
        status=BreakerStatus(queue.get("breaker", BreakerStatus.CLOSED)),
        reason=queue.get("breaker_reason"),
        since=from_ms(queue.get("breaker_since")),
        probe_at=from_ms(queue.get("breaker_probe_at")),
        failures=queue.get("breaker_failures", 0),
        is_outage=bool(queue.get("breaker_outage")),
    )


def read_state(queue: Properties) -> QueueState:
    """Read pause and breaker from the queue node."""
    return QueueState(
        breaker=read_breaker(queue),
        is_paused=bool(queue.get("paused")),
        paused_by=queue.get("paused_by"),
        paused_since=from_ms(queue.get("paused_since")),
    )


@dataclass(frozen=True, slots=True)
class Neo4jQueueSwitch:
    """Turns the queue off and on, by hand and by the breaker."""

    database: Database
    config: QueueConfig

    async def pause(self, *, by: str) -> None:
        who = redact(by, self.config.secrets)
        await self._set_queue(
            lambda _, now: {"paused": True, "paused_by": who, "paused_since": now},
            note=AuditNote(self.database, OperatorAction.PAUSE, secrets=self.config.secrets),
        )

    async def resume(self, *, close_breaker: bool = False) -> None:
        asked = "close breaker" if close_breaker else ""
        await self._set_queue(
            lambda *_: {**_NOT_PAUSED, **(_CLOSED if close_breaker else {})},
            note=AuditNote(self.database, OperatorAction.RESUME, asked, self.config.secrets),
        )

    async def state(self) -> QueueState:
        return read_state((await self.database.read(self._read_queue))[0])

    async def open_breaker(self, reason: str, *, is_outage: bool = False) -> Breaker:
        """Stop all leases after a global fault; twice as long after each failed probe."""
        message = redact(reason, self.config.secrets)[:MAX_MESSAGE]

        def decide(queue: Properties, now: int) -> dict[str, Any]:
            before, roll = read_breaker(queue), self.config.roll()
            after = opened(before, message, moment(now), is_outage=is_outage, roll=roll)
            return {
                "breaker": after.status.value,
                "breaker_reason": after.reason,
                "breaker_since": to_ms(after.since) if after.since else now,
                "breaker_failures": after.failures,
                "breaker_probe_at": to_ms(after.probe_at) if after.probe_at else None,
                "breaker_outage": after.is_outage,
            }

        await self._set_queue(decide)
        return (await self.state()).breaker

    async def close_breaker(self) -> None:
        await self._set_queue(lambda *_: _CLOSED)

    async def _set_queue(self, decide: Decide, *, note: AuditNote | None = None) -> None:
        token = new_token()

        async def work(tx: Transaction) -> None:
            if not await fetch(tx, LOCK_QUEUE, queue=self.config.queue, token=token):
                raise SchemaError(
                    f"there is no queue {self.config.queue!r}; run 'embed-pipeline init'"
                )
            queue, now = await self._read_queue(tx)
            await fetch(
                tx, cypher.SET_QUEUE, queue=self.config.queue, properties=decide(queue, now)
            )
            if note:
                await note.write(tx, 1)

        await self.database.write(work)

    async def _read_queue(self, tx: Transaction) -> tuple[Properties, int]:
        record = await fetch_one(
            tx, cypher.READ_STATE, queue=self.config.queue, now=self.database.now_ms
        )
        return record["queue"], record["now"]
