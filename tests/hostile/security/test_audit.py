"""``make audit``: holes are found, and what was not looked up is not called safe."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from embed_pipeline.devserver.ports import free_port
from tests.support.project import ROOT

HOLE = {
    "id": "PYSEC-2026-1",
    "summary": "a hole",
    "aliases": [],
    "affected": [
        {
            "package": {"name": "jinja2", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99.0"}]}],
        }
    ],
}


def audit(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts/audit.py"), "--osv-url", url, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@contextmanager
def osv(answer: Callable[[str], Any], *, status: int = 200) -> Iterator[str]:
    """Stand where the service is that knows the holes; ``answer`` is given a package's name."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(answer(asked["package"]["name"])).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_every_locked_package_is_asked_for_and_none_has_a_hole() -> None:
    asked: set[str] = set()
    with osv(lambda name: asked.add(name) or {}) as url:
        result = audit(url)

    assert result.returncode == 0, result.stderr
    assert f"{len(asked)} packages of requirements.lock" in result.stdout
    assert {"dagster", "neo4j", "openai", "pip-audit", "uv"} <= asked


def test_a_known_hole_is_named_with_the_version_that_mends_it() -> None:
    with osv(lambda name: {"vulns": [HOLE]} if name == "jinja2" else {}) as url:
        result = audit(url)

    assert result.returncode == 1
    assert "PYSEC-2026-1, mended in 99.0" in result.stdout


def test_a_hole_can_be_accepted_by_its_number() -> None:
    with osv(lambda name: {"vulns": [HOLE]} if name == "jinja2" else {}) as url:
        result = audit(url, "--ignore-vuln", "PYSEC-2026-1")

    assert result.returncode == 0, result.stdout


def test_without_a_network_nothing_is_called_safe() -> None:
    result = audit(f"http://127.0.0.1:{free_port()}/")

    assert result.returncode == 2
    assert "Not checked: everything in requirements.lock" in result.stderr
    assert "✓" not in result.stdout


def test_a_service_that_fails_calls_nothing_safe() -> None:
    with osv(lambda _: {}, status=500) as url:
        result = audit(url)

    assert result.returncode == 2
    assert "✓" not in result.stdout
