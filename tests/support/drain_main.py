"""A drain in a process of its own.

``python -m tests.support.drain_main '{"jobs_per_request": 1}'``

Settings come from the environment, options of the drain from the argument (durations in seconds);
the report goes to standard output as JSON, with the ports that it talked to, and
the threads and connections that it has left.
"""

import asyncio
import json
import signal
import sys
import threading
import uuid
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psutil

from embed_pipeline.operations import wiring
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
        peers = {peer.raddr.port for peer in psutil.Process().net_connections("tcp") if peer.raddr}
    # A connection that was closed lets go of its socket in the next turn of the loop.
    await asyncio.sleep(0)
    left = {
        "peers": sorted(peers),
        "threads": [thread.name for thread in threading.enumerate() if not _is_of_the_loop(thread)],
        "sockets": len(psutil.Process().net_connections("tcp")),
    }
    sys.stdout.write(json.dumps(report.as_dict() | left) + "\n")


def _is_of_the_loop(thread: threading.Thread) -> bool:
    """Of asyncio's pool, which waits for the end of the process."""
    return thread.name.startswith("asyncio_")


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
