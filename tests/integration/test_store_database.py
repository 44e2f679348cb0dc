"""What transactions know of each other."""

from typing import Any

from embed_pipeline.store.database import Database, Transaction, fetch
from tests.queue_harness import Neo4jUnderTest


class Noticing:
    """A driver that notes with which bookmarks sessions begin."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.begun_with: list[set[str]] = []

    def session(self, **options: Any) -> Any:
        session = self.driver.session(**options)
        run_read = session.execute_read

        async def execute_read(work: Any) -> Any:
            manager = options["bookmark_manager"]
            self.begun_with.append(set(await manager.get_bookmarks()))
            return await run_read(work)

        session.execute_read = execute_read
        return session


async def test_a_reader_of_a_cluster_waits_for_what_was_written_here(
    queue: Neo4jUnderTest,
) -> None:
    driver: Any = Noticing(queue.driver)
    database = Database(driver, queue.database)

    async def touch(tx: Transaction) -> None:
        await fetch(tx, "MATCH (q:EmbedQueue) SET q._lock = 1")

    await database.read(lambda tx: fetch(tx, "RETURN 1"))
    await database.write(touch)
    written = set(await database.bookmarks.get_bookmarks())
    await database.read(lambda tx: fetch(tx, "RETURN 1"))

    [before, after] = driver.begun_with
    assert after == written
    assert after != before
