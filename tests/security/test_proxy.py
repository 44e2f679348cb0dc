"""The example of a proxy in front of Dagster, run: who gets through and who does not."""

import base64
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from embed_pipeline.local.ports import answers, free_port
from tests.project import ROOT

EXAMPLE = ROOT / "deploy/nginx/dagster.conf"
PASSWORD = {"Authorization": "Basic " + base64.b64encode(b"ada:engine").decode()}
HOST = {"Host": "dagster.example.org"}

pytestmark = pytest.mark.skipif(
    not (shutil.which("nginx") and shutil.which("openssl")), reason="needs nginx and openssl"
)


class Dagster(BaseHTTPRequestHandler):
    """Stands where the web server is; does everything it is told."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        pass


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of nginx with the example; only addresses and paths are those of the test."""
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), Dagster)
    thread = Thread(target=upstream.serve_forever)
    thread.start()
    _make_secrets(folder)
    configuration = folder / "nginx.conf"
    configuration.write_text(_configuration(folder, port=port, upstream=upstream.server_port))
    command = ["nginx", "-p", str(folder), "-c", str(configuration), "-e", str(folder / "error")]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    nginx = subprocess.Popen(command)
    try:
        while not answers(port):
            assert nginx.poll() is None
            time.sleep(0.05)
        yield port
    finally:
        nginx.terminate()
        nginx.wait()
        upstream.shutdown()
        upstream.server_close()
        thread.join()


def _make_secrets(folder: Path) -> None:
    certificate = ["-out", str(folder / "cert.pem"), "-keyout", str(folder / "key.pem")]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x"]
    subprocess.run([*make, *certificate], check=True, capture_output=True)
    for name in ("operators", "viewers"):
        (folder / name).write_text("ada:{PLAIN}engine\n")


def _configuration(folder: Path, *, port: int, upstream: int) -> str:
    example = EXAMPLE.read_text().replace("/etc/nginx/dagster/", f"{folder}/")
    example = example.replace("listen 443", f"listen 127.0.0.1:{port}")
    example = example.replace("127.0.0.1:3000", f"127.0.0.1:{upstream}")
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return (
        f"daemon off; master_process off; pid {folder}/pid; events {{}}\n"
        f"http {{ access_log off; {temporary}\n{example}\n}}\n"
    )


def status(port: int, path: str, headers: dict[str, str], body: bytes | None = None) -> int:
    """What the proxy answers; 0 if it hangs up."""
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", body, headers)
    try:
        with urllib.request.urlopen(request, context=trusting) as response:
            return response.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except (urllib.error.URLError, ConnectionError):
        return 0


@pytest.mark.parametrize(
    ("path", "headers", "body", "expected"),
    [
        pytest.param("/", {**HOST, **PASSWORD}, None, 200, id="an operator sees the UI"),
        pytest.param("/graphql", {**HOST, **PASSWORD}, b"{}", 200, id="the UI asks"),
        pytest.param("/", HOST, None, 401, id="nobody without a password"),
        pytest.param("/graphql", HOST, b"{}", 401, id="no question without a password"),
        pytest.param(
            "/graphql?query=mutation", {**HOST, **PASSWORD}, None, 405, id="no order in a link"
        ),
        pytest.param(
            "/graphql",
            {**HOST, **PASSWORD, "Sec-Fetch-Site": "cross-site"},
            b"{}",
            403,
            id="no order from another site",
        ),
        pytest.param("/", {**PASSWORD, "Host": "evil.example"}, None, 0, id="no other name"),
    ],
)
def test_the_example_lets_through_who_may(
    proxy: int, path: str, headers: dict[str, str], body: bytes | None, expected: int
) -> None:
    assert status(proxy, path, headers, body) == expected
