"""A real PostgreSQL from a wheel: no root, no package of the system."""

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def running_postgres() -> Iterator[str]:
    """A server with its defaults, on a socket; its address."""
    with warnings.catch_warnings():
        # Where there is no session of a desktop, it says so when it is imported.
        warnings.simplefilter("ignore")
        from pgserver.postgres_server import get_server
    with tempfile.TemporaryDirectory(prefix="embed-pipeline-postgres-") as folder:
        server = get_server(folder, cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()
