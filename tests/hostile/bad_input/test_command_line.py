"""Real processes: exit code, one message on the right stream, no traceback, no secret."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from tests.conftest import TestServer
from tests.support.project import Project, make_project
from tests.support.queue_harness import DIMENSIONS, Neo4jUnderTest

SECRET = "hunter2-hunter2"
"""A password that must not be shown anywhere."""

BEFORE_NEO4J: dict[str, tuple[str, dict[str, str], int, str]] = {
    "a setting out of bounds": (
        "doctor",
        {"EMBED_JOB_RETENTION_DAYS": "31", "OPENAI_API_KEY": SECRET},
        2,
        "EMBED_JOB_RETENTION_DAYS is '31'; it must be a whole number of days from 7 to 30.",
    ),
    "a password in the address": (
        "status",
        {"NEO4J_URI": f"bolt://neo4j:{SECRET}@127.0.0.1:7687"},
        2,
        "NEO4J_URI (value not shown) holds a user or password",
    ),
    "plain bolt to another machine": (
        "drain",
        {
            "NEO4J_URI": "bolt://db.example:7687",
            "NEO4J_PASSWORD": SECRET,
            "EMBED_ALLOW_PLAINTEXT_BOLT": "false",
        },
        2,
        "set EMBED_ALLOW_PLAINTEXT_BOLT=true",
    ),
    "nobody listens": (
        "status",
        {"NEO4J_URI": "bolt://127.0.0.1:1", "NEO4J_PASSWORD": SECRET},
        3,
        "Cannot reach Neo4j at 127.0.0.1:1; is it running",
    ),
}


@pytest.fixture
def project(tmp_path: Path, neo4j_server: TestServer) -> Project:
    made = make_project(tmp_path)
    own = {**neo4j_server.environment, "EMBEDDING_DIMENSIONS": str(DIMENSIONS)}
    return Project(made.folder, own)


def said(result: subprocess.CompletedProcess[str], exit_code: int) -> str:
    """What went wrong, on stderr; whatever it was, it is a message and nothing else."""
    assert result.returncode == exit_code, result.stdout + result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    assert SECRET not in result.stdout + result.stderr
    return result.stderr


@pytest.mark.parametrize(
    ("command", "variables", "code", "words"), BEFORE_NEO4J.values(), ids=list(BEFORE_NEO4J)
)
def test_what_is_wrong_before_neo4j_is_asked_is_said_on_stderr(
    project: Project, command: str, variables: dict[str, str], code: int, words: str
) -> None:
    result = project.run(command, **variables)

    assert words in said(result, code)


async def test_tls_to_a_plain_port_and_an_unknown_database_are_unreachable(
    project: Project, neo4j_server: TestServer
) -> None:
    tls = neo4j_server.uri.replace("bolt://", "bolt+ssc://")

    encrypted = await asyncio.to_thread(project.run, "drain", NEO4J_URI=tls)
    elsewhere = await asyncio.to_thread(project.run, "status", NEO4J_DATABASE="nowhere")

    assert "with TLS (bolt+ssc://); if the server offers none, use bolt://" in said(encrypted, 3)
    assert "has no such database; check NEO4J_DATABASE" in said(elsewhere, 3)


async def test_a_wrong_password_is_exit_code_4_and_the_right_one_works_at_once(
    queue: Neo4jUnderTest, project: Project
) -> None:
    before = await queue.nodes()

    # Three attempts would lock everybody out.
    drained = await asyncio.to_thread(project.run, "drain", NEO4J_PASSWORD=SECRET)
    examined = await asyncio.to_thread(project.run, "doctor", NEO4J_PASSWORD=SECRET)
    right = await asyncio.to_thread(project.run, "status")

    assert "refuses user or password; check NEO4J_USERNAME and NEO4J_PASSWORD" in said(drained, 4)
    said(examined, 4)
    assert "✗ Credentials" in examined.stdout
    assert "→ check NEO4J_USERNAME and NEO4J_PASSWORD" in examined.stdout
    assert right.returncode == 0
    assert await queue.nodes() == before


async def test_a_schema_that_is_not_whole_is_exit_code_5(
    queue: Neo4jUnderTest, project: Project
) -> None:
    await queue.run("DROP CONSTRAINT embed_job_key")

    shown = await asyncio.to_thread(project.run, "status")
    examined = await asyncio.to_thread(project.run, "doctor")

    assert "the schema lacks embed_job_key; run 'embed-pipeline init'" in said(shown, 5)
    said(examined, 5)
    assert "✗ Schema the schema lacks embed_job_key → run 'embed-pipeline init'" in examined.stdout


async def test_bytes_that_are_no_text_are_refused_as_keys(
    queue: Neo4jUnderTest, project: Project
) -> None:
    await queue.put_entity("ada")
    # As the shell hands them over: Python makes half characters of them.
    broken = b"caf\xe9".decode(errors="surrogateescape")

    named = await asyncio.to_thread(project.run, "enqueue", "ada", broken)
    piped = await asyncio.to_thread(
        subprocess.run,
        project.command("enqueue", "--stdin"),
        cwd=project.folder,
        env=project.variables(),
        input=b"ada\ncaf\xe9\n",
        capture_output=True,
    )

    assert "a text holds half a character" in said(named, 1)
    assert piped.returncode == 1
    assert b"a text holds half a character" in piped.stderr
    assert b"Traceback" not in piped.stderr
    assert await queue.nodes() == []
