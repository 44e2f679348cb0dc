"""The component in a project that nobody here wrote: scaffolded, checked, embedded, searched."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import TestServer
from tests.support.leftovers import drop_queues
from tests.support.patience import PATIENCE_SECONDS
from tests.support.project import BIN

PYPROJECT = """\
[project]
name = "cinema"
version = "0.1"
requires-python = ">=3.11"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "cinema"
"""
DEFINITIONS = """\
from pathlib import Path

from dagster import definitions, load_from_defs_folder


@definitions
def defs():
    return load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
ASSETS = """\
import os

import dagster as dg
from neo4j import GraphDatabase


def graph():
    auth = (os.environ["NEO4J_USERNAME"], os.environ["NEO4J_PASSWORD"])
    return GraphDatabase.driver(os.environ["NEO4J_URI"], auth=auth)


@dg.asset
def written_movies() -> None:
    with graph() as driver:
        driver.execute_query(
            "UNWIND ['Alien: in space no one can hear you scream', "
            "'Jaws: do not go into the water'] AS line "
            "CREATE (:Movie {title: split(line, ':')[0], tagline: line, version: 1})"
        )
        driver.execute_query(
            "CREATE (:Person {name: 'Ripley', entityType: 'person', observations: ['Brave']})"
        )


@dg.asset(deps=[dg.AssetKey([name, "entity_embeddings"]) for name in ("movies", "people")])
def found_nodes(context: dg.AssetExecutionContext) -> None:
    with graph() as driver:
        [record] = driver.execute_query(
            "MATCH (n:Movie|Person) WHERE n.embedding IS NOT NULL RETURN count(n) AS embedded"
        ).records
    context.log.info(f"{record['embedded']} nodes can be found")
"""
EMBEDDINGS = """\
type: embed_pipeline.EmbedPipelineComponent

attributes:
  embeddings:
    - name: movies
      label: Movie
      key: title
      text: '{title}: {tagline}'
      provider: mock
      dimensions: 8
      deps: [written_movies]
    - name: people
      label: Person
      provider: mock
      dimensions: 16
      deps: [written_movies]
"""


class Cinema:
    """A project of somebody else."""

    def __init__(self, folder: Path, server: TestServer) -> None:
        self.folder = folder
        package = folder / "src" / "cinema"
        (package / "defs").mkdir(parents=True)
        (folder / "pyproject.toml").write_text(PYPROJECT)
        (package / "__init__.py").touch()
        (package / "definitions.py").write_text(DEFINITIONS)
        (package / "defs" / "__init__.py").touch()
        (package / "defs" / "assets.py").write_text(ASSETS)
        self.defs_yaml = package / "defs" / "embeddings" / "defs.yaml"
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"},
            **server.environment,
            "PYTHONPATH": str(folder / "src"),
            "VIRTUAL_ENV": str(BIN.parent),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "DAGSTER_HOME": str(folder / "home"),
        }
        (folder / "home").mkdir()

    def dg(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(BIN / "dg"), *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )


@pytest.fixture
def cinema(neo4j_server: TestServer, tmp_path: Path) -> Iterator[Cinema]:
    theirs = {"queues": ("movies", "people"), "labels": ("Movie", "Person")}
    drop_queues(neo4j_server, **theirs)
    yield Cinema(tmp_path, neo4j_server)
    drop_queues(neo4j_server, **theirs)


def test_m94_the_component_is_scaffolded_checked_and_embeds_what_is_upstream(
    cinema: Cinema,
) -> None:
    made = cinema.dg(
        *("scaffold", "defs", "embed_pipeline.EmbedPipelineComponent", "embeddings"),
        *("--label", "Movie", "--key", "title", "--text", "{title}: {tagline}"),
    )
    assert made.returncode == 0, made.stderr
    assert "label: Movie" in cinema.defs_yaml.read_text()
    cinema.defs_yaml.write_text(EMBEDDINGS.replace("dimensions: 16", "dimensions: 99999"))
    wrong = cinema.dg("check", "defs")
    assert wrong.returncode != 0
    assert "defs.yaml:15: dimensions is '99999'; it must be a whole" in wrong.stdout + wrong.stderr
    cinema.defs_yaml.write_text(EMBEDDINGS)

    checked = cinema.dg("check", "defs")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for name in ("movies", "people"):
        config = f'{{"ops": {{"install_schema": {{"config": {{"embedding": "{name}"}}}}}}}}'
        ready = cinema.dg("launch", "--job", "initialise_schema", "--config-json", config)
        assert ready.returncode == 0, ready.stdout + ready.stderr
    selection = "written_movies,movies/entity_embeddings,people/entity_embeddings,found_nodes"
    ran = cinema.dg("launch", "--assets", selection)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    for completed in ("2 completed, 0 failed", "1 completed, 0 failed"):
        assert completed in ran.stderr
    assert "3 nodes can be found" in ran.stderr
