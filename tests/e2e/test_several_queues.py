"""Two queues in one database and one Dagster: each with its own drains, figures and switch."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import TestServer
from tests.support.dagster_deployment import SETTINGS, Graph, polled
from tests.support.machines import Machines, running_machines
from tests.support.openai_server import OpenAIServer, openai_server
from tests.support.postgres import running_postgres
from tests.support.project import ROOT, Project
from tests.support.queue_harness import DIMENSIONS

ACME = {"EMBED_QUEUE": "acme", "EMBED_ENTITY_VECTOR": "acme_embedding"}
METRICS = "embed_queue_metrics"


@pytest.fixture
def provider() -> Iterator[OpenAIServer]:
    with openai_server() as server:
        yield server


@pytest.fixture
def project(neo4j_server: TestServer, graph: Graph, provider: OpenAIServer) -> Project:
    settings = {**SETTINGS, **neo4j_server.environment, "OPENAI_BASE_URL": provider.base_url}
    settings["EMBEDDING_PROFILE"] = "openai"
    project = Project(ROOT, settings)
    for queue in ({}, ACME):
        made = project.run("init", "--change-model", **queue)
        assert made.returncode == 0, made.stderr
    return project


@pytest.fixture
def dagster(project: Project, tmp_path: Path) -> Iterator[Machines]:
    servers = {"embed_pipeline": {}, "acme": ACME}
    with running_postgres() as address:
        storage = address.replace("postgresql://", "postgresql+psycopg2://")
        with running_machines(
            tmp_path, storage, project.environment, code_servers=servers
        ) as machines:
            yield machines


def counts(graph: Graph) -> dict[str, dict[str, int]]:
    """Jobs by queue and status."""
    rows = graph.run("MATCH (j:EmbedJob_acme) RETURN j.status AS status, count(*) AS jobs")
    return {"default": graph.counts(), "acme": {row["status"]: row["jobs"] for row in rows}}


def completed_in(dagster: Machines, asset: str) -> int:
    """What the latest reading of a queue says."""
    points = dagster.ui.materializations(asset, limit=1)
    return points[0].metadata["completed"] if points else 0


@pytest.mark.proof
def test_two_queues_in_one_dagster_have_their_own_drains_figures_and_pause(
    dagster: Machines, graph: Graph, project: Project
) -> None:
    graph.load(30)
    done = {"completed": 30}
    polled(lambda: counts(graph) == {"default": done, "acme": done}, "both queues are done")
    [row] = graph.run(
        "MATCH (e:Entity) WHERE size(e.embedding) = $n AND size(e.acme_embedding) = $n"
        " RETURN count(e) AS entities",
        n=DIMENSIONS,
    )
    assert row["entities"] == 30
    for job, location in (
        ("drain_embed_queue", "embed_pipeline"),
        ("acme_drain_embed_queue", "acme"),
    ):
        assert {run.location for run in dagster.ui.runs(job)} == {location}

    paused = project.run("pause", **ACME)
    graph.load(10, skip=30)

    assert paused.returncode == 0, paused.stderr
    polled(
        lambda: counts(graph) == {"default": {"completed": 40}, "acme": {**done, "pending": 10}},
        "the queue that is not paused goes on",
    )
    polled(lambda: completed_in(dagster, METRICS) == 40, "the readings of the first queue")
    polled(lambda: completed_in(dagster, f"acme/{METRICS}") == 30, "those of the second")
    assert {"acme/entity_embeddings", "entity_embeddings"} <= set(dagster.ui.assets())
