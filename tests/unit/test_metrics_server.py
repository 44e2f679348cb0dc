"""``metrics --serve``: no client holds it up, and many of them cost one reading."""

import socket
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from embed_pipeline import loopback_server, prometheus
from embed_pipeline.domain.errors import UnreachableError
from embed_pipeline.domain.health import Reading
from embed_pipeline.settings import Settings, load_settings
from tests.support.patience import PATIENCE_SECONDS

SCRAPES = 16


class Database:
    """Stands where Neo4j is; counts how often it is asked, and says no."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = threading.Event()
        self.may_answer.set()

    def read(self, _settings: Settings) -> Reading:
        self.asked += 1
        assert self.may_answer.wait(PATIENCE_SECONDS)
        raise UnreachableError("Cannot reach Neo4j")


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    database = Database()
    monkeypatch.setattr(prometheus, "read", database.read)
    return database


@pytest.fixture
def port(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    server, thread = prometheus.serve(load_settings(), port=0)
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def scrape(port: int) -> str:
    address = f"http://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(address, timeout=PATIENCE_SECONDS) as answer:
        return answer.read().decode()


def connection(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)


def is_hung_up(client: socket.socket) -> bool:
    """Wait for the end of a connection."""
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("sent", [b"", b"G", b"GET /metrics HTTP/1.1\r\nHost: x\r\n"])
def test_a_client_that_does_not_ask_holds_nobody_up_and_is_hung_up_on(
    port: int, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback_server, "REQUEST_SECONDS", 0.5)
    with connection(port) as silent:
        silent.sendall(sent)

        assert "embed_queue_up 0.0" in scrape(port)
        assert is_hung_up(silent)


def test_a_client_that_asks_byte_by_byte_is_hung_up_on(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback_server, "REQUEST_SECONDS", 0.5)
    with connection(port) as slow:
        slow.settimeout(0.05)
        for _ in range(200):
            try:
                slow.sendall(b"G")
                ended = slow.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                ended = True
            break
        else:
            ended = False

        assert ended


def test_no_more_clients_are_let_in_than_there_are_places(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = [connection(port) for _ in range(loopback_server.AT_ONCE)]
    try:
        with connection(port) as one_too_many:
            assert is_hung_up(one_too_many)
    finally:
        for client in clients:
            client.close()


def test_a_place_is_free_again_when_its_client_is_gone(port: int) -> None:
    for _ in range(2 * loopback_server.AT_ONCE):
        scrape(port)


def test_many_scrapes_at_once_are_one_reading(port: int, database: Database) -> None:
    database.may_answer.clear()
    with ThreadPoolExecutor(SCRAPES) as pool:
        answers = [pool.submit(scrape, port) for _ in range(SCRAPES)]
        database.may_answer.set()
        texts = {answer.result() for answer in answers}

    assert database.asked == 1
    assert len(texts) == 1


def test_a_later_scrape_is_another_reading(
    port: int, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    scrape(port)
    scrape(port)
    assert database.asked == 1

    monkeypatch.setattr(prometheus, "FRESH_SECONDS", 0)
    scrape(port)

    assert database.asked == 2
