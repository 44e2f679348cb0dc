"""Two clients search without pause while the model changes, and changes back."""

import asyncio
import random
import time
from dataclasses import dataclass, field

import pytest

from embed_pipeline.operations import cutover, wiring
from tests.acceptance.cutover.conftest import NEAR, Deployment, text_of


@dataclass
class Client:
    """Asks for texts that are there, and expects each as the first hit."""

    deployment: Deployment
    entities: int
    pause: float
    answers: int = 0
    failed: list[str] = field(default_factory=list)
    mixed: list[str] = field(default_factory=list)

    async def search(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await asyncio.sleep(self.pause)
            number = random.randrange(self.entities)
            try:
                [hit] = await self.deployment.search(text_of(number))
            except Exception as error:
                self.failed.append(f"{type(error).__name__}: {error}")
                continue
            self.answers += 1
            if hit.uid != f"e{number}" or hit.score < NEAR:
                self.mixed.append(f"e{number}: {hit.uid} {hit.score:.3f}")


async def change_and_back(
    deployment: Deployment, entities: int, *, flips: int, pause: float
) -> list[Client]:
    await deployment.put(entities)
    await deployment.embed()
    clients = [Client(deployment, entities, pause) for _ in range(2)]
    stop, times = asyncio.Event(), []
    searching = [asyncio.create_task(client.search(stop)) for client in clients]
    try:
        await deployment.start(model="model-b", dimensions=512)
        await deployment.embed()
        await cutover.go(deployment.driver, deployment.settings)
        for _ in range(flips):
            for step in (cutover.rollback, cutover.go):
                began = time.perf_counter()
                await step(deployment.driver, deployment.settings)
                times.append((step.__name__, round(time.perf_counter() - began, 3)))
                before = clients[0].answers
                while clients[0].answers < before + 2 and not clients[0].failed:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
        await cutover.rollback(deployment.driver, deployment.settings)
    finally:
        stop.set()
        await asyncio.gather(*searching)
    print(f"{[client.answers for client in clients]} answers, {times}")  # noqa: T201
    return clients


@pytest.mark.parametrize(
    ("entities", "pause"),
    [(50, 0.05), pytest.param(20_000, 0.0, marks=pytest.mark.proof)],
    ids=["50", "20000"],
)
async def test_m101_constant_search_sees_no_failed_and_no_mixed_answer(
    empty: Deployment, entities: int, pause: float
) -> None:
    """Without a pause two clients take all of a machine with two cores; CI has others to serve."""
    empty.set(EMBEDDING_DIMENSIONS="256")
    await empty.graph.run("DROP INDEX entity_embeddings")
    await empty.graph.run("MATCH (q:EmbedQueue) DETACH DELETE q")
    await wiring.install_schema(empty.driver, empty.settings)

    clients = await change_and_back(empty, entities, flips=1, pause=pause)

    assert [client.failed for client in clients] == [[], []]
    assert [client.mixed for client in clients] == [[], []]
    assert min(client.answers for client in clients) > 10
