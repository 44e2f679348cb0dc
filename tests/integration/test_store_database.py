"""Where transactions run in a cluster."""

from datetime import timedelta
from typing import Any

import pytest
from neo4j import NotificationMinimumSeverity

from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.database import Database
from embed_pipeline.store.job_store import Neo4jJobStore
from tests.support.queue_harness import DIMENSIONS, MODEL, Neo4jUnderTest


class Noticing:
    """A driver that notes what is asked of the leader, and what any member may answer."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.options: list[dict[str, Any]] = []
        self.asked: list[str] = []

    def session(self, **options: Any) -> Any:
        self.options.append(options)
        session = self.driver.session(**options)
        run_read, run_write = session.execute_read, session.execute_write

        async def execute_read(work: Any) -> Any:
            self.asked.append("anybody")
            return await run_read(work)

        async def execute_write(work: Any) -> Any:
            self.asked.append("leader")
            return await run_write(work)

        session.execute_read, session.execute_write = execute_read, execute_write
        return session


@pytest.mark.parametrize("question", ["check", "load"])
async def test_a_worker_asks_the_leader_about_its_leases(
    queue: Neo4jUnderTest, question: str
) -> None:
    driver: Any = Noticing(queue.driver)
    jobs = Neo4jJobStore(Database(driver, queue.database), QueueConfig(dimensions=DIMENSIONS))
    await queue.given_jobs("ada")
    duration = timedelta(minutes=1)
    batch = await jobs.lease(owner="o", model=MODEL, limit=1, duration=duration)

    await getattr(jobs, question)([leased.lease for leased in batch.jobs])

    assert driver.asked == ["leader", "leader"]
    # With bookmarks each would wait for all commits before it, also for those of others.
    options = {
        "database": queue.database,
        "notifications_min_severity": NotificationMinimumSeverity.OFF,
    }
    assert driver.options == [options] * 2
