"""What ops and sensors share. No field of it can be set from a run config."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import dagster as dg

from embed_pipeline.defs.site import Site
from embed_pipeline.domain.audit import Operator
from embed_pipeline.domain.ports import Embedder
from embed_pipeline.operations import wiring
from embed_pipeline.operations.blocking import finish
from embed_pipeline.operations.following import fresh_settings, live_settings
from embed_pipeline.settings import Settings
from embed_pipeline.store.connection import Connection, Driver, connected, open_driver
from embed_pipeline.store.queue import Queue

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Neo4jResource:
    """Opens Neo4j, the queue in it and the provider, as NEO4J_…, EMBED… and OPENAI_… say.

    Nothing of it can be configured: Dagster lets a run config replace any field of a resource that
    has some, so that an address could lead anywhere, and a password could be any variable of the
    environment.
    """

    embeddings: tuple[Settings, ...]

    @property
    def settings(self) -> Settings:
        """The settings of the embedding."""
        return self.embeddings[0]

    def of(self, queue: str) -> "Neo4jResource":
        """The same for one of the embeddings."""
        [settings] = [found for found in self.embeddings if found.queue == queue]
        return Neo4jResource((settings,))

    def open_driver(self, connection: Connection) -> Driver:
        """Open a driver: the one place where ops and sensors do, drains and heartbeats too.

        A driver belongs to the event loop that made it, so there is one per loop.
        """
        return open_driver(connection)

    def open_embedder(self, settings: Settings) -> Embedder:
        """Open the provider of the vectors; the caller closes it."""
        return wiring.open_embedder(settings)

    def run(self, work: Callable[[Driver, Settings], Awaitable[Result]]) -> Result:
        """Do ``work`` with a driver and the settings of the live side.

        One driver per call; see ``open_driver``.
        """

        async def follow(driver: Driver, settings: Settings) -> Result:
            return await work(driver, await live_settings(driver, settings))

        return self.run_as_set(follow)

    def run_as_set(self, work: Callable[[Driver, Settings], Awaitable[Result]]) -> Result:
        """The same with the settings as written, whatever side is live."""
        settings = self.settings

        async def main() -> Result:
            async with connected(wiring.connection(settings), self.open_driver) as driver:
                return await work(driver, settings)

        return finish(main())

    def with_queue(
        self,
        work: Callable[[Queue, Settings], Awaitable[Result]],
        *,
        operator: Operator | None = None,
    ) -> Result:
        """Do ``work`` with the live queue; what it changes is recorded as done by ``operator``."""

        async def on_queue(driver: Driver, settings: Settings) -> Result:
            queue = wiring.queue_on(driver, settings)
            return await work(queue.acting_as(operator) if operator else queue, settings)

        return self.run(on_queue)

    def with_queues(self, work: Callable[[Queue, Settings], Awaitable[Result]]) -> list[Result]:
        """Run ``work`` with every queue that is kept fresh, the live one first."""

        async def on_queues(driver: Driver, settings: Settings) -> list[Result]:
            sides = await fresh_settings(driver, settings)
            return [await work(wiring.queue_on(driver, side), side) for side in sides]

        return self.run_as_set(on_queues)


class NothingHandedOn(dg.ConfigurableIOManager):
    """Stands where Dagster's own would let a run config choose the folder for outputs.

    Ops and assets of this project hand nothing on: what they make is in Neo4j.
    """

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Refuse an output that would be lost."""
        if obj is not None:
            raise NotImplementedError(f"{context.step_key} has an output, and nothing keeps it")

    def load_input(self, context: dg.InputContext) -> Any:
        """Refuse to invent history that was not kept."""
        raise NotImplementedError(f"{context.name} is asked for, and nothing has kept it")


def resources(site: Site) -> dict[str, Any]:
    """The resources by the names under which the ops, assets and sensors of a site ask for them."""
    neo4j = Neo4jResource(site.embeddings)
    return {
        site.neo4j: dg.ResourceDefinition(
            lambda _: neo4j, config_schema={}, description=inspect.getdoc(Neo4jResource)
        ),
        site.io_manager: NothingHandedOn(),
    }
