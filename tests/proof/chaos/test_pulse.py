"""What excuses a late recovery is a recovery that nobody could have made."""

from pathlib import Path
from typing import Any, LiteralString

import pytest
from neo4j import unit_of_work

from embed_pipeline.store import database
from embed_pipeline.store.database import QueueTransaction
from tests.proof.chaos.history import Log
from tests.proof.chaos.plan import TRANSACTION_TIMEOUT
from tests.proof.chaos.pulse import RECOVERY_OF_NOTHING, Pulse
from tests.support.queue_harness import Neo4jUnderTest


async def test_the_harness_feels_the_server_with_the_transactions_of_a_recovery(
    queue: Neo4jUnderTest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = QueueTransaction.run
    asked: list[list[str]] = []
    times: list[float] = []

    def begins(*, timeout: float) -> Any:
        times.append(timeout)

        def bounded(work: Any) -> Any:
            async def begun(tx: Any) -> Any:
                asked.append([])
                return await work(tx)

            return unit_of_work(timeout=timeout)(begun)

        return bounded

    async def noted(self: QueueTransaction, query: LiteralString, given: Any = None, /) -> Any:
        asked[-1].append(query)
        return await run(self, query, given)

    await queue.leased("ada")
    await queue.expire()
    monkeypatch.setattr(database, "unit_of_work", begins)
    monkeypatch.setattr(QueueTransaction, "run", noted)

    assert len(await queue.jobs.recover_expired(limit=1)) == 1
    real = list(asked)
    asked.clear()
    times.clear()
    assert await Pulse(queue.driver, Log(tmp_path, "pulse")).answers()

    assert asked == [*real, real[-1], real[-1]]
    assert set(times) == {TRANSACTION_TIMEOUT.total_seconds()}
    assert all(value for each in RECOVERY_OF_NOTHING[2:] for value in each.values())
