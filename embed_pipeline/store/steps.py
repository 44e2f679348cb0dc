"""Operations as the statements they ask, one after the other.

A generator yields a statement and is sent its rows. So one and the same operation runs inside an
async or a sync transaction, also one of the caller's.
"""

from collections.abc import Generator, Iterable
from typing import Any, LiteralString, Protocol, TypeAlias, TypeVar

from neo4j import Record

from embed_pipeline.domain.errors import EmbedPipelineError
from embed_pipeline.store.database import Transaction, fetch, quiet
from embed_pipeline.store.naming import for_queue

Result = TypeVar("Result")
Statement: TypeAlias = tuple[LiteralString, dict[str, Any]]
Steps: TypeAlias = Generator[Statement, list[Record], Result]


class SyncTransaction(Protocol):
    """The part of a sync transaction that is used; the driver's transactions fit."""

    def run(
        self, query: LiteralString, parameters: dict[str, Any] | None = None, /
    ) -> Iterable[Record]: ...


def ask(statement: LiteralString, /, **parameters: Any) -> Steps[list[Record]]:
    """One statement and its rows."""
    return (yield statement, parameters)


def ask_one(statement: LiteralString, /, **parameters: Any) -> Steps[Record]:
    """A statement that has exactly one row."""
    records = yield from ask(statement, **parameters)
    if len(records) != 1:
        raise EmbedPipelineError(f"expected one row, got {len(records)}")
    return records[0]


async def run(tx: Transaction, steps: Steps[Result]) -> Result:
    """Run the steps in an async transaction."""
    try:
        statement, parameters = next(steps)
        while True:
            statement, parameters = steps.send(await fetch(tx, statement, **parameters))
    except StopIteration as end:
        return end.value


def run_sync(tx: SyncTransaction, queue: str, steps: Steps[Result]) -> Result:
    """Run the steps in a sync transaction, on the labels of a queue."""
    try:
        statement, parameters = next(steps)
        while True:
            rows = list(tx.run(for_queue(statement, queue), quiet(parameters)))
            statement, parameters = steps.send(rows)
    except StopIteration as end:
        return end.value
