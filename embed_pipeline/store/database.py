"""Transactions that end: bounded in time, repeated when that is safe, explained when they fail."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, LiteralString, Protocol, TypeVar

from neo4j import (
    AsyncDriver,
    AsyncResult,
    AsyncSession,
    Record,
    exceptions as neo4j_errors,
    unit_of_work,
)

from embed_pipeline.domain.audit import Operator
from embed_pipeline.domain.errors import EmbedPipelineError, TooMuchAtOnceError
from embed_pipeline.domain.queue_name import DEFAULT_QUEUE
from embed_pipeline.store.connection import ENDED_BY_SERVER, TOO_MUCH, open_session
from embed_pipeline.store.naming import for_queue
from embed_pipeline.tracing import call

logger = logging.getLogger(__name__)
REPEATING: Final = "repeating a transaction"

Result = TypeVar("Result")
Clock = Callable[[], datetime]

TRANSACTION_TIMEOUT: Final = timedelta(seconds=10)
"""A worker suspended inside a transaction blocks all others until it ends (measured: for ever
without, 5.08 s with a timeout of 5)."""
TRANSACTION_PATIENCE: Final = timedelta(seconds=30)
"""A transaction that was ended is repeated for so long."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
"""Seconds between two tries; each is twice as long as the one before."""
_REPEATABLE: Final = (
    neo4j_errors.ServiceUnavailable,  # IncompleteCommit is one
    neo4j_errors.SessionExpired,
    neo4j_errors.TransientError,
    TimeoutError,
)


class Transaction(Protocol):
    """The part of a transaction that the store uses; the driver's transactions fit."""

    async def run(
        self, query: LiteralString, parameters: dict[str, Any] | None = None, /
    ) -> AsyncResult: ...


@dataclass(frozen=True, slots=True)
class QueueTransaction:
    """A transaction whose statements are about the jobs of one queue."""

    transaction: Transaction
    queue: str

    async def run(
        self, query: LiteralString, parameters: dict[str, Any] | None = None, /
    ) -> AsyncResult:
        """Run a statement on the labels of the queue."""
        return await self.transaction.run(for_queue(query, self.queue), parameters)


@dataclass(frozen=True, slots=True)
class Database:
    """One queue in a database, and its clock.

    ``clock`` is for tests; without it every statement asks the server for the time.
    """

    driver: AsyncDriver = field(repr=False)
    name: str = "neo4j"
    clock: Clock | None = None
    timeout: timedelta = TRANSACTION_TIMEOUT
    patience: timedelta = TRANSACTION_PATIENCE
    commit: timedelta = timedelta(0)
    """So much longer an answer is waited for: no timeout of the server ends a commit."""
    queue: str = DEFAULT_QUEUE
    operator: Operator | None = None
    """On whose behalf the queue is changed; workers and sensors act for no operator."""

    @property
    def now_ms(self) -> int | None:
        """The parameter ``$now``: null in production."""
        return to_ms(self.clock()) if self.clock else None

    async def write(
        self, work: Callable[[Transaction], Awaitable[Result]], *, is_divisible: bool = False
    ) -> Result:
        """Run ``work`` in a write transaction, more than once if need be.

        ``work`` must be safe to repeat after it was applied: a connection cut at COMMIT leaves that
        open, and the only way to know is to ask again with the same token.

        Raises:
            TooMuchAtOnceError: it ``is_divisible`` and takes more time or memory than there is.
        """
        return await self._until_it_works(work, write=True, is_divisible=is_divisible)

    async def read(
        self, work: Callable[[Transaction], Awaitable[Result]], *, is_divisible: bool = False
    ) -> Result:
        """Run ``work`` in a read transaction; a follower in a cluster may be behind."""
        return await self._until_it_works(work, write=False, is_divisible=is_divisible)

    async def read_latest(
        self, work: Callable[[Transaction], Awaitable[Result]], *, is_divisible: bool = False
    ) -> Result:
        """Run ``work``, which only reads, where every write is known: on the leader.

        A lease that a follower has not heard of yet would look lost. A bookmark would make it wait,
        but also make every transaction wait for all commits before it: measured, a lease then
        waited for the vector index that other drains were writing.
        """
        return await self.write(work, is_divisible=is_divisible)

    async def run_in_batches(self, statement: LiteralString, /, **parameters: Any) -> list[Record]:
        """Run a statement that commits by itself, in batches; it must be safe to repeat."""
        async with self.session() as session:
            result = await session.run(for_queue(statement, self.queue), parameters)
            return [record async for record in result]

    def session(self) -> AsyncSession:
        return open_session(self.driver, self.name)

    async def _until_it_works(
        self,
        work: Callable[[Transaction], Awaitable[Result]],
        *,
        write: bool,
        is_divisible: bool,
    ) -> Result:
        operation = _operation_of(work)
        about = {
            "db.system.name": "neo4j",
            "db.namespace": self.name,
            "db.operation.name": operation,
        }
        with call(f"{operation} {self.queue}", about):
            return await self._repeated(work, write=write, is_divisible=is_divisible)

    async def _repeated(
        self,
        work: Callable[[Transaction], Awaitable[Result]],
        *,
        write: bool,
        is_divisible: bool,
    ) -> Result:
        seconds = self.timeout.total_seconds()

        @unit_of_work(timeout=seconds)
        async def bounded(tx: Transaction) -> Result:
            return await work(QueueTransaction(tx, self.queue))

        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.patience.total_seconds()
        pause = FIRST_PAUSE
        while True:
            try:
                # The driver waits for ever on a connection that is open but silent.
                async with asyncio.timeout(2 * seconds + self.commit.total_seconds()):
                    async with self.session() as session:
                        run = session.execute_write if write else session.execute_read
                        return await run(bounded)
            except (*_REPEATABLE, neo4j_errors.ClientError) as error:
                if is_divisible and _is_too_much(error):
                    # The same again would end the same, and cost the server as much.
                    raise TooMuchAtOnceError(
                        f"Neo4j has no time or memory for so much at once ({_kind(error)})",
                        is_time=_is_out_of_time(error),
                    ) from error
                if loop.time() + pause >= deadline or not _is_repeatable(error):
                    raise
                logger.info("%s after %s", REPEATING, type(error).__name__)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            pause = min(pause * 2, LONGEST_PAUSE)


