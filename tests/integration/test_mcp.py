"""The server for agents, as a process, asked by the official client of the protocol."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.types import CallToolResult
from neo4j import AsyncDriver, exceptions as neo4j_errors

from embed_pipeline import AsyncQueue
from embed_pipeline.devserver.sample import load_sample
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.results import Failure
from embed_pipeline.operations import wiring
from embed_pipeline.settings import Settings, load_settings
from embed_pipeline.settings.secrets import variables
from embed_pipeline.store.connection import open_driver
from embed_pipeline.store.database import Database, fetch
from embed_pipeline.store.read_only import open_reading_driver
from tests.conftest import TestServer
from tests.support.project import BIN, ROOT

PAGE = ROOT / "docs" / "mcp.md"
CALL = re.compile(r"^> (\w+) (\{.*\})\n\n((?:    .*\n|\n)+)", re.MULTILINE)
READ_ALL = """
MATCH (n) WITH n ORDER BY elementId(n) RETURN elementId(n) AS id, labels(n) AS labels,
  properties(n) AS properties, COUNT { (n)--() } AS relations
"""
CLOCK = re.compile(r"[0-9]+[0-9.]* (s|min|per minute|a minute)\b|since [-0-9]+ [0-9:]+")
TOOLS = ["search_graph", "explain_entity", "embedding_status"]
PENDING = "Analytical Engine Society"
FAILED = "A text that nobody can embed"
REFUSED = "the provider refused the text"


def documented() -> dict[str, Any]:
    """The entry that the page gives for the clients."""
    [block] = re.findall(r"^```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    [entry] = json.loads(block)["mcpServers"].values()
    return entry


@dataclass
class Agent:
    """A client with a server process of its own."""

    client: Client

    async def ask(self, tool: str, **arguments: Any) -> CallToolResult:
        return await self.client.call_tool(tool, arguments)

    async def hears(self, tool: str, **arguments: Any) -> Any:
        """The answer of a tool, which is no error."""
        answer = await self.ask(tool, **arguments)
        assert not answer.is_error, answer.content
        return answer.structured_content


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where no settings of the developer are."""
    return tmp_path_factory.mktemp("agent")


@pytest.fixture(scope="module")
def environment(neo4j_server: TestServer) -> dict[str, str]:
    return {
        **documented()["env"],
        **neo4j_server.environment,
        "EMBED_QUEUE": "agents",
        "EMBED_ENTITY_LABEL": "Fact",
        "EMBED_VECTOR_INDEX": "facts",
    }


@pytest.fixture(scope="module")
def settings(environment: dict[str, str], folder: Path) -> Settings:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        return load_settings(folder / "no.env")


@pytest.fixture(scope="module")
async def graph(settings: Settings, neo4j_server: TestServer) -> AsyncIterator[AsyncDriver]:
    """The sample, embedded; beside it an entity whose job waits, and one whose job has failed."""
    shape, name = settings.entity_shape, neo4j_server.database
    async with open_driver(neo4j_server.connection) as driver:
        await driver.execute_query("MATCH (n) DETACH DELETE n", database_=name)
        async with AsyncQueue.from_settings(settings) as queue:
            await queue.init()
            await load_sample(driver, database=name, shape=shape)
            await queue.scan()
            await queue.process_jobs()
            await queue.scan()
            await driver.execute_query(
                "UNWIND $names AS name CREATE (:Fact {name: name, observations: [name]})",
                {"names": [PENDING, FAILED]},
                database_=name,
            )
            await queue.enqueue(FAILED)
            [leased] = (
                await queue.store.jobs.lease(
                    owner="test", model=settings.model, limit=1, duration=timedelta(minutes=5)
                )
            ).jobs
            await queue.store.jobs.fail(
                [Failure(leased.lease, ErrorCategory.PERMANENT, REFUSED)],
            )
            await queue.enqueue(PENDING)
        yield driver


@pytest.fixture(scope="module")
async def agent(
    graph: AsyncDriver, environment: dict[str, str], folder: Path
) -> AsyncIterator[Agent]:
    """One process for all tests; the client lives in one task, as its cancel scopes want."""
    entry = documented()
    command = str(BIN / Path(entry["command"]).name)
    server = StdioServerParameters(command=command, args=entry["args"], env=environment, cwd=folder)
    ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
    done = asyncio.Event()

    async def live() -> None:
        async with Client(server) as client:
            ready.set_result(client)
            await done.wait()

    life = asyncio.create_task(live())
    await asyncio.wait([life, ready], return_when=asyncio.FIRST_COMPLETED)
    yield Agent(await ready if ready.done() else await life)  # pyright: ignore[reportArgumentType]
    done.set()
    await life


