"""The queries of the operator's guide, run as they stand on a queue that has something to find."""

import re
from datetime import UTC, datetime
from itertools import chain
from typing import Any, cast

import pytest

from embed_pipeline.domain.job import JobStatus
from tests.support.project import ROOT
from tests.support.queue_harness import Neo4jUnderTest

GUIDE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^ *```cypher\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
TOPIC = re.compile(r"^### (.+?)$(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
QUERIES = [
    (title, query.strip())
    for title, text in cast("list[tuple[str, str]]", TOPIC.findall(GUIDE))
    for query in BLOCK.findall(text)
]

Row = dict[str, Any]
FOUND: dict[str, list[list[Row]]] = {
    "Cancel jobs": [[{"j.entity_uid": "cancelled", "j.cancelled_by": "operator"}]],
    "Recovery": [[{"owner": "dead/run", "jobs": 2}, {"owner": "run-1", "jobs": 1}]],
    "Races": [[{"j.status": "processing", "j.fence": 2, "j.attempts": 2, "j.expiries": 1}]],
    "Alerts on zombies": [
        [{"j.entity_uid": "Linux", "j.lock_owner": "dead/run"}],
        [{"j.entity_uid": "without an expiry", "j.attempts": 1}],
    ],
    "Retry cost": [[{"status": "processing", "attempts": 2, "jobs": 1}]],
    "Review of failures": [[{"category": "PERMANENT", "jobs": 1}]],
}
"""What each query finds; the rows may have more columns."""


@pytest.fixture
async def queue(queue: Neo4jUnderTest) -> Neo4jUnderTest:
    """One job for every question of the guide, and others that are no answer."""
    now = datetime.now(UTC)
    queue.clock.now = datetime(2020, 1, 1, tzinfo=UTC)
    for status in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED):
        await queue.in_state(status.value, status)
    await queue.leased("Linux", owner="dead/run")
    await queue.expire()
    await queue.jobs.recover_expired(limit=10)
    assert [x.attempts for x in (await queue.lease("dead/run")).jobs] == [2]
    await queue.leased("without an expiry", owner="dead/run")
    await queue.run("MATCH (j:EmbedJob {entity_uid: 'without an expiry'}) REMOVE j.lock_until")
    queue.clock.now = now
    await queue.leased("alive")
    await queue.given_jobs("pending")
    return queue


def test_m38_m61_every_query_of_the_guide_is_run_here() -> None:
    titles = [title for title, _ in QUERIES]

    assert {title: titles.count(title) for title in titles} == {
        title: len(rows) for title, rows in FOUND.items()
    }
    assert GUIDE.count("```cypher") == len(QUERIES)


@pytest.mark.parametrize(
    ("title", "query", "expected"),
    [
        (title, query, rows)
        for (title, query), rows in zip(QUERIES, chain(*FOUND.values()), strict=True)
    ],
    ids=[f"{title} {number}" for number, (title, _) in enumerate(QUERIES)],
)
async def test_m38_m61_a_query_of_the_guide_finds_what_it_is_for(
    queue: Neo4jUnderTest, title: str, query: str, expected: list[Row]
) -> None:
    async with queue.driver.session(database=queue.database) as session:
        result = await session.run(query.removesuffix(";"))  # pyright: ignore[reportArgumentType]
        rows = await result.data()
        # A property that no job has any more is only a warning for Neo4j.
        warnings = [
            status.status_description
            for status in (await result.consume()).gql_status_objects
            if status.gql_status.startswith("01")
        ]

    assert warnings == []
    columns = list(expected[0])
    found = [{name: row[name] for name in columns} for row in rows]
    assert sorted(found, key=str) == sorted(expected, key=str), title