def _operation_of(work: object) -> str:
    """The name of a transaction: that of its unit of work."""
    name = getattr(work, "__qualname__", "transaction").partition(".<locals>")[0]
    return name.rpartition(".")[2].strip("_")


def _is_repeatable(error: Exception) -> bool:
    # A worker that was suspended inside a transaction finds it ended by the server's timeout, and
    # one that waited too long for a lock is stopped: both are reported as faults of the client.
    is_client_error = isinstance(error, neo4j_errors.ClientError)
    return not is_client_error or (error.code or "").startswith(ENDED_BY_SERVER)


def _is_out_of_time(error: Exception) -> bool:
    code = getattr(error, "code", None) or ""
    return isinstance(error, TimeoutError) or code.startswith(ENDED_BY_SERVER)


def _is_too_much(error: Exception) -> bool:
    code = getattr(error, "code", None) or ""
    return isinstance(error, TimeoutError) or code.startswith(TOO_MUCH)


def _kind(error: Exception) -> str:
    return (getattr(error, "code", None) or type(error).__name__).rpartition(".")[2]


class QuietList(list[Any]):
    """A list whose ``repr`` is short.

    The driver formats the parameters of every statement for a debug line, also when nobody reads
    it: raw writes of 1,536-float rows go from 703/s to 3,909/s when there is nothing to format.
    """

    def __repr__(self) -> str:
        return f"<{len(self)} rows>"


def quiet(parameters: dict[str, Any]) -> dict[str, Any]:
    """The same parameters, with lists that are short to print."""
    return {
        name: QuietList(value) if isinstance(value, list) else value
        for name, value in parameters.items()
    }


async def fetch(tx: Transaction, statement: LiteralString, /, **parameters: Any) -> list[Record]:
    """Run a statement to its end.

    The driver keeps the parameters in a circle of objects until the garbage collector comes by,
    which is seldom. So lists are emptied: a drain held 300 MB of vectors that were long written.
    """
    sent = quiet(parameters)
    parameters.clear()
    try:
        result = await tx.run(statement, sent)
        return [record async for record in result]
    finally:
        for value in sent.values():
            if isinstance(value, QuietList):
                value.clear()


async def fetch_one(tx: Transaction, statement: LiteralString, /, **parameters: Any) -> Record:
    """Run a statement that has exactly one row."""
    records = await fetch(tx, statement, **parameters)
    if len(records) != 1:
        raise EmbedPipelineError(f"expected one row, got {len(records)}")
    return records[0]


def to_ms(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def from_ms(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else moment(milliseconds)


def moment(milliseconds: int) -> datetime:
    """A time of the server."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def duration_ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
