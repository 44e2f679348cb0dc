"""What several operations do inside a transaction."""

import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any

from embed_pipeline.store.cypher import worker as cypher
from embed_pipeline.store.database import Database, Result, Transaction, fetch
from embed_pipeline.store.moves import Change
from embed_pipeline.store.records import Properties
from embed_pipeline.store.steps import Steps, ask, ask_one, run


def new_token() -> int:
    """A value for ``_lock`` that no other operation at this time uses; small numbers are cheap."""
    return secrets.randbits(31)


async def lock_jobs(
    tx: Transaction, ids: Iterable[str], *, token: int, now: int | None
) -> tuple[dict[str, Properties], int]:
    """Lock jobs in order of their ids, then read them and the time.

    Jobs that do not exist are missing in the answer.
    """
    return await run(tx, locking(ids, token=token, now=now))


def locking(
    ids: Iterable[str], *, token: int, now: int | None
) -> Steps[tuple[dict[str, Properties], int]]:
    """The steps of ``lock_jobs``."""
    wanted = sorted(set(ids))
    if not wanted:
        return {}, 0
    yield from ask(cypher.LOCK_JOBS, ids=wanted, token=token)
    record = yield from ask_one(cypher.READ_JOBS, ids=wanted, now=now)
    return {job["id"]: job for job in record["jobs"]}, record["now"]


async def change_jobs(tx: Transaction, changes: Sequence[Change]) -> None:
    """Write what was decided about locked jobs."""
    await run(tx, changing(changes))


def changing(changes: Sequence[Change]) -> Steps[None]:
    """The steps of ``change_jobs``."""
    if changes:
        yield from ask(cypher.CHANGE_JOBS, rows=[change.row for change in changes])


async def write_once(
    database: Database,
    queue: str,
    token: int,
    work: Callable[[Transaction], Awaitable[Result]],
    *,
    is_divisible: bool = False,
) -> Result:
    """Run ``work`` until it is committed, but not again after that.

    A connection cut at COMMIT leaves open whether it was done. Then the receipt that ``count`` left
    under ``token`` tells, and the answer is the one that the committed try gave.
    """
    answers: list[Result] = []

    @wraps(work)
    async def guarded(tx: Transaction) -> Result:
        # In a transaction of its own: never wait for a job lock while holding the counters lock.
        if answers and await database.write(lambda own: _was_committed(own, queue, token)):
            return answers[-1]
        answer = await work(tx)
        answers.append(answer)
        return answer

    return await database.write(guarded, is_divisible=is_divisible)


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
    await run(tx, counting(queue, counts, token=token, has_changes=has_changes))


def counting(
    queue: str, counts: Mapping[str, int], *, token: int, has_changes: bool = False
) -> Steps[None]:
    """The steps of ``count``."""
    added: dict[str, Any] = {name: number for name, number in counts.items() if number}
    if added or has_changes:
        yield from ask(cypher.ADD_COUNTERS, queue=queue, counts=added, token=token)
