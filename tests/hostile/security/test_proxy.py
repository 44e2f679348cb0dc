"""The example of a proxy in front of Dagster, run: who gets through and who does not."""

import base64
import http.client
import json
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from embed_pipeline.devserver.ports import answers, free_port
from tests.support.project import ROOT
from tests.support.serving import serving

EXAMPLE = ROOT / "deploy/nginx/dagster.conf"
PASSWORD = {"Authorization": "Basic " + base64.b64encode(b"ada:engine").decode()}
OPERATORS, VIEWERS = "dagster.example.org", "dagster-view.example.org"
OWN = {"Origin": f"https://{OPERATORS}"}
FOREIGN = {"Origin": "https://evil.example"}
ORDERS = ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

pytestmark = pytest.mark.skipif(
    not (shutil.which("nginx") and shutil.which("openssl")), reason="needs nginx and openssl"
)

TRUSTING = ssl.create_default_context()
TRUSTING.check_hostname = False
TRUSTING.verify_mode = ssl.CERT_NONE


async def obey(request: Request) -> Response:
    """Do as Dagster's web server does: answer whoever asks. Says what reached it."""
    return JSONResponse(dict(request.headers))


async def obey_through_a_socket(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text("accepted")
    await websocket.close()


DAGSTER = Starlette(
    routes=[
        WebSocketRoute("/graphql", obey_through_a_socket),
        Route("/{path:path}", obey, methods=["GET", "HEAD", *ORDERS]),
    ]
)


@dataclass
class Answer:
    """What came back; status 0 if the proxy hung up."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)
    """The headers of the request as they reached the web server."""


@dataclass
class Proxy:
    """nginx with the example; only addresses and paths are those of the test."""

    port: int

    def ask(self, method: str, path: str, headers: dict[str, str], host: str = OPERATORS) -> Answer:
        """Send one request, with a password unless the headers say otherwise."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=TRUSTING)
        try:
            connection.request(method, path, headers={"Host": host, **PASSWORD, **headers})
            response = connection.getresponse()
            body = response.read()
        except (ConnectionError, http.client.RemoteDisconnected):
            return Answer(0)
        finally:
            connection.close()
        is_ours = response.headers.get_content_type() == "application/json" and body
        return Answer(
            response.status,
            {name.lower(): value for name, value in response.getheaders()},
            json.loads(body) if is_ours else {},
        )

    def open_socket(self, headers: dict[str, str], host: str = OPERATORS) -> int:
        """Open a web socket and wait for its first message; the status of the answer."""
        plain = socket.create_connection(("127.0.0.1", self.port))
        try:
            with connect(
                f"wss://{host}/graphql",
                sock=plain,
                ssl=TRUSTING,
                additional_headers={**PASSWORD, **headers},
            ) as opened:
                assert opened.recv() == "accepted"
                return 101
        except InvalidStatus as refused:
            return refused.response.status_code
        finally:
            plain.close()


@pytest.fixture(scope="module")
def dagster() -> Iterator[int]:
    """The port of a real server for HTTP and web sockets."""
    port = free_port()
    with serving(DAGSTER, port):
        yield port


@pytest.fixture(scope="module")
def proxy(dagster: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    _make_secrets(folder)
    configuration = folder / "nginx.conf"
    configuration.write_text(_configuration(folder, port=port, upstream=dagster))
    command = ["nginx", "-p", str(folder), "-c", str(configuration), "-e", str(folder / "error")]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    nginx = subprocess.Popen(command)
    try:
        while not answers(port):
            assert nginx.poll() is None
            time.sleep(0.05)
        yield Proxy(port)
    finally:
        nginx.terminate()
        nginx.wait()


def _make_secrets(folder: Path) -> None:
    certificate = ["-out", str(folder / "cert.pem"), "-keyout", str(folder / "key.pem")]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x"]
    subprocess.run([*make, *certificate], check=True, capture_output=True)
    for name in ("operators", "viewers"):
        (folder / name).write_text("ada:{PLAIN}engine\n")


def _configuration(folder: Path, *, port: int, upstream: int) -> str:
    example = EXAMPLE.read_text().replace("/etc/nginx/dagster/", f"{folder}/")
    example = example.replace("listen 443", f"listen 127.0.0.1:{port}")
    for address in ("127.0.0.1:3000", "127.0.0.1:3001"):
        example = example.replace(address, f"127.0.0.1:{upstream}")
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return (
        f"daemon off; master_process off; pid {folder}/pid; events {{}}\n"
        f"http {{ access_log off; {temporary}\n{example}\n}}\n"
    )


@pytest.mark.parametrize("host", [OPERATORS, VIEWERS])
def test_people_with_a_password_see_and_use_the_ui(proxy: Proxy, host: str) -> None:
    own = {"Origin": f"https://{host}"}

    assert proxy.ask("GET", "/", {}, host).status == 200
    assert proxy.ask("GET", "/runs?q=tag", FOREIGN, host).status == 200
    assert proxy.ask("POST", "/graphql", own, host).status == 200
    assert proxy.open_socket(own, host) == 101


@pytest.mark.parametrize("host", [OPERATORS, VIEWERS])
def test_nobody_gets_in_without_a_password(proxy: Proxy, host: str) -> None:
    own, nobody = {"Origin": f"https://{host}"}, {"Authorization": "Basic bm9ib2R5Og=="}

    assert proxy.ask("GET", "/", nobody, host).status == 401
    assert proxy.ask("POST", "/graphql", {**own, **nobody}, host).status == 401
    assert proxy.open_socket({**own, **nobody}, host) == 401


def test_another_name_of_this_machine_gets_nothing(proxy: Proxy) -> None:
    assert proxy.ask("GET", "/", {}, "evil.example").status == 0


@pytest.mark.parametrize("path", ["/graphql", "/", "/anything"])
@pytest.mark.parametrize("method", ORDERS)
def test_an_order_from_a_page_of_another_site_is_refused(
    proxy: Proxy, method: str, path: str
) -> None:
    assert proxy.ask(method, path, OWN).status == 200
    assert proxy.ask(method, path, FOREIGN).status == 403
    assert proxy.ask(method, path, {"Origin": "null"}).status == 403
    assert proxy.ask(method, path, {}).status == 403


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        f"http://{OPERATORS}",
        f"https://{OPERATORS}.evil.example",
        f"https://evil.example/https://{OPERATORS}",
        f"https://{OPERATORS}:8443",
        f"https://{VIEWERS}",
        f"https://{OPERATORS} https://{OPERATORS}",
        "null",
    ],
)
def test_only_the_own_site_is_the_own_site(proxy: Proxy, origin: str) -> None:
    assert proxy.ask("POST", "/graphql", {"Origin": origin}).status == 403
    assert proxy.open_socket({"Origin": origin}) == 403


