"""docs/api.md: every example runs, every name of the glossary leads somewhere."""

import asyncio
import dataclasses
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import typer.main
from neo4j import GraphDatabase
from starlette.testclient import TestClient

from embed_pipeline import JobStatus, Queue
from embed_pipeline.cli.app import app
from tests.conftest import TestServer
from tests.support.drain_harness import until
from tests.support.leftovers import drop_queues
from tests.support.openai_server import KEY, OpenAIServer, openai_server
from tests.support.project import ROOT
from tests.support.queue_harness import MODEL

PAGE = (ROOT / "docs/api.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL)
WIPE = (
    "MATCH (n) WHERE n:Article OR n:EmbedJob_articles OR n:EmbedAudit_articles "
    "OR n:EmbedLimiter OR (n:EmbedQueue AND n.name = 'articles') DETACH DELETE n"
)
OF_THE_REQUIREMENTS = (
    *("processJobs", "leaseJobs", "releaseJobs", "getQueueStatus", "retryFailedJobs"),
    *("cleanupJobs", "get_zombie_jobs", "recover_zombie_job", "_recover_zombie_jobs"),
    *("acquire_job_lease", "release_job_lease", "update_heartbeat", "_heartbeat_loop"),
    *("cancel_job", "check_cancellation_requested", "get_job_status", "get_job_statistics"),
    *("RecoverExpiredLeases", "FetchAndClaim", "Ack", "NAck", "RetryAt", "InFlight"),
    *("activeJobIds", "lease_expires_at", "worker_id", "leased_at", "lease_duration"),
    *("heartbeat_interval", "retry_count", "max_retries", "JobManager", "jobStore"),
    *("Neo4jEmbeddingJobManager", "JobRepository"),
)
OF_LETTERS = {
    "EMBEDDING_PROVIDER": "python:letters:Letters",
    "EMBEDDING_MODEL": "letters-1",
    "EMBEDDING_DIMENSIONS": "26",
    "EMBED_QUEUE": "letters",
    "EMBED_ENTITY_LABEL": "Article",
    "EMBED_ENTITY_KEY": "slug",
    "EMBED_ENTITY_VECTOR": "article_letters",
    "EMBED_ENTITY_TEMPLATE": "{title}\n{body}",
    "EMBED_JOB_RETENTION_DAYS": "14",
}
ARTICLES = [
    {"slug": "bread", "title": "Baking", "body": "Flour, water, salt and yeast make bread."},
    {"slug": "stars", "title": "Astronomy", "body": "Stars burn hydrogen for a long time."},
]


@pytest.fixture
def programs(
    tmp_path: Path, neo4j_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The files of the page in a folder, and a graph without articles."""
    for name, code in BLOCKS:
        (tmp_path / name).write_text(code)
    for name, value in neo4j_server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(tmp_path)
    auth = (neo4j_server.username, neo4j_server.password)
    with GraphDatabase.driver(neo4j_server.uri, auth=auth) as driver:
        driver.execute_query(WIPE, database_=neo4j_server.database)
    yield tmp_path
    for name, _ in BLOCKS:
        sys.modules.pop(name.removesuffix(".py"), None)


def test_m133_every_example_is_a_program_that_runs() -> None:
    names = ["service.py", "worker.py", "notebook.py", "letters.py", "test_articles.py"]
    assert [name for name, _ in BLOCKS] == names
    assert PAGE.count("```") == 2 * len(BLOCKS)


async def test_m133_what_the_service_writes_the_worker_embeds_and_both_find(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, worker = importlib.import_module("service"), importlib.import_module("worker")
    with TestClient(service.app) as client:
        said = [client.post("/articles", json=article).json() for article in ARTICLES]
        report = worker.work()
        found = client.get("/search", params={"q": "how do I bake bread?"}).json()

    assert said == [{"job": "created"}] * 2
    assert report.completed == 2
    assert found[0]["slug"] == "bread"
    assert found[0]["text"] == "Baking\nFlour, water, salt and yeast make bread."

    use_settings_of(service, monkeypatch)
    # An event loop runs here, as in a notebook.
    notebook = importlib.import_module("notebook")

    assert notebook.counts["completed"] == 2
    assert notebook.hits["uid"].tolist() == ["bread", "stars"]
    assert len(notebook.failed) == notebook.would_retry.count == 0


@pytest.fixture
def provider() -> Iterator[OpenAIServer]:
    with openai_server() as server:
        yield server


async def test_m133_a_worker_of_ones_own_that_is_told_to_end_leaves_nothing_owned(
    programs: Path,
    neo4j_server: TestServer,
    provider: OpenAIServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asks_a_server(programs / "service.py", provider, monkeypatch)
    service = importlib.import_module("service")
    auth = (neo4j_server.username, neo4j_server.password)
    with GraphDatabase.driver(neo4j_server.uri, auth=auth) as driver:
        driver.execute_query("UNWIND $rows AS row CREATE (a:Article) SET a = row", rows=ARTICLES)
        queue = Queue(driver, service.ARTICLES, name="articles")
        queue.init()
        queue.enqueue_many([article["slug"] for article in ARTICLES])
        with provider.holding():
            worker = await asyncio.create_subprocess_exec(sys.executable, "worker.py", cwd=programs)
            try:
                await until(lambda: provider.requests)
                worker.terminate()
                ended = await asyncio.wait_for(worker.wait(), 300)
            finally:
                if worker.returncode is None:
                    worker.kill()
        jobs = queue.find_jobs()

    assert ended == 0
    assert [(job.status, job.attempts) for job in jobs] == [(JobStatus.PENDING, 0)] * 2
    assert [job.lock_owner for job in jobs] == [None, None]
    drop_queues(neo4j_server, queues=("articles",), labels=("Article",))


def asks_a_server(file: Path, provider: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the service ask a server instead of a model in the process, and wait for it briefly."""
    code = file.read_text().replace('"local-fast"', '"openai"').replace("wordllama-256", MODEL)
    file.write_text(code)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
    monkeypatch.setenv("EMBEDDING_PROFILE", "openai")
    monkeypatch.setenv("EMBED_JOB_STOP_GRACE_MS", "100")
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")


def test_m125_a_class_that_a_setting_names_is_a_provider(
    programs: Path, neo4j_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in OF_LETTERS.items():
        monkeypatch.setenv(name, value)

    with Queue.from_settings() as queue:
        queue.init()
        auth = (neo4j_server.username, neo4j_server.password)
        with GraphDatabase.driver(neo4j_server.uri, auth=auth) as driver:
            driver.execute_query(
                "UNWIND $rows AS row CREATE (a:Article) SET a = row", rows=ARTICLES
            )
        queue.scan()
        report = queue.process_jobs()
        [hit] = queue.search("hydrogen stars", limit=1)

    assert (report.completed, report.tokens > 0) == (2, True)
    assert hit.uid == "stars"
    drop_queues(neo4j_server, queues=("articles", "letters"), labels=("Article",))


def test_m133_a_test_of_a_program_needs_no_server(programs: Path) -> None:
    page = importlib.import_module("test_articles")

    page.test_an_article_is_found_once_it_is_embedded()


def use_settings_of(service: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Say in the environment what the service says in its description."""
    embedding = service.ARTICLES
    for field in dataclasses.fields(embedding.shape):
        if isinstance(value := getattr(embedding.shape, field.name), str):
            monkeypatch.setenv(f"EMBED_ENTITY_{field.name.upper()}", value)
    monkeypatch.setenv("EMBEDDING_PROVIDER", embedding.provider)
    monkeypatch.setenv("EMBED_QUEUE", "articles")
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")


def glossary() -> list[tuple[str, str]]:
    table = PAGE.partition("## Names of the requirements")[2]
    return re.findall(r"^\| (`.*) \| (.*) \|$", table, re.MULTILINE)


@pytest.mark.parametrize("name", OF_THE_REQUIREMENTS)
def test_m134_a_name_of_the_requirements_is_in_the_glossary(name: str) -> None:
    targets = [there for here, there in glossary() if f"`{name}`" in here]

    assert any("`embed_pipeline." in target or "`embed-pipeline " in target for target in targets)


def test_m134_every_target_of_the_glossary_exists() -> None:
    targets = [name for _, there in glossary() for name in re.findall(r"`([^`]+)`", there)]

    for name in targets:
        if name.startswith("embed_pipeline."):
            assert resolves(name), name
        elif name.startswith("embed-pipeline "):
            assert is_command(name.split()[1:]), name
    assert len(targets) >= 40


def resolves(name: str) -> bool:
    """Whether the name can be imported: a module, then what is in it, also a field of a class."""
    thing: object = importlib.import_module("embed_pipeline")
    for part in name.split(".")[1:]:
        if not hasattr(thing, part):
            if not isinstance(thing, ModuleType):
                return False
            importlib.import_module(f"{thing.__name__}.{part}")
        thing = getattr(thing, part)
    return True


def is_command(path: list[str]) -> bool:
    command = typer.main.get_command(app)
    for name in path:
        command = getattr(command, "commands", {}).get(name)
    return command is not None
