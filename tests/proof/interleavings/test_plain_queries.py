"""The harness would notice: the plain queries of the requirements do not pass it.

Each checks and writes in one statement, which looks atomic and is not: Neo4j reads before it locks.
Only the recovery is given word for word; the others say in the same way what its text says of them.
"""

from collections.abc import AsyncIterator
from typing import Any, LiteralString

import pytest

from embed_pipeline.domain.job import Lease
from embed_pipeline.store.connection import open_driver
from embed_pipeline.store.database import Transaction, fetch_one
from tests.conftest import TestServer
from tests.proof.interleavings.operations import Operation
from tests.proof.interleavings.race import Stage
from tests.proof.interleavings.scenes import OWNER
from tests.support.queue_harness import Neo4jUnderTest

LEASE: LiteralString = """
MATCH (job:EmbedJob)
WHERE job.status = 'pending'
WITH job ORDER BY job.priority DESC, job.created_at LIMIT 1
SET job.status = 'processing',
    job.attempts = job.attempts + 1,
    job.lock_owner = $owner,
    job.lock_until = $until
RETURN count(job) AS jobs
"""
HEARTBEAT: LiteralString = """
MATCH (job:EmbedJob {id: $id})
WHERE job.status = 'processing' AND job.lock_owner = $owner
SET job.lock_until = $until
RETURN count(job) AS jobs
"""
COMPLETE: LiteralString = """
MATCH (job:EmbedJob {id: $id})
WHERE job.status = 'processing' AND job.lock_owner = $owner
SET job.status = 'completed', job.lock_owner = null, job.lock_until = null
RETURN count(job) AS jobs
"""
RELEASE: LiteralString = """
MATCH (job:EmbedJob {id: $id})
WHERE job.status = 'processing' AND job.lock_owner = $owner
SET job.status = 'pending', job.lock_owner = null, job.lock_until = null
RETURN count(job) AS jobs
"""
RECOVER: LiteralString = """
MATCH (job:EmbedJob)
WHERE job.status = 'processing'
  AND job.lock_until < timestamp()
SET job.status = 'pending',
    job.lock_owner = null,
    job.lock_until = null
RETURN count(job) as recovered
"""
LONG_AGO = 1
"""The recovery asks the server for the time, and not the clock of the test."""
IN_A_LONG_TIME = 10**15


def plain(statement: LiteralString) -> Operation:
    async def run(queue: Neo4jUnderTest, held: Lease) -> Any:
        async def work(tx: Transaction) -> int:
            record = await fetch_one(
                tx, statement, id=held.job_id, owner=OWNER, until=IN_A_LONG_TIME
            )
            return record.value()

        return await queue.queue.database.write(work)

    return run


PLAIN = {
    "lease": plain(LEASE),
    "heartbeat": plain(HEARTBEAT),
    "complete": plain(COMPLETE),
    "release": plain(RELEASE),
    "recover": plain(RECOVER),
}
HARMLESS = [("heartbeat", "heartbeat"), ("heartbeat", "complete"), ("heartbeat", "release")]
"""A job that was extended a moment ago may be extended, completed or released."""
WRONG = [
    (first, second)
    for first in ("heartbeat", "complete", "release", "recover")
    for second in ("heartbeat", "complete", "release", "recover")
    if (first, second) not in HARMLESS
]


@pytest.fixture(scope="module")
async def stage(neo4j_server: TestServer) -> AsyncIterator[Stage]:
    async with open_driver(neo4j_server.connection) as driver:
        stage = Stage(Neo4jUnderTest(driver, neo4j_server.database))
        expired = await stage.scene("expired")
        for node in expired.nodes:
            if "lock_until" in node["properties"]:
                node["properties"]["lock_until"] = LONG_AGO
        yield stage


async def is_serial(stage: Stage, scene: str, first: str, second: str) -> bool:
    one, other = PLAIN[first], PLAIN[second]
    race = await stage.race(scene, one, other, stop_after=1)
    return race.ending in await stage.serial(scene, one, other)


@pytest.mark.parametrize(("first", "second"), WRONG)
async def test_of_the_test_a_plain_query_acts_on_what_is_no_longer_true(
    stage: Stage, first: str, second: str
) -> None:
    assert not await is_serial(stage, "expired", first, second)


async def test_of_the_test_two_plain_leases_get_the_same_job(stage: Stage) -> None:
    assert not await is_serial(stage, "waiting", "lease", "lease")


@pytest.mark.parametrize(("first", "second"), HARMLESS)
async def test_of_the_test_a_harmless_pair_raises_no_alarm(
    stage: Stage, first: str, second: str
) -> None:
    assert await is_serial(stage, "expired", first, second)


def test_of_the_test_thirteen_pairs_are_tried() -> None:
    assert len(WRONG) == 13
