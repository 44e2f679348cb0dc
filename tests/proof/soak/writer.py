"""Somebody who writes entities at a steady pace, and a clean-up that follows."""

import asyncio
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from embed_pipeline.store.connection import Connection, open_driver
from embed_pipeline.store.queue import open_queue
from tests.support.dagster_deployment import Graph

ENTITIES = 200
"""So many live at once; then the oldest goes for each new one."""
RETENTION = timedelta(days=14)


@dataclass
class Writer:
    """Creates, changes and deletes; everything in a thread of its own until it is stopped."""

    graph: Graph
    per_second: float
    written: int = 0
    errors: list[Exception] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Writer":
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due += 1 / self.per_second
            try:
                self._write()
            except Exception as error:
                self.errors.append(error)
                return

    def _write(self) -> None:
        """One new entity, one change of an older one, and the oldest is deleted."""
        self.written += 1
        self.graph.run(
            """
            CREATE (:Entity {name: $new, entityType: 'soak', version: 1, observations: [$text]})
            WITH 1 AS one
            OPTIONAL MATCH (changed:Entity {name: $changed})
            SET changed.version = changed.version + 1, changed.observations = [$text]
            WITH 1 AS one
            OPTIONAL MATCH (old:Entity {name: $old})
            DETACH DELETE old
            """,
            new=f"soak-{self.written}",
            changed=f"soak-{self.written - ENTITIES // 2}",
            old=f"soak-{self.written - ENTITIES}",
            text=f"what is known at {time.time()}",
        )


def clean_up(connection: Connection, *, keep: timedelta) -> int:
    """Delete jobs that ended so long ago, as the nightly clean-up does after its retention."""

    def later() -> datetime:
        # Nobody waits for two weeks: the clean-up believes that they are over.
        return datetime.now(UTC) + RETENTION - keep

    async def purge() -> int:
        async with open_driver(connection) as driver:
            queue = open_queue(driver, database=connection.database, clock=later)
            return (await queue.purge.purge_terminal(retention=RETENTION)).deleted

    return asyncio.run(purge())
