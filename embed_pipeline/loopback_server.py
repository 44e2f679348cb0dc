"""An HTTP server on this machine that no client can hold up: for ``metrics --serve``."""

import socket
import sys
import threading
from collections.abc import Callable
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

LOOPBACK: Final = "127.0.0.1"
REQUEST_SECONDS: Final = 10.0
"""Within which a request must have arrived, and between two bytes of the answer."""
AT_ONCE: Final = 32
"""Connections; further ones are closed at once."""


class _Handler(WSGIRequestHandler):
    """Closes a connection whose request does not arrive in time.

    A timeout of the socket alone begins anew with every byte.
    """

    timeout = REQUEST_SECONDS

    def setup(self) -> None:
        super().setup()
        self._too_late = threading.Timer(REQUEST_SECONDS, self._hang_up)
        self._too_late.daemon = True
        self._too_late.start()

    def parse_request(self) -> bool:
        """Parse the request; from here on no time limit applies."""
        try:
            return super().parse_request()
        finally:
            self._too_late.cancel()

    def finish(self) -> None:
        self._too_late.cancel()
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Log nothing about scrapes."""

    def _hang_up(self) -> None:
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


class LoopbackServer(ThreadingMixIn, WSGIServer):
    """A thread for each of a bounded number of connections."""

    daemon_threads = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._places = threading.BoundedSemaphore(AT_ONCE)
        super().__init__(*args, **kwargs)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a new thread, or close the connection if there are too many."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and free the place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that went away or never asked."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def serve_on_loopback(
    app: Callable[..., Any], *, port: int
) -> tuple[LoopbackServer, threading.Thread]:
    """Serve in a thread until ``shutdown`` is called."""
    server = make_server(LOOPBACK, port, app, LoopbackServer, handler_class=_Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    return server, thread
