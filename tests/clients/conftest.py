"""A graph that other programs write to, and a deployment that keeps it embedded."""

import asyncio
import json
import os
import re
import subprocess
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from embed_pipeline.operations import doctor, wiring
from embed_pipeline.operations.scan import Scan
from embed_pipeline.settings import load_settings
from embed_pipeline.store.connection import connected, open_driver
from embed_pipeline.worker.report import DrainReport
from tests.clients.packages import python_with_clients
from tests.conftest import TestServer
from tests.support.openai_server import KEY, OpenAIServer, openai_server, vectors
from tests.support.project import ROOT
from tests.support.queue_harness import Neo4jUnderTest

LENGTH: Final = 1536
SCRIPTS: Final = Path(__file__).parent / "scripts"


def meaning(text: str) -> list[float]:
    """A vector in which every word has its place: texts that share words are near each other."""
    numbers = [0.0] * LENGTH
    for word in re.findall(r"\w+", text.lower()):
        numbers[zlib.crc32(word.encode()) % LENGTH] += 1.0
    return numbers


def documented(program: str) -> dict[str, str]:
    """The settings that docs/integrations.md gives for a program."""
    page = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
    [block] = re.findall(rf"^### {program}\n\n```sh\n(.*?)```", page, re.MULTILINE | re.DOTALL)
    return {name: value for name, _, value in (line.partition("=") for line in block.splitlines())}


@pytest.fixture
def provider() -> Iterator[OpenAIServer]:
    with openai_server() as server:
        server.answer_with = lambda body: vectors(body, of_text=meaning)
        yield server


@dataclass(frozen=True)
class Deployment:
    """This program beside the others, with its default settings and what a test adds to them."""

    graph: Neo4jUnderTest
    server: TestServer
    provider: OpenAIServer
    environment: pytest.MonkeyPatch

    def set(self, **settings: str) -> None:
        for name, value in settings.items():
            self.environment.setenv(name, value)

    async def init(self) -> str:
        """``embed-pipeline init``; gives the name of the vector index."""
        settings = load_settings()
        async with connected(wiring.connection(settings)) as driver:
            return (await wiring.install_schema(driver, settings)).vector_index

    async def embed(self) -> tuple[Scan, DrainReport]:
        """``reconcile`` and ``drain``; then the index has everything."""
        settings = load_settings()
        async with wiring.opened_drain(
            settings,
            wiring.open_embedder(settings),
            owner="integrations",
            options=wiring.drain_options(settings),
            stop=asyncio.Event(),
        ) as (queue, drain):
            scan = Scan.begin(queue.reconciler(settings.model))
            await scan.go_on()
            async with asyncio.timeout(timedelta(minutes=2).total_seconds()):
                await drain.run()
        await self.graph.run("CALL db.awaitIndexes(60)")
        return scan, drain.report

    async def doctor(self) -> list[doctor.Finding]:
        return [finding async for finding in doctor.examine(load_settings(), ask_provider=False)]

    async def script(self, name: str, action: str, **given: Any) -> Any:
        """Let a client's own code act on the graph, in an environment of its own."""
        python = python_with_clients()
        asked = {"action": action, "uri": self.server.uri, "database": self.server.database}
        asked |= {"auth": [self.server.username, self.server.password], **given}
        done = await asyncio.to_thread(
            subprocess.run,
            [str(python), str(SCRIPTS / f"use_{name}.py")],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")},
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])


async def delete_everything(graph: Neo4jUnderTest) -> None:
    """Data, constraints and indexes: the clients make their own."""
    await graph.run("MATCH (n) CALL (n) { DETACH DELETE n } IN TRANSACTIONS OF 10000 ROWS")
    for row in await graph.run("SHOW CONSTRAINTS YIELD name"):
        await graph.run("DROP CONSTRAINT $name", name=row["name"])
    for row in await graph.run("SHOW INDEXES YIELD name, type WHERE type <> 'LOOKUP'"):
        await graph.run("DROP INDEX $name", name=row["name"])


@pytest.fixture
async def graph(neo4j_server: TestServer) -> AsyncIterator[Neo4jUnderTest]:
    """A database with nothing in it, not even a schema."""
    async with open_driver(neo4j_server.connection) as driver:
        empty = Neo4jUnderTest(driver, neo4j_server.database)
        await delete_everything(empty)
        yield empty
        await delete_everything(empty)


@pytest.fixture
def deployment(
    graph: Neo4jUnderTest,
    neo4j_server: TestServer,
    provider: OpenAIServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Deployment:
    made = Deployment(graph, neo4j_server, provider, monkeypatch)
    made.set(
        **neo4j_server.environment,
        EMBED_JOB_RETENTION_DAYS="14",
        OPENAI_API_KEY=KEY,
        OPENAI_BASE_URL=provider.base_url,
        EMBEDDING_PROFILE="openai",
    )
    return made
