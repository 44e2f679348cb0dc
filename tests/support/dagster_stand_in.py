"""A cheap program in the place of Dagster: ``python -m tests.support.dagster_stand_in 3000``.

It listens, says that its code location is loaded, and has a daemon in a process of its own.
"""

import http.server
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

LOADED = {"loadStatus": "LOADED", "locationOrLoadError": {"__typename": "RepositoryLocation"}}
ANSWER = {"data": {"workspaceOrError": {"locationEntries": [LOADED]}}}
STUBBORN = "STAND_IN_IS_STUBBORN"
"""Set it for one that does not end when it is interrupted."""
NOISY = "STAND_IN_IS_NOISY"
"""Set it for one that warns without end."""
FAREWELL = "farewell"
"""The file that an orderly end leaves in the home of Dagster."""


class Locations(http.server.BaseHTTPRequestHandler):
    """Answers what ``embed-pipeline dev`` asks."""

    def do_POST(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(ANSWER).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Say nothing."""


def serve(port: int) -> None:
    """Serve until interrupted."""
    if STUBBORN in os.environ:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    with subprocess.Popen(["sleep", "600"]):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Locations)
        server.timeout = 0.01
        try:
            while True:
                server.handle_request()
                if NOISY in os.environ:
                    sys.stdout.write("WARNING nobody reads this\n" * 100)
                    sys.stdout.flush()
        except KeyboardInterrupt:
            Path(FAREWELL).touch()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
