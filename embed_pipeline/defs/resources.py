"""What ops and sensors share."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import dagster as dg

from embed_pipeline import wiring
from embed_pipeline.settings import Settings, load_settings
from embed_pipeline.store.connection import Driver, connected

Result = TypeVar("Result")


class Neo4jResource(dg.ConfigurableResource):
    """Opens Neo4j. Holds no password: it is read from the settings when a driver is opened."""

    uri: str
    database: str

    def run(self, work: Callable[[Driver, Settings], Awaitable[Result]]) -> Result:
        """Do ``work`` with a driver: the one bridge from Dagster's sync world.

        One driver per call, because an async driver belongs to the event loop that made it.
        """
        settings = load_settings()

        async def main() -> Result:
            async with connected(wiring.connection(settings)) as driver:
                return await work(driver, settings)

        return asyncio.run(main())
