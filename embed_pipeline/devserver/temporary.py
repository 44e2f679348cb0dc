"""A server for the length of a ``with`` block: for tests, examples and benchmarks."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from embed_pipeline.devserver.config import Memory, Tuning
from embed_pipeline.devserver.jar_lock import JarLock
from embed_pipeline.devserver.jars import OnProgress
from embed_pipeline.devserver.neo4j_server import Neo4jServer
from embed_pipeline.devserver.ports import free_port

WATCH: Final = """
cat > /dev/null
kill "$1" 2> /dev/null
while kill -0 "$1" 2> /dev/null; do sleep 0.2; done
rm -rf "$2"
"""
"""End server ``$1`` and remove its home ``$2`` when the holder of our stdin is gone.

The kernel closes a pipe however its holder ends. Without this a killed test run would leave a
server of more than a gigabyte behind, each time.
"""
PATIENCE: Final = timedelta(minutes=10)
"""Longer than for an interactive server: a machine that runs tests may be very busy."""


@contextmanager
def temporary_server(
    *,
    memory: Memory | None = None,
    cache: Path | None = None,
    tuning: Tuning | None = None,
    lock: JarLock | None = None,
    on_progress: OnProgress | None = None,
) -> Iterator[Neo4jServer]:
    """Run a server on a free port in a temporary home; both are gone afterwards.

    Also when this process is killed. As a pytest fixture::

        @pytest.fixture(scope="session")
        def neo4j_server() -> Iterator[Neo4jServer]:
            with temporary_server() as server:
                yield server

    Raises:
        LocalServerError: the server cannot be started.
    """
    home = Path(tempfile.mkdtemp(prefix="embed-pipeline-neo4j-"))
    server = Neo4jServer(
        home,
        bolt_port=free_port(),
        memory=memory,
        cache=cache,
        tuning=tuning,
        lock=lock,
    )
    try:
        server.start(on_progress)
        with _ends_with_us(server):
            server.wait_until_ready(PATIENCE)
            yield server
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _ends_with_us(server: Neo4jServer) -> Iterator[None]:
    command = ["/bin/sh", "-c", WATCH, "sh", str(server.status().pid), server.home]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as watcher:
        try:
            yield
        finally:
            # Before the pipe closes: this end is an orderly one.
            watcher.kill()
