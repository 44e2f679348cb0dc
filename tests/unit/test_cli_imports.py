"""Commands that talk to nobody do not wait for the packages of those that do."""

import json
import subprocess
import sys

import pytest

HEAVY = {"dagster", "neo4j", "numpy", "openai", "pandas", "pyarrow", "tiktoken", "wordllama"}
"""Each takes a tenth of a second or more."""
SETTINGS = {"asyncio", "dotenv", "psutil", "pydantic"}
"""What only those load that read settings or processes."""
RUN = """
import json, sys
from embed_pipeline.cli.app import app
from typer.testing import CliRunner
codes = [CliRunner().invoke(app, arguments).exit_code for arguments in json.loads(sys.argv[1])]
print(json.dumps([codes, sorted({name.partition(".")[0] for name in sys.modules})]))
"""
WALK = """
import json, typer.main
from embed_pipeline.cli.app import app

def walk(command, path):
    yield [*path, "--help"]
    for name, below in getattr(command, "commands", {}).items():
        yield from walk(below, [*path, name])

print(json.dumps(list(walk(typer.main.get_command(app), []))))
"""


def answer(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def loaded(*commands: list[str]) -> tuple[list[int], set[str]]:
    """The exit codes of commands, and what they have imported together."""
    codes, names = json.loads(answer(RUN, json.dumps(commands)))
    return codes, set(names)


def test_the_help_of_every_command_loads_neither_settings_nor_driver_nor_provider() -> None:
    commands = json.loads(answer(WALK))

    codes, names = loaded(*commands)

    assert len(commands) > 30
    assert set(codes) == {0}
    assert not names & (HEAVY | SETTINGS)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["doctor", "--settings-only", "--json"], 0),
        (["neo4j", "status"], 3),
        (["neo4j", "logs"], 0),
        (["jobs", "list", "--status", "nonsense"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_that_asks_nobody_loads_neither_driver_nor_provider(
    command: list[str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")

    codes, names = loaded(command)

    assert codes == [code]
    assert not names & HEAVY


def test_the_code_location_loads_no_arrays_and_what_asks_for_them_later_gets_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    monkeypatch.setenv("EMBEDDING_PROVIDER", "mock")
    code = """
import json, sys
import embed_pipeline.definitions, neo4j
before = sorted({"numpy", "pandas", "pyarrow"} & set(sys.modules))
from embed_pipeline import history
history.coverage
print(json.dumps([before, "pandas" in sys.modules]))
"""

    assert json.loads(answer(code)) == [[], True]


def test_our_processes_load_the_client_of_openai_without_what_embeddings_do_not_need() -> None:
    code = """
import json, sys
from embed_pipeline.lean import load_libraries_alone
load_libraries_alone()
import embed_pipeline.embedding.openai, openai
openai.AsyncOpenAI(api_key="none").embeddings
print(json.dumps(sorted({"aiohttp", "openai.types.responses.response"} & set(sys.modules))))
"""

    assert json.loads(answer(code)) == []


def test_who_loads_the_client_otherwise_in_our_processes_misses_nothing() -> None:
    code = """
import json
from embed_pipeline.lean import load_libraries_alone
load_libraries_alone()
import openai, sys
has_all_clients = "aiohttp" in sys.modules
from openai.types import Batch, responses
from openai.types.chat import ChatCompletion
names = [Batch, openai.types.Embedding, responses.Response, ChatCompletion]
has_more = hasattr(openai.types, "Nonsense")
print(json.dumps([*(name.__name__ for name in names), has_all_clients, has_more]))
"""

    assert json.loads(answer(code)) == [
        *("Batch", "Embedding", "Response", "ChatCompletion"),
        True,
        False,
    ]
