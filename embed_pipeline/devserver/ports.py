"""Which port is free, and what to do about one that is not."""

import socket
from typing import NamedTuple

from embed_pipeline.devserver.config import HOST
from embed_pipeline.devserver.errors import LocalServerError

CHOOSE_ANOTHER = (
    "Stop the other program, or choose another port for Neo4j: EMBED_PIPELINE_BOLT_PORT=7688 make "
    "dev (or --bolt-port 7688).\n"
    "If it is a Neo4j of your own: set NEO4J_URI and NEO4J_PASSWORD in .env to use that one."
)


class Listener(NamedTuple):
    """A program that holds a port."""

    pid: int
    name: str


def check_port(port: int, *, advice: str = CHOOSE_ANOTHER) -> None:
    """Make sure that a server can listen on ``port``.

    Raises:
        LocalServerError: another process does, or it is not allowed.
    """
    # Asking first: on macOS a bind to 127.0.0.1 succeeds beside a listener on all addresses.
    if answers(port):
        listener = listener_on(port)
        who = f"{listener.name} (pid {listener.pid})" if listener else "another program"
        raise LocalServerError(f"port {port} is taken: {who} listens there.\n{advice}")
    try:
        with socket.socket() as probe:
            # As Neo4j does; otherwise connections of the last run, still closing, count as taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise LocalServerError(f"port {port} cannot be used: {reason}\n{advice}") from error


def listener_on(port: int) -> Listener | None:
    """The process that listens on ``port``; None if there is none or it is not visible to us."""
    import psutil

    try:
        for connection in psutil.net_connections(kind="tcp"):
            is_listening = connection.status == psutil.CONN_LISTEN
            if connection.pid and is_listening and connection.laddr[1:] == (port,):
                return Listener(connection.pid, psutil.Process(connection.pid).name())
    except psutil.Error:
        pass
    return None


def answers(port: int) -> bool:
    """Say whether anything accepts connections on ``port`` of this machine."""
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except (OSError, OverflowError):
        return False


def free_port() -> int:
    """A port that is free at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]
