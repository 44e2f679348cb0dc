"""What ops and sensors share; secrets are named here and never shown."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import dagster as dg
from pydantic import Field, SecretStr

from embed_pipeline import wiring
from embed_pipeline.domain.errors import EmbedPipelineError
from embed_pipeline.domain.ports import Embedder
from embed_pipeline.settings import Settings, load_settings
from embed_pipeline.store.connection import Driver, connected
from embed_pipeline.store.queue import Queue

Result = TypeVar("Result")

PASSWORD: Final = "NEO4J_PASSWORD"  # noqa: S105 - the name of a variable
API_KEY: Final = "OPENAI_API_KEY"


class Neo4jResource(dg.ConfigurableResource):
    """Opens Neo4j and the queue in it, as the settings say.

    Only the secret is a field: an address in a run config could lead anywhere.
    """

    password: str = Field(
        default="",
        description="A variable's name; empty for the bundled server, which has its own.",
    )

    @property
    def settings(self) -> Settings:
        """The settings in effect."""
        settings = load_settings()
        if not self.password:
            return settings
        return settings.model_copy(update={"own_neo4j_password": SecretStr(self.password)})

    def run(self, work: Callable[[Driver, Settings], Awaitable[Result]]) -> Result:
        """Do ``work`` with a driver: the one bridge from Dagster's sync world.

        One driver per call, because an async driver belongs to the event loop that made it.

        Raises:
            dagster.Failure: says in one sentence what is wrong and what to do.
        """
        settings = self.settings

        async def main() -> Result:
            async with connected(wiring.connection(settings)) as driver:
                return await work(driver, settings)

        try:
            return asyncio.run(main())
        except EmbedPipelineError as error:
            raise dg.Failure(str(error)) from None

    def with_queue(self, work: Callable[[Queue, Settings], Awaitable[Result]]) -> Result:
        """Do ``work`` with the queue."""
        return self.run(lambda driver, settings: work(wiring.queue_on(driver, settings), settings))


class EmbedderResource(dg.ConfigurableResource):
    """Opens the provider of the vectors."""

    api_key: str = Field(default="", description="A variable's name; empty if none is needed.")

    def open(self, settings: Settings) -> Embedder:
        """Open it; whoever opens it closes it."""
        if self.api_key:
            settings = settings.model_copy(update={"openai_api_key": SecretStr(self.api_key)})
        return wiring.open_embedder(settings)


def resources() -> dict[str, dg.ConfigurableResource]:
    """The resources by the names under which ops and sensors ask for them."""
    return {
        "neo4j": Neo4jResource(password=_secret(PASSWORD)),
        "embedder": EmbedderResource(api_key=_secret(API_KEY)),
    }


def _secret(variable: str) -> str:
    # A variable that stands only in .env, or that nobody needs, is left to the settings: Dagster
    # would fail every run for want of it.
    return dg.EnvVar(variable) if os.environ.get(variable) else ""
