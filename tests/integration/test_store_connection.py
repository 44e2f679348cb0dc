"""What a person sees when the database cannot be used."""

import socket
from datetime import timedelta

import pytest
from neo4j.exceptions import ServiceUnavailable

from embed_pipeline.domain.errors import (
    ConfigurationError,
    CredentialsError,
    EmbedPipelineError,
    UnreachableError,
)
from embed_pipeline.store import connection
from embed_pipeline.store.connection import Connection, explain_connection_error, open_driver
from embed_pipeline.store.database import Database, fetch
from tests.conftest import TestServer

SECRET = "tr0ub4dor"


async def problem(to: Connection) -> EmbedPipelineError:
    try:
        async with (
            open_driver(to) as driver,
            driver.session(database=to.database) as session,
        ):
            await session.run("RETURN 1")
    except Exception as error:
        return explain_connection_error(error, to.uri)
    raise AssertionError("it works")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.parametrize("scheme", ["bolt", "neo4j", "bolt+s", "neo4j+ssc"])
async def test_nobody_listens(scheme: str) -> None:
    port = free_port()

    error = await problem(Connection(f"{scheme}://127.0.0.1:{port}", "neo4j", SECRET))

    assert isinstance(error, UnreachableError)
    assert f"127.0.0.1:{port}" in str(error)


async def test_an_open_port_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the ten seconds in which a driver gets a connection; here it has one."""
    assert connection.ACQUIRE_SECONDS == 10
    monkeypatch.setattr(connection, "ACQUIRE_SECONDS", 1.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        uri = f"bolt://127.0.0.1:{silent.getsockname()[1]}"

        error = await problem(Connection(uri, "neo4j", SECRET))

    assert isinstance(error, UnreachableError)


async def test_the_driver_does_not_sleep_on_while_the_store_would_repeat(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nowhere = Connection(f"bolt://127.0.0.1:{free_port()}", "neo4j", SECRET)

    async with open_driver(nowhere) as driver:
        database = Database(driver, patience=timedelta(0))
        with pytest.raises(ServiceUnavailable):
            await database.write(lambda tx: fetch(tx, "RETURN 1"))

    assert "will be retried in" not in caplog.text


async def test_a_wrong_password_is_not_retried(
    neo4j_server: TestServer, caplog: pytest.LogCaptureFixture
) -> None:
    error = await problem(Connection(neo4j_server.uri, neo4j_server.username, SECRET))

    assert isinstance(error, CredentialsError)
    assert "NEO4J_PASSWORD" in str(error)
    assert SECRET not in str(error)
    assert "will be retried in" not in caplog.text


async def test_tls_to_a_plain_port_is_explained(neo4j_server: TestServer) -> None:
    uri = neo4j_server.uri.replace("bolt://", "bolt+ssc://")

    error = await problem(Connection(uri, neo4j_server.username, neo4j_server.password))

    assert isinstance(error, UnreachableError)
    assert "TLS" in str(error)


async def test_an_unknown_database_is_named_as_such(neo4j_server: TestServer) -> None:
    server = neo4j_server

    error = await problem(Connection(server.uri, server.username, server.password, "nowhere"))

    assert isinstance(error, UnreachableError)
    assert "NEO4J_DATABASE" in str(error)


@pytest.mark.parametrize(
    "uri", ["", "localhost:7687", "http://localhost:7687", "bolt://", "bolt://h:0", "bolt://h:x"]
)
def test_what_cannot_be_an_address_is_refused_before_the_driver(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="bolt://"):
        open_driver(Connection(uri, "neo4j", SECRET))


def test_a_password_in_the_address_is_refused_and_not_shown() -> None:
    connection = Connection(f"bolt://neo4j:{SECRET}@localhost:7687", "neo4j", SECRET)

    with pytest.raises(ConfigurationError) as raised:
        open_driver(connection)

    assert SECRET not in str(raised.value)
    assert SECRET not in repr(Connection("bolt://localhost", "neo4j", SECRET))
