"""``embed-pipeline compare`` on the sample graph, with the models that come with the packages."""

import asyncio
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import Result
from typer.testing import CliRunner

from embed_pipeline.cli.app import app
from embed_pipeline.devserver.sample import load_sample
from embed_pipeline.domain.errors import ConfigurationError, EmbedPipelineError
from embed_pipeline.operations.comparing import prepare
from embed_pipeline.settings import load_settings
from tests.conftest import TestServer
from tests.support.openai_server import KEY, openai_server
from tests.support.queue_harness import Neo4jUnderTest

TEMPLATE = "{name} is a {entityType}"
PRICE = 1_000.0


@pytest.fixture
async def sample(
    queue: Neo4jUnderTest, neo4j_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> Neo4jUnderTest:
    """The sample graph, nothing of it embedded, and settings that lead to it."""
    await load_sample(queue.driver, database=queue.database, shape=queue.config.shape)
    variables = {
        **neo4j_server.environment,
        "EMBED_JOB_RETENTION_DAYS": "14",
        "EMBEDDING_PROVIDER": "local",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return queue


async def compare(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, app, ["compare", *arguments])


async def test_models_are_ranked_by_the_users_own_graph_and_no_vector_is_stored(
    sample: Neo4jUnderTest, tmp_path: Path
) -> None:
    result = await compare("--models", "mock,local-fast,local", "--picture", "ranked.svg", "--json")

    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    models = [each["contender"]["model"] for each in found["standings"]]
    assert models == ["use-multilingual-3", "wordllama-256", "mock-text-embedding-3-small"]
    quality = [each["quality"] for each in found["standings"]]
    assert quality[1] > 0.75
    assert quality[2] == pytest.approx(0.5, abs=0.1)
    assert {each["tokens"] for each in found["standings"]} == {found["standings"][0]["tokens"]}
    assert found["choice"] in {each["name"] for each in found["standings"][:2]}
    assert "400 edges, 200 questions from relations, 200 from sentences" in result.stderr
    drawn = ElementTree.parse(tmp_path / "ranked.svg").getroot()
    shown = "".join(drawn.itertext())
    assert shown.index(models[0]) < shown.index(models[1]) < shown.index(models[2])
    stored = await sample.run("MATCH (e:Entity) WHERE e.embedding IS NOT NULL RETURN e")
    assert stored == []


async def test_lengths_and_templates_are_compared_as_well(sample: Neo4jUnderTest) -> None:
    result = await compare(
        *("--models", "local-fast@64,local-fast"),
        *("--templates", TEMPLATE, "--templates", "{name}: {observations}"),
    )

    assert result.exit_code == 0, result.output
    lines = [line.split("  ")[0] for line in result.stdout.splitlines()[1:5]]
    assert lines[0] == "wordllama-256@256 {name}: {observations}"
    assert set(lines) == {
        f"wordllama-256@{length} {text}"
        for length in (64, 256)
        for text in (TEMPLATE, "{name}: {observations}")
    }
    assert "cutover start" in result.stdout


async def test_what_costs_much_is_asked_for_first_and_charged_as_said(
    sample: Neo4jUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with openai_server() as provider:
        variables: dict[str, Any] = {
            "EMBEDDING_PROVIDER": "openai",
            "EMBEDDING_MODEL": "model-a",
            "EMBEDDING_DIMENSIONS": "4",
            "EMBEDDING_RATE_LIMIT_TOKENS": "1000",
            "EMBEDDING_PRICE_USD_PER_MILLION": str(PRICE),
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": provider.base_url,
            "EMBEDDING_PROFILE": "openai",
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

        refused = await compare("--models", "model-a")
        asked_before = len(provider.requests)
        done = await compare("--models", "model-a,local-fast", "--yes", "--json")

    said = refused.exception
    assert isinstance(said, EmbedPipelineError)
    assert "EMBED_CONFIRM_USD" in str(said)
    assert asked_before == 0
    assert done.exit_code == 0, done.output
    paid = {
        each["contender"]["model"]: each["usd"] for each in json.loads(done.stdout)["standings"]
    }
    assert paid["model-a"] > 10
    assert paid["wordllama-256"] == 0
    counters = await sample.counters()
    assert counters["requests"] > 0
    assert counters["cost_nano_usd"] == counters["tokens"] * PRICE * 1_000


async def test_a_graph_without_edges_and_a_model_that_nobody_has_are_refused(
    sample: Neo4jUnderTest,
) -> None:
    await sample.run("MATCH (:Entity)-[r]-() DELETE r")
    settings = load_settings()

    with pytest.raises(EmbedPipelineError, match="fewer than 30 edges"):
        await prepare(sample.queue, settings, models=["local"])
    with pytest.raises(ConfigurationError, match="EMBEDDING_DIMENSIONS"):
        await prepare(sample.queue, settings, models=["local@100"])
    with pytest.raises(ConfigurationError, match="text-embedding-3-small@512"):
        await prepare(sample.queue, settings, models=["local@many"])
