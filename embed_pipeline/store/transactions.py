"""Steps that several operations share inside a transaction."""

import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from embed_pipeline.store import cypher_worker as cypher
from embed_pipeline.store.changes import Change
from embed_pipeline.store.database import Database, Result, Transaction, fetch, fetch_one
from embed_pipeline.store.records import Properties


def new_token() -> int:
    """A value for ``_lock`` that no other operation at this time uses; small numbers are cheap."""
    return secrets.randbits(31)


async def lock_jobs(
    tx: Transaction, ids: Iterable[str], *, token: int, now: int | None
) -> tuple[dict[str, Properties], int]:
    """Lock jobs in order of their ids, then read them and the time.

    Jobs that do not exist are missing in the answer.
    """
    wanted = sorted(set(ids))
    if not wanted:
        return {}, 0
    await fetch(tx, cypher.LOCK_JOBS, ids=wanted, token=token)
    record = await fetch_one(tx, cypher.READ_JOBS, ids=wanted, now=now)
    return {job["id"]: job for job in record["jobs"]}, record["now"]


async def change_jobs(tx: Transaction, changes: Sequence[Change]) -> None:
    """Write what was decided about locked jobs."""
    if changes:
        await fetch(tx, cypher.CHANGE_JOBS, rows=[change.row for change in changes])


async def write_once(
    database: Database, queue: str, token: int, work: Callable[[Transaction], Awaitable[Result]]
) -> Result:
    """Run ``work`` until it is committed, but not again after that.

    A connection cut at COMMIT leaves open whether it was done. Then the receipt that ``count`` left
    under ``token`` tells, and the answer is the one that the committed try gave.
    """
    answers: list[Result] = []

    async def guarded(tx: Transaction) -> Result:
        # Asked in a transaction of its own: nobody waits for a job while he holds the counters.
        if answers and await database.write(lambda own: _was_committed(own, queue, token)):
            return answers[-1]
        answer = await work(tx)
        answers.append(answer)
        return answer

    return await database.write(guarded)


async def _was_committed(tx: Transaction, queue: str, token: int) -> bool:
    await fetch(tx, cypher.LOCK_COUNTERS, queue=queue, lock=new_token())
    records = await fetch(tx, cypher.FIND_RECEIPT, queue=queue, token=token)
    return bool(records) and records[0]["found"]


async def count(
    tx: Transaction,
    queue: str,
    counts: Mapping[str, int],
    *,
    token: int,
    has_changes: bool = False,
) -> None:
    """Add to the counters and leave a receipt; the last statement of a transaction.

    A transaction that counts nothing leaves none, unless it ``has_changes`` all the same.
    """
    added: dict[str, Any] = {name: number for name, number in counts.items() if number}
    if added or has_changes:
        await fetch(tx, cypher.ADD_COUNTERS, queue=queue, counts=added, token=token)
