"""What ops and sensors share. No field of it can be set from a run config."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import dagster as dg

from embed_pipeline import wiring
from embed_pipeline.domain.audit import Operator
from embed_pipeline.domain.ports import Embedder
from embed_pipeline.settings import Settings, load_settings
from embed_pipeline.store.connection import Driver, connected
from embed_pipeline.store.queue import Queue

Result = TypeVar("Result")


class Neo4jResource(dg.ConfigurableResource):
    """Opens Neo4j and the queue in it, as the variables NEO4J_… say.

    Without fields: Dagster lets a run config replace any field of a resource, so that an address
    could lead anywhere, and a password could be any variable of the environment.
    """

    @property
    def settings(self) -> Settings:
        """The settings in effect."""
        return load_settings()

    def run(self, work: Callable[[Driver, Settings], Awaitable[Result]]) -> Result:
        """Do ``work`` with a driver: the one bridge from Dagster's sync world.

        One driver per call, because an async driver belongs to the event loop that made it.
        """
        settings = self.settings

        async def main() -> Result:
            async with connected(wiring.connection(settings)) as driver:
                return await work(driver, settings)

        return asyncio.run(main())

    def with_queue(
        self,
        work: Callable[[Queue, Settings], Awaitable[Result]],
        *,
        operator: Operator | None = None,
    ) -> Result:
        """Do ``work`` with the queue; what it changes is recorded as done by ``operator``."""

        async def on_queue(driver: Driver, settings: Settings) -> Result:
            queue = wiring.queue_on(driver, settings)
            return await work(queue.acting_as(operator) if operator else queue, settings)

        return self.run(on_queue)


class EmbedderResource(dg.ConfigurableResource):
    """Opens the provider of the vectors, as the variables EMBEDDING_… and OPENAI_… say."""

    def open(self, settings: Settings) -> Embedder:
        """Open it; whoever opens it closes it."""
        return wiring.open_embedder(settings)


class NothingHandedOn(dg.ConfigurableIOManager):
    """Stands where Dagster's own would let a run config choose the folder for outputs.

    Ops and assets of this project hand nothing on: what they make is in Neo4j.
    """

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Refuse an output that would be lost."""
        if obj is not None:
            raise NotImplementedError(f"{context.step_key} has an output, and nothing keeps it")

    def load_input(self, context: dg.InputContext) -> Any:
        """Refuse to make up what nobody has kept."""
        raise NotImplementedError(f"{context.name} is asked for, and nothing has kept it")


def resources() -> dict[str, dg.ConfigurableResource | dg.ConfigurableIOManager]:
    """The resources by the names under which ops, sensors and Dagster itself ask for them."""
    return {
        "neo4j": Neo4jResource(),
        "embedder": EmbedderResource(),
        "io_manager": NothingHandedOn(),
    }
