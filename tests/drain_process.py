"""A drain in a process of its own: ``python -m tests.drain_process '{"jobs_per_request": 1}'``.

Settings come from the environment, options of the drain from the argument (durations in seconds);
the report goes to standard output as JSON.
"""

import asyncio
import json
import signal
import sys
import uuid
from dataclasses import replace
from datetime import timedelta
from typing import Any

from embed_pipeline import wiring
from embed_pipeline.settings import load_settings


def as_option(value: Any) -> Any:
    return timedelta(seconds=value) if isinstance(value, float) else value


async def main(options: dict[str, Any]) -> None:
    settings = load_settings()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    chosen = {name: as_option(value) for name, value in options.items()}
    async with wiring.opened_drain(
        settings,
        wiring.open_embedder(settings),
        owner=wiring.owner_of(str(uuid.uuid4())),
        options=replace(wiring.drain_options(settings), **chosen),
        stop=stop,
    ) as (_, drain):
        report = await drain.run()
    sys.stdout.write(json.dumps(report.as_dict()) + "\n")


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
