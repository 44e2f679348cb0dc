"""Talks to a server of the Model Context Protocol over its standard input and output."""

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.patience import PATIENCE_SECONDS


@dataclass
class McpClient:
    """One server process; a request at a time."""

    process: "subprocess.Popen[str]"
    _requests: int = field(default=0)

    def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool; its answer is read as JSON where it is JSON."""
        result = self._ask("tools/call", {"name": tool, "arguments": arguments})
        text = "".join(part.get("text", "") for part in result["content"])
        assert not result.get("isError"), text
        try:
            return json.loads(text)
        except ValueError:
            return text

    def _start(self) -> None:
        version = {"protocolVersion": "2024-11-05", "capabilities": {}}
        self._ask("initialize", {**version, "clientInfo": {"name": "tests", "version": "1"}})
        self._send({"method": "notifications/initialized"})

    def _ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self._requests += 1
        self._send({"id": self._requests, "method": method, "params": params})
        # So that no test waits for ever for a server that does not answer.
        watch = threading.Timer(PATIENCE_SECONDS, self.process.kill)
        watch.start()
        try:
            for line in self.process.stdout or ():
                answer = _message(line)
                if answer.get("id") == self._requests:
                    assert "error" not in answer, answer["error"]
                    return answer["result"]
        finally:
            watch.cancel()
        raise AssertionError(f"the server ended without an answer to {method}")

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()


def _message(line: str) -> dict[str, Any]:
    try:
        return json.loads(line)
    except ValueError:
        # Some print to their standard output what belongs into a log.
        return {}


@contextmanager
def mcp_server(command: list[str], environment: Mapping[str, str]) -> Iterator[McpClient]:
    """Start a server, and end it with the block."""
    process = subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        client = McpClient(process)
        client._start()
        yield client
    finally:
        process.kill()
        process.communicate()
