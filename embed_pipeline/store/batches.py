"""Remembers batches, and who works on each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from embed_pipeline.domain.batch import (
    TURN,
    Batch,
    BatchStatus,
    SentJob,
    owner_of_batch,
)
from embed_pipeline.domain.job import Lease
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import batch as cypher
from embed_pipeline.store.cypher.worker import LOCK_JOBS
from embed_pipeline.store.database import (
    Database,
    Transaction,
    duration_ms,
    fetch,
    fetch_one,
    from_ms,
    moment,
)
from embed_pipeline.store.records import Properties
from embed_pipeline.store.transactions import count, new_token, write_once

PAGE: Final = 2_000
"""Jobs per transaction: 20,000 at once took up to 7 s of the 10 that a transaction has."""
_TIMES: Final = ("expires_at", "missed_at", "polled_at", "until")


@dataclass(frozen=True, slots=True)
class Neo4jBatches:
    """The batches of one queue; ``BatchStore`` says what each method does."""

    database: Database
    config: QueueConfig

    async def begin(self, id_: str, *, model: str, holder: str) -> None:
        values = {"id": id_, "model": model, "holder": holder, "turn": duration_ms(TURN)}

        async def work(tx: Transaction) -> None:
            await fetch(tx, cypher.BEGIN_BATCH, now=self.database.now_ms, **values)

        await self.database.write(work)

    async def every(self) -> list[Batch]:
        async def look(tx: Transaction) -> list[Batch]:
            return [_batch(record["batch"]) for record in await fetch(tx, cypher.READ_BATCHES)]

        return await self.database.read_latest(look)

    async def now(self) -> datetime:
        clock = self.database.now_ms
        found = await self.database.read(lambda tx: fetch_one(tx, cypher.READ_TIME, now=clock))
        return moment(found["now"])

    async def take(self, id_: str, *, holder: str) -> Batch | None:
        async def work(tx: Transaction) -> Batch | None:
            batch, now = await self._lock(tx, id_)
            if batch is None or (batch.get("holder") != holder and batch.get("until", 0) > now):
                return None
            turn = {"holder": holder, "until": now + duration_ms(TURN)}
            await fetch(tx, cypher.WRITE_BATCH, id=id_, properties=turn)
            return _batch({**batch, **turn})

        return await self.database.write(work)

    async def write(self, id_: str, *, holder: str, **properties: Any) -> bool:
        values = {name: _plain(value) for name, value in properties.items()}

        async def work(tx: Transaction) -> bool:
            batch, now = await self._lock(tx, id_)
            if batch is None or batch.get("holder") != holder:
                return False
            turn = {"until": now + duration_ms(TURN)}
            await fetch(tx, cypher.WRITE_BATCH, id=id_, properties=turn | values)
            return True

        return await self.database.write(work)

    async def settle(self, id_: str, *, holder: str, counts: Mapping[str, int]) -> bool:
        token = new_token()

        async def work(tx: Transaction) -> bool:
            batch, now = await self._lock(tx, id_)
            if batch is None or batch.get("holder") != holder:
                return False
            judged = {"status": BatchStatus.COLLECTED.value, "until": now + duration_ms(TURN)}
            await fetch(tx, cypher.WRITE_BATCH, id=id_, properties=judged)
            await count(tx, self.config.queue, counts, token=token, has_changes=True)
            return True

        return await write_once(self.database, self.config.queue, token, work)

    async def drop(self, id_: str, *, holder: str) -> bool:
        async def work(tx: Transaction) -> bool:
            batch, _ = await self._lock(tx, id_)
            if batch is None or batch.get("holder") != holder:
                return False
            await fetch(tx, cypher.DROP_BATCH, id=id_)
            return True

        return await self.database.write(work)

    async def let_go(self, id_: str, *, holder: str) -> None:
        async def work(tx: Transaction) -> None:
            batch, now = await self._lock(tx, id_)
            if batch is not None and batch.get("holder") == holder:
                properties = {"holder": None, "until": now}
                await fetch(tx, cypher.WRITE_BATCH, id=id_, properties=properties)

        await self.database.write(work)

    async def mark_sent(self, sent: Sequence[SentJob]) -> None:
        for start in range(0, len(sent), PAGE):
            rows = [
                {
                    "id": job.lease.job_id,
                    "fence": job.lease.fence,
                    "owner": job.lease.owner,
                    "hash": job.text_hash,
                    "tokens": job.tokens,
                }
                for job in sent[start : start + PAGE]
            ]
            await self.database.write(lambda tx, rows=rows: _mark(tx, rows))

    async def hold(self, batch: str, until: datetime) -> int:
        owner, until_ms = owner_of_batch(batch), round(until.timestamp() * 1000)

        async def page(tx: Transaction) -> int:
            found = await fetch(tx, cypher.PICK_HELD, owner=owner, until=until_ms, limit=PAGE)
            ids = sorted(record["id"] for record in found)
            await fetch(tx, LOCK_JOBS, ids=ids, token=new_token())
            now = self.database.now_ms
            held = await fetch_one(
                tx, cypher.HOLD_JOBS, ids=ids, owner=owner, until=until_ms, now=now
            )
            return held["jobs"]

        total = 0
        while jobs := await self.database.write(page):
            total += jobs
        return total

    async def sent_jobs(self, batch: str, *, model: str) -> list[SentJob]:
        owner = owner_of_batch(batch)

        async def look(tx: Transaction) -> list[SentJob]:
            return [
                SentJob(
                    Lease(row["id"], row["uid"], model, row["version"], owner, row["fence"]),
                    row["hash"],
                    row["tokens"],
                )
                for row in await fetch(tx, cypher.SENT_JOBS, owner=owner)
            ]

        return await self.database.read_latest(look)

    async def _lock(self, tx: Transaction, id_: str) -> tuple[Properties | None, int]:
        await fetch(tx, cypher.LOCK_BATCH, id=id_, token=new_token())
        record = await fetch_one(tx, cypher.READ_BATCH, id=id_, now=self.database.now_ms)
        return record["batch"], record["now"]


async def _mark(tx: Transaction, rows: list[dict[str, Any]]) -> None:
    await fetch(tx, LOCK_JOBS, ids=sorted(row["id"] for row in rows), token=new_token())
    await fetch(tx, cypher.MARK_SENT, rows=rows)


def _plain(value: Any) -> Any:
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else value


def _batch(found: Properties) -> Batch:
    names = set(Batch.__slots__) - {"status", "created_at", *_TIMES}
    return Batch(
        status=BatchStatus(found["status"]),
        created_at=moment(found["created_at"]),
        **{name: from_ms(found.get(name)) for name in _TIMES},
        **{name: found[name] for name in names if found.get(name) is not None},
    )
