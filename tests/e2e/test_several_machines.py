"""Several machines without Kubernetes: they share the work, and one of them dies.

With code servers, and with Celery.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from dagster_celery.tags import DAGSTER_CELERY_TASK_ID_TAG
from neo4j import GraphDatabase

from embed_pipeline.devserver.config import Memory
from embed_pipeline.devserver.temporary import temporary_server
from tests.conftest import TestServer
from tests.support.dagster_deployment import SETTINGS as SOON, Graph, polled
from tests.support.machines import Machines, Service, running_machines
from tests.support.memento import chained, remember
from tests.support.openai_server import KEY, OpenAIServer, openai_server
from tests.support.postgres import running_postgres
from tests.support.project import ROOT, Project
from tests.support.queue_harness import DIMENSIONS
from tests.support.redis_server import running_redis

JOBS = 20_000
PAGE = 5_000
FEW_JOBS = 300
HELD_SECONDS = 30
"""That a request waits for an answer, at most: a drain would give it up after 60."""
CODE_SERVERS = {"embed_pipeline": {}, "second": {"EMBED_CODE_SERVER": "drains"}}
SETTINGS = {
    "EMBED_JOB_RETENTION_DAYS": "14",
    "EMBED_JOB_RECOVERY_INTERVAL": "5000",
    "EMBED_RECONCILE_INTERVAL": "1000",
    "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
    "EMBEDDING_RATE_LIMIT_TOKENS": "100000",
    "EMBEDDING_PROVIDER": "openai",
    "OPENAI_API_KEY": KEY,
}

SHORT_LEASE = {"EMBED_JOB_LOCK_DURATION_MS": "15000"}
"""What the machine held that dies comes back soon; the leases of others, by default five minutes,
hold on a busy machine."""


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
def large(server: TestServer) -> Iterator[Graph]:
    with GraphDatabase.driver(server.uri, auth=(server.username, server.password)) as driver:
        yield Graph(driver, server.database)


@pytest.fixture
def settings(server: TestServer, provider: OpenAIServer) -> dict[str, str]:
    settings = {**SETTINGS, **server.environment, "OPENAI_BASE_URL": provider.base_url}
    settings["EMBEDDING_PROFILE"] = "openai"
    made = Project(ROOT, settings).run("init")
    assert made.returncode == 0, made.stderr
    return settings


@pytest.fixture
def storage() -> Iterator[str]:
    with running_postgres() as address:
        yield address.replace("postgresql://", "postgresql+psycopg2://")


@pytest.fixture
def code_servers(settings: dict[str, str], storage: str, tmp_path: Path) -> Iterator[Machines]:
    """Two of them, each with one drain at a time."""
    limited = {**settings, "EMBED_DRAINS_AT_ONCE": "1"}
    servers = {**CODE_SERVERS, "second": {**CODE_SERVERS["second"], **SHORT_LEASE}}
    with running_machines(tmp_path, storage, limited, code_servers=servers) as machines:
        yield machines


@pytest.fixture
def may_answer(provider: OpenAIServer) -> threading.Event:
    """Set it to let the provider answer at once."""
    opened = threading.Event()

    async def answer(_: dict[str, Any]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(HELD_SECONDS):
                while not opened.is_set():  # noqa: ASYNC110 - set from another thread
                    await asyncio.sleep(0.01)

    provider.answer_with = answer
    provider.latency = 0.0
    return opened


@pytest.fixture
def small(
    neo4j_server: TestServer, graph: Graph, provider: OpenAIServer, tmp_path: Path
) -> Iterator[Machines]:
    """Two code servers with a small queue."""
    settings = {
        **SOON,
        **neo4j_server.environment,
        "OPENAI_BASE_URL": provider.base_url,
        "EMBEDDING_PROFILE": "openai",
        "EMBED_DRAINS_AT_ONCE": "1",
        # So that the first drain cannot hold everything.
        "EMBEDDING_MAX_INPUTS": "10",
    }
    made = Project(ROOT, settings).run("init", "--change-model")
    assert made.returncode == 0, made.stderr
    write_entities(graph, FEW_JOBS)
    with running_machines(tmp_path, None, settings, code_servers=CODE_SERVERS) as machines:
        yield machines


@pytest.fixture
def celery(settings: dict[str, str], storage: str, tmp_path: Path) -> Iterator[Machines]:
    """One code server, whose two drains at a time run on two workers with one place each."""
    with (
        running_redis() as broker,
        running_machines(
            tmp_path,
            storage,
            {**settings, "EMBED_DRAINS_AT_ONCE": "2", "CELERY_BROKER_URL": broker},
            code_servers={"embed_pipeline": {}},
            workers={"first": {}, "second": SHORT_LEASE},
        ) as machines,
    ):
        yield machines


def write_entities(graph: Graph, count: int) -> None:
    for first in range(0, count, PAGE):
        names = [f"e{number}" for number in range(first, min(first + PAGE, count))]
        entities = [{"name": n, "entityType": "thing", "observations": [n]} for n in names]
        remember(graph.run, entities, chained(names))


def completed(graph: Graph) -> int:
    return graph.counts().get("completed", 0)


def wait_until_completed(graph: Graph, jobs: int) -> None:
    polled(lambda: completed(graph) >= jobs, f"{jobs} jobs are completed", seconds=240)


def completed_by_run(graph: Graph) -> dict[str, int]:
    rows = graph.run(
        "MATCH (j:EmbedCompleted) RETURN split(j.last_owner, '/')[0] AS run, count(*) AS jobs"
    )
    return {row["run"]: row["jobs"] for row in rows}


def share_of_code_servers(machines: Machines, graph: Graph) -> Counter[str]:
    """Completed jobs by the code server whose drain did them."""
    shares: Counter[str] = Counter()
    locations = {run.id: run.location for run in machines.ui.runs("drain_embed_queue")}
    for run, jobs in completed_by_run(graph).items():
        shares[locations[run]] += jobs
    return shares


def locations_of_holders(machines: Machines, graph: Graph) -> set[str]:
    """The code servers whose drains hold jobs now."""
    locations = {run.id: run.location for run in machines.ui.runs("drain_embed_queue")}
    return {locations[owner.partition("/")[0]] for owner in graph.owners()}


def share_of_workers(machines: Machines, graph: Graph) -> Counter[str]:
    """Completed jobs by the worker whose log has the task of the drain that did them."""
    shares: Counter[str] = Counter()
    logs = {name: worker.log.read_text() for name, worker in machines.workers.items()}
    tags = {run.id: run.tags for run in machines.ui.runs("drain_embed_queue")}
    for run, jobs in completed_by_run(graph).items():
        task = tags[run][DAGSTER_CELERY_TASK_ID_TAG]
        [worker] = [name for name, log in logs.items() if task in log]
        shares[worker] += jobs
    return shares


def drain_while_one_dies(victim: Service, graph: Graph, provider: OpenAIServer) -> None:
    with provider.holding():
        write_entities(graph, JOBS)
        # Else one of them may have done everything before a busy machine has started the other.
        polled(lambda: len(graph.owners()) == 2, "both hold jobs", seconds=240)

    wait_until_completed(graph, JOBS // 2)
    victim.kill()
    # Each of its thousands of jobs may have killed it: they are tried in groups of 64.
    provider.latency = 0.0
    del victim.environment["EMBED_JOB_LOCK_DURATION_MS"]
    victim.start()
    wait_until_completed(graph, JOBS)


def assert_nothing_is_lost_or_done_twice(graph: Graph) -> None:
    assert graph.counts() == {"completed": JOBS}
    assert graph.embedded() == JOBS
    [row] = graph.run(
        "MATCH (j:EmbedJob) RETURN sum(j.fence) AS leases, sum(j.attempts) AS attempts"
    )
    # Whoever was leased again had a worker that died; nobody was completed twice.
    assert row["leases"] == row["attempts"]


@pytest.mark.timeout(600)
def test_both_code_servers_work_on_a_queue_that_one_could_do_alone(
    may_answer: threading.Event, small: Machines, graph: Graph
) -> None:
    polled(lambda: locations_of_holders(small, graph) == set(CODE_SERVERS), "both hold some jobs")
    may_answer.set()
    wait_until_completed(graph, FEW_JOBS)

    assert graph.counts() == {"completed": FEW_JOBS}
    assert graph.embedded() == FEW_JOBS
    assert set(share_of_code_servers(small, graph)) == set(CODE_SERVERS)


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_two_code_servers_share_the_work_and_one_may_die(
    code_servers: Machines, large: Graph, provider: OpenAIServer
) -> None:
    drain_while_one_dies(code_servers.code_servers["second"], large, provider)

    assert_nothing_is_lost_or_done_twice(large)
    assert set(share_of_code_servers(code_servers, large)) == {"embed_pipeline", "second"}


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_two_workers_of_celery_share_the_work_and_one_may_die(
    celery: Machines, large: Graph, provider: OpenAIServer
) -> None:
    drain_while_one_dies(celery.workers["second"], large, provider)

    assert_nothing_is_lost_or_done_twice(large)
    assert set(share_of_workers(celery, large)) == {"first", "second"}
