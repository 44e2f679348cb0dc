"""A deployment whose model is embedded, and a provider with as many models as are asked for."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from embed_pipeline.domain.cutover import Alias, Phase
from embed_pipeline.domain.results import Hit
from embed_pipeline.operations import cutover, wiring
from embed_pipeline.operations.following import fresh_settings, live_settings, wanted_settings
from embed_pipeline.operations.scan import Scan
from embed_pipeline.operations.search import search_for
from embed_pipeline.settings import Settings, load_settings
from embed_pipeline.store.connection import Driver, connected, open_driver
from embed_pipeline.worker.report import DrainReport
from tests.conftest import TestServer
from tests.support.openai_server import KEY, OpenAIServer, openai_server, vectors
from tests.support.queue_harness import DIMENSIONS, Neo4jUnderTest

OLD: Final = "model-a"
NEW: Final = "model-b"
OLD_LENGTH: Final = DIMENSIONS
NEW_LENGTH: Final = 16
ENTITIES: Final = 12
NEAR: Final = 0.9
"""Only the same text of the same model is so near; the index is quantized, so it is not 1."""


def made_by(body: dict[str, Any]) -> Any:
    """Vectors that only the same text, of the same model and length, is near to."""
    return vectors(body, of_text=lambda text: vector_of(text, body["model"], body["dimensions"]))


def vector_of(text: str, model: str, length: int) -> list[float]:
    dice = random.Random(f"{model} {length} {text}")
    return [dice.gauss(0, 1) for _ in range(length)]


@dataclass
class Deployment:
    """One deployment; ``settings`` are its variables, whatever is live."""

    graph: Neo4jUnderTest
    driver: Driver
    provider: OpenAIServer
    environment: pytest.MonkeyPatch

    @property
    def settings(self) -> Settings:
        return load_settings()

    def set(self, **variables: str) -> None:
        for name, value in variables.items():
            self.environment.setenv(name, value)

    async def put(self, number: int, *, text: str = "text", first: int = 0) -> None:
        await self.graph.run(
            "UNWIND range($first, $last) AS i MERGE (e:Entity {name: 'e' + i})"
            " SET e.entityType = 'test', e.observations = [$text + i], e.version = 1",
            first=first,
            last=first + number - 1,
            text=text,
        )

    async def embed(self) -> list[DrainReport]:
        """Scan and drain whatever is kept fresh, as sensors and drains do."""
        reports = []
        for side in await fresh_settings(self.driver, self.settings):
            async with wiring.opened_drain(
                side,
                wiring.open_embedder(side),
                owner="cutover",
                options=wiring.drain_options(side),
                stop=asyncio.Event(),
            ) as (queue, drain):
                await Scan.begin(queue.reconciler(side.model)).go_on()
                await drain.run()
                reports.append(drain.report)
        await self.graph.run("CALL db.awaitIndexes(60)")
        return reports

    async def start(self, driver: Driver | None = None, **wanted: Any) -> None:
        wanted = wanted or {"model": NEW, "dimensions": NEW_LENGTH}
        using, settings = driver or self.driver, self.settings
        plan = await cutover.plan(using, settings, wanted_settings(settings, **wanted))
        await cutover.start(using, settings, plan)

    async def filled(self) -> Alias:
        """A candidate that has everything."""
        await self.start()
        await self.embed()
        return await self.alias()

    async def gone(self) -> Alias:
        """A candidate that is live."""
        await self.filled()
        await cutover.go(self.driver, self.settings)
        return await self.alias()

    async def alias(self) -> Alias:
        alias = await cutover.read(self.driver, self.settings)
        assert alias is not None
        return alias

    async def phase(self) -> Phase | None:
        alias = await cutover.read(self.driver, self.settings)
        return alias.phase if alias else None

    async def search(self, text: str, *, limit: int = 1) -> list[Hit]:
        queue = wiring.queue_on(self.driver, self.settings)
        return await search_for(queue, self.settings, text, limit=limit)

    async def live(self) -> tuple[str, int]:
        live = await live_settings(self.driver, self.settings)
        return live.model, live.dimensions


def text_of(number: int, text: str = "text") -> str:
    """The text of an entity, as it is embedded."""
    return f"Name: e{number}\nType: test\nObservations:\n- {text}{number}"


async def forget_cutovers(graph: Neo4jUnderTest) -> None:
    """The nodes of candidates; their constraints and indexes are made once, which takes seconds."""
    await graph.run(
        "MATCH (n) WHERE n:EmbedAlias OR n:Entity OR any(l IN labels(n) WHERE l CONTAINS '_cut_')"
        " OR n.name STARTS WITH 'cut_' OR n:EmbedSchema DETACH DELETE n"
    )
    for row in await graph.run(
        "SHOW VECTOR INDEXES YIELD name, properties, options"
        " WHERE (name = 'entity_embeddings' OR properties = ['embedding'])"
        " AND options.indexConfig['vector.dimensions'] <> $length",
        length=OLD_LENGTH,
    ):
        await graph.run("DROP INDEX $name", name=row["name"])


@pytest.fixture(scope="module", autouse=True)
async def _no_schema_is_left(neo4j_server: TestServer) -> AsyncIterator[None]:
    yield
    async with open_driver(neo4j_server.connection) as driver:
        graph = Neo4jUnderTest(driver, neo4j_server.database)
        for row in await graph.run("SHOW CONSTRAINTS YIELD name WHERE name CONTAINS '_cut_'"):
            await graph.run("DROP CONSTRAINT $name", name=row["name"])
        for row in await graph.run(
            "SHOW INDEXES YIELD name WHERE name CONTAINS '_cut_' OR name CONTAINS 's__'"
        ):
            await graph.run("DROP INDEX $name", name=row["name"])


@pytest.fixture
def provider() -> Iterator[OpenAIServer]:
    with openai_server() as server:
        server.answer_with = made_by
        yield server


@pytest.fixture
async def empty(
    neo4j_server: TestServer, provider: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Deployment]:
    """A deployment with a schema, and without entities."""
    async with open_driver(neo4j_server.connection) as own:
        graph = Neo4jUnderTest(own, neo4j_server.database)
        await forget_cutovers(graph)
        await graph.wipe()
        variables = {
            **neo4j_server.environment,
            "EMBED_JOB_RETENTION_DAYS": "14",
            "EMBEDDING_PROVIDER": "openai",
            "EMBEDDING_MODEL": OLD,
            "EMBEDDING_DIMENSIONS": str(OLD_LENGTH),
            "EMBEDDING_RATE_LIMIT_TOKENS": "100000",
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": provider.base_url,
            "EMBEDDING_PROFILE": "openai",
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        settings = load_settings()
        async with connected(wiring.connection(settings)) as driver:
            await wiring.install_schema(driver, settings)
            yield Deployment(graph, driver, provider, monkeypatch)
        await forget_cutovers(graph)
        await graph.wipe()


@pytest.fixture
async def deployment(empty: Deployment) -> Deployment:
    """A deployment that has embedded all its entities with the old model."""
    await empty.put(ENTITIES)
    await empty.embed()
    return empty