def test_a_socket_without_an_origin_is_refused(proxy: Proxy) -> None:
    assert proxy.open_socket({}) == 403


@pytest.mark.parametrize(
    "path",
    [
        "/graphql?query=mutation",
        "/%67raphql?query=mutation",
        "/x/../graphql?query=mutation",
        "/graphql/?query=mutation",
    ],
)
@pytest.mark.parametrize("host", [OPERATORS, VIEWERS])
def test_no_order_in_a_link(proxy: Proxy, host: str, path: str) -> None:
    assert proxy.ask("GET", path, {}, host).status == 405


def test_another_site_asks_nothing(proxy: Proxy) -> None:
    for site in ("cross-site", "same-site"):
        headers = {**OWN, "Sec-Fetch-Site": site}
        assert proxy.ask("POST", "/graphql", headers).status == 403


@pytest.mark.parametrize("kind", ["materialization", "check", "observation", "anything_new"])
@pytest.mark.parametrize("host", [OPERATORS, VIEWERS])
def test_nobody_reports_what_never_happened(proxy: Proxy, host: str, kind: str) -> None:
    own = {"Origin": f"https://{host}"}
    for method in ("GET", "POST"):
        answer = proxy.ask(method, f"/report_asset_{kind}/embed_queue_metrics", own, host)
        assert answer.status == 403


@pytest.mark.parametrize("host", [OPERATORS, VIEWERS])
@pytest.mark.parametrize("path", ["/", "/graphql", "/report_asset_check/x"])
def test_no_page_may_frame_it(proxy: Proxy, host: str, path: str) -> None:
    headers = proxy.ask("GET", path, {}, host).headers

    assert headers["x-frame-options"] == "DENY"
    assert headers["content-security-policy"] == "frame-ancestors 'none'"


@pytest.mark.parametrize("host", [OPERATORS, VIEWERS])
@pytest.mark.parametrize("path", ["/", "/graphql"])
def test_who_gives_an_order_is_who_logged_in(proxy: Proxy, host: str, path: str) -> None:
    pretended = {
        "Origin": f"https://{host}",
        "X-Forwarded-User": "root",
        "X_Forwarded_User": "root",
        "X-Remote-User": "root",
        "Remote-User": "root",
        "X-Auth-Request-User": "root",
        "X-Forwarded-Email": "root@example.org",
    }

    seen = proxy.ask("POST", path, pretended, host).seen

    assert seen["x-forwarded-user"] == "ada"
    assert "root" not in "".join(seen.values())
    assert "authorization" not in seen
