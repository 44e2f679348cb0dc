"""The archive for a bug report: what helps is in it, and none of the canaries."""

import contextlib
import json
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from embed_pipeline.cli.app import app
from embed_pipeline.domain.audit import Operator
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import JobFilter
from tests.conftest import TestServer
from tests.hostile.security.canaries import OBSERVATION, WORDS, Evidence
from tests.support.openai_server import KEY
from tests.support.project import Project, make_project
from tests.support.queue_harness import DIMENSIONS, MODEL, Neo4jUnderTest

NAME = "Canaryname Ozymandiasfels"
FOREIGN = "canaryforeignsecret-9mQ2"
BUNDLED = "canarybundledpassword-77fe"
CANARIES = {
    "api key": KEY,
    "foreign secret": FOREIGN,
    "password of the bundled server": BUNDLED,
    "name of an entity": NAME,
    "actor": "canaryactor",
    **{word: word for word in WORDS},
}
LOG = f"""
starting with OPENAI_API_KEY={KEY} and {FOREIGN}
Authorization: Bearer abcdefghijklmnopqrst
neo4j refuses {BUNDLED}
the line that helps
"""


@pytest.fixture
def project(neo4j_server: TestServer, tmp_path: Path) -> Project:
    """A project whose logs hold what they should not."""
    made = make_project(tmp_path)
    settings = {
        **neo4j_server.environment,
        "EMBED_JOB_RETENTION_DAYS": "14",
        "EMBEDDING_PROVIDER": "openai",
        "EMBEDDING_MODEL": MODEL,
        "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
        "OPENAI_API_KEY": KEY,
        "AWS_SECRET_ACCESS_KEY": FOREIGN,
    }
    state = made.folder / ".embed_pipeline"
    for file in ("dagster/dagster.log", "neo4j/logs/debug.log"):
        (state / file).parent.mkdir(parents=True)
        (state / file).write_text(LOG + "x" * 300_000 + LOG)
    (state / "neo4j/password").write_text(BUNDLED + "\n")
    return Project(made.folder, settings)


@pytest.fixture
def archive(project: Project) -> Callable[..., dict[str, str]]:
    """Make the archive; hand over its files."""

    def make(**environment: str) -> dict[str, str]:
        with contextlib.chdir(project.folder):
            variables = {**project.environment, **environment}
            result = CliRunner().invoke(app, ["support", "--out", "it.zip"], env=variables)
        assert result.exit_code == 0, result.output
        file = project.folder / "it.zip"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        with zipfile.ZipFile(file) as found:
            return {name: found.read(name).decode() for name in found.namelist()}

    return make


@pytest.fixture
async def failed(queue: Neo4jUnderTest) -> Neo4jUnderTest:
    """A queue with a failed job, and an operator who named an entity."""
    await queue.put_entity(NAME, OBSERVATION)
    [item] = await queue.leased(NAME)
    await queue.fail(
        item.lease,
        message=f"BadRequestError: refused {OBSERVATION}",
        category=ErrorCategory.PERMANENT,
    )
    await queue.given_jobs("another")
    queue.act_as(Operator("canaryactor"))
    await queue.admin.cancel(JobFilter(entity_uids=(NAME, "another")), by="canaryactor")
    return queue


def places_of_canaries(files: dict[str, str]) -> list[str]:
    evidence = Evidence()
    for name, text in files.items():
        evidence.add(name, text)
    return evidence.places_of(CANARIES)


@pytest.mark.usefixtures("failed")
def test_the_archive_helps_and_holds_no_canary(archive: Callable[..., dict[str, str]]) -> None:
    files = archive()

    assert places_of_canaries(files) == []
    settings = files["settings.txt"].splitlines()
    assert {"OPENAI_API_KEY set", "NEO4J_PASSWORD set", f"EMBEDDING_MODEL {MODEL}"} <= {*settings}
    assert json.loads(files["queue.json"])["figures"]["failed"] == 1
    assert json.loads(files["errors.json"]) == [
        {"category": "PERMANENT", "kind": "BadRequestError", "attempts": 1, "jobs": 1}
    ]
    [action] = json.loads(files["audit.json"])
    assert (action["action"], action["count"]) == ("cancel", 1)
    assert json.loads(files["schema.json"])["problem"] is None
    assert json.loads(files["neo4j.json"])["version"].startswith(("5.", "20"))
    assert "✓ Schema" in files["doctor.txt"]
    assert "neo4j==" in files["packages.txt"]
    for log in ("logs/dagster.log", "logs/debug.log"):
        assert "the line that helps" in files[log]
        assert len(files[log]) <= 200_000


def test_it_is_made_also_when_neo4j_is_down(archive: Callable[..., dict[str, str]]) -> None:
    files = archive(NEO4J_URI="bolt://127.0.0.1:1")

    assert places_of_canaries(files) == []
    assert "Cannot reach Neo4j" in files["doctor.txt"]
    assert "cannot be reached" in files["neo4j.json"]
    assert "the line that helps" in files["logs/dagster.log"]


def test_it_is_made_also_when_a_setting_is_wrong(archive: Callable[..., dict[str, str]]) -> None:
    files = archive(EMBED_JOB_RETENTION_DAYS="5")

    assert places_of_canaries(files) == []
    assert "EMBED_JOB_RETENTION_DAYS is '5'" in files["settings.txt"]
    assert "the line that helps" in files["logs/dagster.log"]


def test_it_replaces_no_file(project: Project) -> None:
    precious = project.folder / "precious"
    precious.write_text("precious")

    with contextlib.chdir(project.folder):
        result = CliRunner().invoke(app, ["support", "--out", "precious"], env=project.environment)

    assert "precious: File exists" in str(result.exception)
    assert precious.read_text() == "precious"
