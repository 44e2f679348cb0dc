"""The queue node: pause and breaker, shared by all workers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from embed_pipeline.domain.breaker import Breaker, BreakerStatus, pause_after
from embed_pipeline.domain.errors import SchemaError
from embed_pipeline.domain.metrics import QueueState
from embed_pipeline.domain.redact import MAX_MESSAGE, redact
from embed_pipeline.store import cypher_admin as cypher
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher_worker import LOCK_QUEUE
from embed_pipeline.store.database import (
    Database,
    Transaction,
    duration_ms,
    fetch,
    fetch_one,
    from_ms,
)
from embed_pipeline.store.records import Properties
from embed_pipeline.store.transactions import new_token

Decide = Callable[[Properties, int], dict[str, Any]]
"""The locked queue node and the time in; the properties to set out."""


def read_breaker(queue: Properties) -> Breaker:
    """Read the breaker from the queue node."""
    return Breaker(
        status=BreakerStatus(queue.get("breaker", BreakerStatus.CLOSED)),
        reason=queue.get("breaker_reason"),
        since=from_ms(queue.get("breaker_since")),
        probe_at=from_ms(queue.get("breaker_probe_at")),
        failures=queue.get("breaker_failures", 0),
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
        """Give out no more leases; what is leased goes on."""
        await self._set_queue(lambda _, now: {"paused": True, "paused_by": by, "paused_since": now})

    async def resume(self) -> None:
        """Give out leases again."""
        await self._set_queue(lambda *_: {"paused": False, "paused_by": None, "paused_since": None})

    async def state(self) -> QueueState:
        """Say whether the queue is paused and how the breaker stands."""
        return read_state((await self.database.read(self._read_queue))[0])

    async def open_breaker(self, reason: str) -> Breaker:
        """Stop all leases after a global fault; twice as long after each failed probe."""
        message = redact(reason, self.config.secrets)[:MAX_MESSAGE]

        def opened(queue: Properties, now: int) -> dict[str, Any]:
            breaker = read_breaker(queue)
            # Workers that fail together count as one failure.
            is_news = breaker.status is not BreakerStatus.OPEN
            failures = breaker.failures + is_news
            probe_at = now + duration_ms(pause_after(failures))
            return {
                "breaker": BreakerStatus.OPEN.value,
                "breaker_reason": message,
                "breaker_since": queue.get("breaker_since") or now,
                "breaker_failures": failures,
                "breaker_probe_at": probe_at if is_news else queue.get("breaker_probe_at"),
            }

        await self._set_queue(opened)
        return (await self.state()).breaker

    async def close_breaker(self) -> None:
        """The probe has worked, or an operator knows better."""
        await self._set_queue(
            lambda *_: {
                "breaker": BreakerStatus.CLOSED.value,
                "breaker_reason": None,
                "breaker_since": None,
                "breaker_failures": 0,
                "breaker_probe_at": None,
            }
        )

    async def _set_queue(self, decide: Decide) -> None:
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

        await self.database.write(work)

    async def _read_queue(self, tx: Transaction) -> tuple[Properties, int]:
        record = await fetch_one(
            tx, cypher.READ_STATE, queue=self.config.queue, now=self.database.now_ms
        )
        return record["queue"], record["now"]
