"""Submits and collects a batch in a process that kills itself after a step.

``python -m tests.support.batch_main '{"step": "CREATED", "uri": …}'``
"""

import asyncio
import json
import sys

from embed_pipeline.store.connection import Connection, open_driver
from embed_pipeline.worker.batch_parts import Step
from tests.support.batch_harness import Batching, killed_after


async def main(given: dict[str, str]) -> None:
    connection = Connection(given["uri"], given["username"], given["password"], given["database"])
    async with open_driver(connection) as driver:
        batching = Batching(driver, given["database"], given["base_url"])
        passed = killed_after(Step[given["step"]])
        await batching.submit(passed)
        await batching.tend(passed)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
