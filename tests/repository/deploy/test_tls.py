"""TLS in the examples: what reaches the libraries that talk to PostgreSQL and to Redis."""

import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from celery import Celery
from dagster._core.instance.config import dagster_instance_config
from dagster_postgres.utils import get_conn_string, pg_url_from_config
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from tests.repository.deploy.files import DOCKER, KUBERNETES, SYSTEMD, load
from tests.support.patience import PATIENCE_SECONDS
from tests.support.project import ROOT

SSL_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"
"""How a client of PostgreSQL asks for TLS, before it says anything else."""
DOCS = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")
[BROKER] = re.findall(r"celery_broker_url: (\S+)", DOCS)


class Listener:
    """Answers one client at a time in the place of a server, and keeps what it was sent."""

    def __init__(self, answer: bytes = b"", certificate: tuple[Path, Path] | None = None) -> None:
        self.heard: list[bytes] = []
        self._answer, self._certificate = answer, certificate
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            with client:
                client.settimeout(PATIENCE_SECONDS)
                self._hear(client)

    def _hear(self, client: socket.socket) -> None:
        if self._answer:
            self.heard.append(client.recv(1024))
            client.sendall(self._answer)
        try:
            if self._certificate is None:
                self.heard.append(client.recv(1024))
                return
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._certificate)
            with context.wrap_socket(client, server_side=True) as encrypted:
                self.heard.append(encrypted.recv(1024))
        except OSError:
            return

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@contextmanager
def listening(
    answer: bytes = b"", certificate: tuple[Path, Path] | None = None
) -> Iterator[Listener]:
    with closing(Listener(answer, certificate)) as listener:
        yield listener


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """One for localhost that nobody has signed."""
    if not shutil.which("openssl"):
        pytest.skip("needs openssl")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost"]
    command += ["-out", str(certificate), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def settings_of_systemd() -> dict[str, str]:
    lines = (SYSTEMD / "settings.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"(DAGSTER_PG|PG)", line))


def address(kind: str, port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """What Dagster gives to SQLAlchemy, with the settings of the units or of the chart."""
    if kind == "kubernetes":
        given = load(KUBERNETES / "values.yaml")["postgresql"]
        return get_conn_string(
            given["postgresqlUsername"],
            "pw",
            "localhost",
            given["postgresqlDatabase"],
            port=str(port),
            params=given["postgresqlParams"],
            scheme=given["postgresqlScheme"],
        )
    for name, value in settings_of_systemd().items():
        monkeypatch.setenv(name, value)
    (tmp_path / "dagster.yaml").write_text((DOCKER / "dagster.yaml").read_text())
    config, _ = dagster_instance_config(str(tmp_path))
    storage = config["storage"]["postgres"]
    named = {
        key: settings_of_systemd().get(value["env"], "pw") if isinstance(value, dict) else value
        for key, value in storage["postgres_db"].items()
    }
    return pg_url_from_config({"postgres_db": {**named, "hostname": "localhost", "port": port}})


def refusal(url: str) -> str:
    with pytest.raises(OperationalError) as refused, create_engine(url).connect():
        pass
    return str(refused.value)


@pytest.mark.parametrize("kind", ["systemd", "kubernetes"])
def test_postgres_without_tls_gets_no_password(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with listening(answer=b"N") as server:
        said = refusal(address(kind, server.port, monkeypatch, tmp_path))

    assert "server does not support SSL, but SSL was required" in said
    assert {heard for heard in server.heard if heard} == {SSL_REQUEST}


@pytest.mark.parametrize("kind", ["systemd", "kubernetes"])
def test_postgres_with_a_certificate_that_nobody_signed_gets_no_password(
    kind: str,
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    with listening(answer=b"S", certificate=certificate) as server:
        said = refusal(address(kind, server.port, monkeypatch, tmp_path))

    # Usually "certificate verify failed"; libpq has no reason if the server is gone first.
    assert "SSL error" in said
    assert {heard for heard in server.heard if heard} == {SSL_REQUEST}


def test_compose_talks_in_the_clear_only_inside_its_own_network() -> None:
    services = load(DOCKER / "compose.yaml")["services"]

    assert services["postgres"]["networks"] == ["private"]
    assert load(DOCKER / "compose.yaml")["networks"]["private"] == {"internal": True}
    for name in ("prepare", "code", "webserver", "daemon"):
        assert services[name]["environment"]["PGSSLMODE"] == "disable"


@pytest.mark.parametrize("part", ["broker", "results"])
def test_redis_with_a_certificate_that_nobody_signed_gets_no_password(
    part: str, certificate: tuple[Path, Path]
) -> None:
    with listening(certificate=certificate) as server:
        url = re.sub(r"@[^/]+/", f"@localhost:{server.port}/", BROKER)
        app = Celery(broker=url, backend=url)
        with app.connection_for_write() as broker:
            connect = {
                "broker": lambda: broker.ensure_connection(max_retries=1, interval_start=0),
                "results": app.backend.client.connection_pool.get_connection,
            }[part]
            with pytest.raises(Exception, match="certificate verify failed"):
                connect()

    assert not any(server.heard)
