"""Several machines without Kubernetes: code servers, PostgreSQL, one daemon; one machine dies."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from neo4j import GraphDatabase

from embed_pipeline.defs.runs import REPOSITORY_TAG
from embed_pipeline.local.config import Memory
from embed_pipeline.local.temporary import temporary_server
from tests.conftest import TestServer
from tests.dagster_deployment import Graph
from tests.machines import Machines, running_machines
from tests.openai_server import KEY, OpenAIServer, openai_server
from tests.postgres import running_postgres
from tests.project import ROOT, Project
from tests.queue_harness import DIMENSIONS

pytestmark = pytest.mark.skipif(
    "EMBED_PIPELINE_LONG" not in os.environ, reason="EMBED_PIPELINE_LONG=1 runs it"
)
JOBS = 20_000
PAGE = 5_000
SETTINGS = {
    "EMBED_JOB_RETENTION_DAYS": "14",
    # What the dead machine held comes back soon.
    "EMBED_JOB_LOCK_DURATION_MS": "15000",
    "EMBED_JOB_RECOVERY_INTERVAL": "5000",
    "EMBED_RECONCILE_INTERVAL": "1000",
    "EMBED_DRAINS_AT_ONCE": "1",
    "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
    "EMBEDDING_RATE_LIMIT_TOKENS": "100000",
    "OPENAI_API_KEY": KEY,
}


@pytest.fixture
def provider() -> Iterator[OpenAIServer]:
    with openai_server() as server:
        # Slow enough for both machines to have something to do.
        server.latency = 0.5
        yield server


@pytest.fixture
def server() -> Iterator[TestServer]:
    """A Neo4j of its own: other tests do not wait for twenty thousand jobs."""
    with temporary_server(memory=Memory(heap="1g", pagecache="256m")) as own:
        yield TestServer(own.uri, own.username, own.password, own.database)


@pytest.fixture
def graph(server: TestServer) -> Iterator[Graph]:
    with GraphDatabase.driver(server.uri, auth=(server.username, server.password)) as driver:
        yield Graph(driver, server.database)


@pytest.fixture
def machines(
    server: TestServer, graph: Graph, provider: OpenAIServer, tmp_path: Path
) -> Iterator[Machines]:
    settings = {**SETTINGS, **server.environment, "OPENAI_BASE_URL": provider.base_url}
    made = Project(ROOT, settings).run("init")
    assert made.returncode == 0, made.stderr
    code_servers = {"embed_pipeline": {}, "second": {"EMBED_CODE_SERVER": "drains"}}
    with (
        running_postgres() as address,
        running_machines(
            tmp_path,
            address.replace("postgresql://", "postgresql+psycopg2://"),
            settings,
            code_servers,
        ) as running,
    ):
        yield running


def write_entities(graph: Graph) -> None:
    for first in range(0, JOBS, PAGE):
        graph.run(
            """
            UNWIND range($first, $last) AS n
            CREATE (:Entity {name: 'e' + n, entityType: 'thing', version: 1,
                             observations: '["' + n + '"]'})
            """,
            first=first,
            last=first + PAGE - 1,
        )


def completed(graph: Graph) -> int:
    return graph.counts().get("completed", 0)


def wait_until_completed(graph: Graph, jobs: int) -> None:
    deadline = time.monotonic() + 240
    while completed(graph) < jobs:
        assert time.monotonic() < deadline, graph.counts()
        time.sleep(0.5)


def share_of(machines: Machines, graph: Graph) -> Counter[str]:
    """Completed jobs by the code server whose drain did them."""
    locations = {run.id: run.tags[REPOSITORY_TAG] for run in machines.ui.runs("drain_embed_queue")}
    rows = graph.run(
        "MATCH (j:EmbedCompleted) RETURN split(j.last_owner, '/')[0] AS run, count(*) AS jobs"
    )
    shares: Counter[str] = Counter()
    for row in rows:
        shares[locations[row["run"]].rpartition("@")[2]] += row["jobs"]
    return shares


@pytest.mark.timeout(600)
def test_two_machines_share_the_work_and_one_may_die(
    machines: Machines, graph: Graph, provider: OpenAIServer
) -> None:
    write_entities(graph)

    wait_until_completed(graph, JOBS // 2)
    machines.code_servers["second"].kill()
    # Each of its thousands of jobs may have killed it, and is tried by itself.
    provider.latency = 0.0
    machines.code_servers["second"].start()
    wait_until_completed(graph, JOBS)

    assert graph.counts() == {"completed": JOBS}
    assert graph.embedded() == JOBS
    assert set(share_of(machines, graph)) == {"embed_pipeline", "second"}
    [row] = graph.run(
        "MATCH (j:EmbedJob) RETURN sum(j.fence) AS leases, sum(j.attempts) AS attempts"
    )
    # Whoever was leased again had a worker that died; nobody was completed twice.
    assert row["leases"] == row["attempts"]