def timeless(answer: Any) -> str:
    """An answer without what the clock or the machine says."""
    text = json.dumps(answer, ensure_ascii=False)
    return CLOCK.sub("…", text)


async def content(driver: AsyncDriver, database: str) -> list[dict[str, Any]]:
    found = await driver.execute_query(READ_ALL, database_=database)
    return [record.data() for record in found.records]


async def test_m130_a_client_sees_three_tools_that_say_they_only_read(agent: Agent) -> None:
    tools = (await agent.client.list_tools()).tools

    assert [tool.name for tool in tools] == TOOLS
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)


def test_m130_the_entry_of_the_page_has_settings_only_and_a_whole_path(
    environment: dict[str, str], neo4j_server: TestServer
) -> None:
    entry = documented()

    assert entry.keys() == {"command", "args", "env"}
    assert Path(entry["command"]).is_absolute()
    assert entry["env"].keys() <= variables().keys()
    # The test replaces where the graph is, and nothing else.
    changed = {name for name, value in entry["env"].items() if environment[name] != value}
    assert changed <= neo4j_server.environment.keys()


async def test_m130_a_hit_has_the_sentence_that_matches_and_its_relations(agent: Agent) -> None:
    found = await agent.hears("search_graph", question="monk who experimented with peas", limit=2)

    [first, _] = found["hits"]
    assert (first["name"], first["type"]) == ("Gregor Mendel", "person")
    assert "pea" in first["because"]
    assert first["because"] in first["text"]
    assert any("Gregor Mendel" in relation for relation in first["relations"])


async def test_m130_an_entity_that_waits_is_explained(agent: Agent) -> None:
    found = await agent.hears("explain_entity", name=PENDING)

    assert not found["is_found"]
    assert found["why"] == "it has no vector yet; its job waits for a drain"
    assert [job.startswith("version 1: pending since 20") for job in found["jobs"]] == [True]


async def test_m130_an_entity_whose_job_failed_is_explained(agent: Agent) -> None:
    found = await agent.hears("explain_entity", name=FAILED)

    assert not found["is_found"]
    assert found["why"] == f"it has no vector yet; its job is failed: {REFUSED}"


async def test_m130_the_status_says_what_waits_and_what_failed(agent: Agent) -> None:
    found = await agent.hears("embedding_status")

    assert found["Model"] == "use-multilingual-3"
    assert found["Pending"] == "1 (1 ready)"
    assert found["Failed"] == "1 (1 PERMANENT)"


async def test_m130_no_tool_changes_the_database(
    agent: Agent, graph: AsyncDriver, settings: Settings
) -> None:
    before = await content(graph, settings.neo4j_database)

    await agent.hears("search_graph", question="a language for operating systems")
    await agent.hears("explain_entity", name=FAILED)
    await agent.hears("embedding_status")

    assert await content(graph, settings.neo4j_database) == before


async def test_m130_a_question_obeys_the_rate_limit_and_says_when_to_come_back(
    agent: Agent, settings: Settings
) -> None:
    async with AsyncQueue.from_settings(settings) as queue:
        limiter = wiring.open_limiter(queue.store, settings)
        await limiter.hold(timedelta(minutes=2), owner="run-1", said="slow down")
        answer = await agent.ask("search_graph", question="peas")
        await limiter.clear()

    assert answer.is_error
    assert "the rate limit allows no request now; ask again in 1" in str(answer.content)


@pytest.mark.parametrize("way", ["write", "read", "read_latest"])
async def test_m130_the_server_refuses_a_write_through_the_driver_of_the_tools(
    neo4j_server: TestServer, way: str
) -> None:
    async with open_reading_driver(neo4j_server.connection) as driver:
        database = Database(driver, neo4j_server.database)

        with pytest.raises(neo4j_errors.ClientError) as refused:
            await getattr(database, way)(lambda tx: fetch(tx, "CREATE (:WrittenByAnAgent)"))

    assert refused.value.code == "Neo.ClientError.Statement.AccessMode"


async def test_a_question_that_cannot_be_asked_is_an_error_that_says_why(agent: Agent) -> None:
    for arguments in ({"question": " "}, {"question": "peas", "limit": 51}):
        answer = await agent.ask("search_graph", **arguments)

        assert answer.is_error
        assert "for 1 to 50 hits" in str(answer.content)


async def test_m130_the_conversation_of_the_docs_is_what_a_client_hears(agent: Agent) -> None:
    calls = CALL.findall(PAGE.read_text(encoding="utf-8"))

    assert {tool for tool, _, _ in calls} == set(TOOLS)
    for tool, arguments, shown in calls:
        heard = await agent.hears(tool, **json.loads(arguments))
        assert timeless(heard) == timeless(json.loads(shown))
