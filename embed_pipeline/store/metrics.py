"""One reading of all figures of the queue."""

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from embed_pipeline.domain.errors import ErrorCategory, SchemaError
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.metrics import COUNTERS, Backlog, QueueMetrics
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import metrics as cypher
from embed_pipeline.store.cypher.admin import COUNT_JOBS, READ_STATE
from embed_pipeline.store.cypher.former import COUNT_FORMER
from embed_pipeline.store.database import (
    Database,
    Transaction,
    duration_ms,
    fetch,
    fetch_one,
    from_ms,
    moment,
)
from embed_pipeline.store.identity import refusal_of
from embed_pipeline.store.switch import read_state


@dataclass(frozen=True, slots=True)
class Neo4jQueueMetrics:
    """Reads the figures."""

    database: Database
    config: QueueConfig

    async def read(self, *, window: timedelta = timedelta(minutes=5)) -> QueueMetrics:
        """Take one reading; ``window`` is what "lately" means."""

        async def work(tx: Transaction) -> QueueMetrics:
            now_ms = self.database.now_ms
            counts = await fetch_one(tx, COUNT_JOBS)
            own = self.config.identity.model if self.config.identity else None
            lanes = await fetch_one(tx, cypher.LANES, now=now_ms, model=own)
            now = lanes["now"]
            waiting = [*lanes["oldest_pending"], *await _heads(tx, own)]
            former = 0
            if own is not None:
                former = (await fetch_one(tx, COUNT_FORMER, model=own))["jobs"]
            ended = await fetch(tx, cypher.ENDED, since=now - duration_ms(window), now=now)
            categories = _tally(await fetch(tx, cypher.CATEGORIES), "category")
            record = await fetch_one(tx, cypher.READ_COUNTERS, queue=self.config.queue)
            counters = record["counters"] or {}
            queue = await fetch_one(tx, READ_STATE, queue=self.config.queue, now=now_ms)
            by_status = _tally(ended, "status")
            [leased] = lanes["leased"]
            by_states = sum(counts[status.value] for status in JobStatus)
            away = lanes["delayed"] + lanes["due_retries"] + lanes["suspects"]
            return QueueMetrics(
                at=moment(now),
                counts={status: counts[status.value] for status in JobStatus},
                ready=counts["pending"] - away,
                delayed=lanes["delayed"],
                due_retries=lanes["due_retries"],
                suspects=lanes["suspects"],
                oldest_pending=_age(waiting, now),
                expired_leases=lanes["expired"],
                oldest_expired=_age(lanes["oldest_expired"], now),
                without_lock=leased["without_lock"],
                window=window,
                completed_in_window=by_status["completed"],
                failed_in_window=by_status["failed"],
                cancelled_in_window=by_status["cancelled"],
                attempts=dict(sorted(_tally(ended, "attempts").items())),
                categories={c: categories[c.value] for c in ErrorCategory},
                counters={name: counters.get(name, 0) for name in COUNTERS},
                state=read_state(queue["queue"]),
                oldest_ended=_age(lanes["oldest_ended"], now),
                last_recovery=from_ms(counters.get("last_recovery_at")),
                former_model=former,
                unadopted=abs(counts["total"] - by_states)
                + leased["ended_by_others"]
                + categories[None],
            )

        return await self.database.read(work)

    async def completed_per_minute(self, window: timedelta) -> float:
        """The rate of completions in the window; cost is that of the window."""

        async def work(tx: Transaction) -> float:
            now = (await fetch_one(tx, cypher.NOW, now=self.database.now_ms))["now"]
            ended = await fetch(tx, cypher.ENDED, since=now - duration_ms(window), now=now)
            return _tally(ended, "status")["completed"] / (window / timedelta(minutes=1))

        return await self.database.read(work)

    async def backlog(self, model: str, *, most: int) -> Backlog:
        """What a drain for ``model`` would find; counts due jobs up to ``most``."""

        async def work(tx: Transaction) -> Backlog:
            records = await fetch(
                tx,
                cypher.BACKLOG,
                queue=self.config.queue,
                model=model,
                # One more than wanted tells whether there are more.
                most=most + 1,
                now=self.database.now_ms,
            )
            if not records:
                raise SchemaError(
                    f"there is no queue {self.config.queue!r}; run 'embed-pipeline init'"
                )
            [found] = records
            counts = await fetch_one(tx, COUNT_JOBS)
            return Backlog(
                at=moment(found["now"]),
                due=min(found["due"], most),
                is_more=found["due"] > most,
                pending=counts["pending"],
                processing=counts["processing"],
                next_due=moment(found["next_due"][0]) if found["next_due"] else None,
                state=read_state(found["queue"]),
                refusal=refusal_of(found["queue"], self.config),
                oldest_due=_age(found["due_since"], found["now"]),
            )

        return await self.database.read(work)


async def _heads(tx: Transaction, own: str | None) -> list[int]:
    """When the model's oldest healthy job became ready; those of all models if none is given."""
    heads: list[int] = []
    model = ""
    while found := await fetch(tx, cypher.NEXT_HEAD, after=model):
        model = found[0]["model"]
        if own in (None, model):
            heads.append(found[0]["ready_at"])
    return heads


def _tally(records: list[Any], column: str) -> Counter[Any]:
    tally: Counter[Any] = Counter()
    for record in records:
        tally[record[column]] += record["jobs"]
    return tally


def _age(moments: list[int], now: int) -> timedelta | None:
    return timedelta(milliseconds=max(0, now - min(moments))) if moments else None
