"""``from embed_pipeline import …``: what it gives, and what it costs."""

import ast
import json
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

import embed_pipeline
from embed_pipeline import AsyncQueue, Embedding, EntityShape, Queue
from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.settings import settings_for
from embed_pipeline.testing import InMemoryAsyncQueue, InMemoryQueue
from tests.support.project import ROOT

HEAVY = {"dagster", "neo4j", "openai", "pandas", "pydantic", "typer"}
SHAPE = EntityShape(
    label="Article", key="slug", vector="vec", template="{title}: {body}", index="articles"
)
LIST_MODULES = "; import sys, json; print(json.dumps(sorted(sys.modules)))"


FOR_DAGSTER = {
    "EmbedPipelineComponent",
    "Settings",
    "build_defs",
    "chosen_embedding",
    "load_embeddings",
    "load_settings",
}
"""Names for Dagster projects, which have it loaded already."""


def modules_after(code: str) -> set[str]:
    command = [sys.executable, "-c", code + LIST_MODULES]
    return set(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))


def test_m132_the_names_of_the_door_load_neither_dagster_nor_pandas_nor_a_provider() -> None:
    names = ", ".join(name for name in embed_pipeline.__all__ if name not in FOR_DAGSTER)

    loaded = modules_after(f"from embed_pipeline import {names}")

    assert "embed_pipeline.api.sync_queue" in loaded
    assert not {name.partition(".")[0] for name in loaded} & HEAVY


def test_m132_the_package_alone_loads_nothing_of_itself() -> None:
    loaded = modules_after("import embed_pipeline")

    assert {name for name in loaded if name.startswith("embed_pipeline")} == {"embed_pipeline"}


def test_m132_the_type_checker_knows_the_same_names() -> None:
    source = Path(str(embed_pipeline.__file__)).read_text(encoding="utf-8")
    block = next(node for node in ast.parse(source).body if isinstance(node, ast.If))
    typed = {
        f"{node.module}.{alias.name}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    given = {f"embed_pipeline.{home}.{name}" for name, home in embed_pipeline._HOME_OF.items()}

    assert typed == given
    assert sorted(embed_pipeline._HOME_OF) == sorted(embed_pipeline.__all__)
    assert set(embed_pipeline.__all__) <= set(dir(embed_pipeline))
    assert files("embed_pipeline").joinpath("py.typed").is_file()


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Kueue'"):
        embed_pipeline.Kueue  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_m132_both_kinds_of_queue_have_the_methods_that_the_page_names() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    table = page.partition("| Method |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`(\w+)\(", table))

    for kind in (Queue, AsyncQueue, InMemoryQueue, InMemoryAsyncQueue):
        assert named <= set(dir(kind))
    for kind in (Queue, AsyncQueue):
        has = {name for name in dir(kind) if not name.startswith("_")}
        assert has - named <= {"checked", "close", "from_settings"}
    assert len(named) > 15


@pytest.mark.parametrize("left_out", ["provider", "model", "dimensions", "shape"])
def test_m132_no_part_of_a_description_has_a_default(left_out: str) -> None:
    whole = {"provider": "mock", "model": "door", "dimensions": 8, "shape": SHAPE}

    with pytest.raises(TypeError, match=left_out):
        Embedding(**{name: whole[name] for name in whole if name != left_out})


def test_m132_the_description_wins_over_the_environment_and_no_env_file_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("EMBED_JOB_MAX_ATTEMPTS=7\n")
    monkeypatch.setenv("EMBEDDING_MODEL", "text-embedding-3-large")
    monkeypatch.setenv("EMBED_ENTITY_LABEL", "Other")
    monkeypatch.setenv("NEO4J_URI", "bolt://elsewhere.example")
    monkeypatch.setenv("EMBEDDING_RATE_LIMIT_TOKENS", "99")

    settings = settings_for(
        Embedding("mock", "mock-door", 8, SHAPE), queue="articles", database="other"
    )

    assert (settings.model, settings.dimensions) == ("mock-door", 8)
    assert settings.entity_shape == SHAPE
    assert (settings.queue, settings.neo4j_database) == ("articles", "other")
    assert settings.rate_limit_requests == 99
    assert settings.max_attempts == 3


def test_a_wrong_description_is_refused_with_every_problem() -> None:
    wrong = Embedding("openai", "text-embedding-3-small", 9_999, SHAPE)

    with pytest.raises(ConfigurationError, match=r"(?s)EMBEDDING_DIMENSIONS.*OPENAI_API_KEY"):
        settings_for(wrong, queue="default", database="neo4j")


def test_m132_the_queue_for_tests_needs_no_test_code_and_no_driver() -> None:
    loaded = modules_after("from embed_pipeline.testing import FakeQueue, MockEmbedder")

    names = {name.partition(".")[0] for name in loaded}
    assert not names & {"tests", "pytest", "dagster", "neo4j", "openai", "pandas"}
