"""What all tests share: a real Neo4j, and an environment without the developer's settings."""

import os
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis
import pytest

from embed_pipeline.devserver.config import Memory, Tuning
from embed_pipeline.devserver.jar_lock import read_lock
from embed_pipeline.devserver.temporary import temporary_server
from embed_pipeline.store.connection import Connection, open_driver
from tests.support.queue_harness import Neo4jUnderTest

OWN_PREFIXES = ("EMBED_", "EMBEDDING_", "NEO4J_", "OPENAI_", "DAGSTER_HOME")
TEST_SERVER = "NEO4J_TEST_"
SMALL = Memory(heap="512m", pagecache="64m")
QUICK = Tuning(
    java_options=(
        "-XX:TieredStopAtLevel=1",
        "-XX:ReservedCodeCacheSize=256m",
        "-XX:-UseG1GC",
        "-XX:+UseSerialGC",
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:-BytecodeVerificationRemote",
    ),
    settings={"dbms.cypher.min_replan_interval": "1h"},
)
"""A server of the tests lives too short for the optimizing compiler to pay: start and 198 tests
took 61 s of CPU instead of 108; with the collector that has no threads of its own 52. Its start
takes 6.1 s of CPU, and 5.0 s if the classes of its jars are not verified.
Without that compiler Java reserves 48 MB for compiled code; half the suite fills it, and then
queries fail with ``NoSuchMethodException: MethodHandle.linkToVirtual``.
Three fifths of what is left is planning; so plans are kept while tests empty and fill the graph."""
LOCK_2026 = Path(__file__).with_name("neo4j-2026.lock.toml")


def pytest_configure() -> None:
    """Hear signals, also if a script started the tests in the background.

    Its shell lets them ignore Ctrl-C, and Dagster lets SIGTERM mean the same: the processes that
    show the logs of a run would inherit that and never end.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Whoever starts the tests with nohup means them, not what they start.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # A busy machine is no fault of what is tested.
    patient = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
    hypothesis.settings.register_profile("patient", hypothesis.settings.default, **patient)
    hypothesis.settings.load_profile("patient")


@dataclass(frozen=True)
class TestServer:
    """The Neo4j that the tests talk to; its data is theirs to delete."""

    __test__ = False

    uri: str
    username: str
    password: str = field(repr=False)
    database: str = "neo4j"

    @property
    def connection(self) -> Connection:
        """What the store needs to open a driver."""
        return Connection(self.uri, self.username, self.password, self.database)

    @property
    def environment(self) -> dict[str, str]:
        """The settings that lead to this server."""
        return {
            "NEO4J_URI": self.uri,
            "NEO4J_USERNAME": self.username,
            "NEO4J_PASSWORD": self.password,
            "NEO4J_DATABASE": self.database,
            "EMBED_ALLOW_PLAINTEXT_BOLT": "true",
        }


@pytest.fixture(scope="session")
def neo4j_server() -> Iterator[TestServer]:
    """One server for the whole session: NEO4J_TEST_URI if set, else the bundled one."""
    if uri := os.environ.get("NEO4J_TEST_URI"):
        yield TestServer(
            uri=uri,
            username=os.environ.get("NEO4J_TEST_USERNAME", "neo4j"),
            password=os.environ.get("NEO4J_TEST_PASSWORD", ""),
            database=os.environ.get("NEO4J_TEST_DATABASE", "neo4j"),
        )
        return
    with temporary_server(tuning=QUICK) as server:
        yield TestServer(uri=server.uri, username=server.username, password=server.password)


@pytest.fixture(scope="session")
def neo4j_2026_server() -> Iterator[TestServer]:
    """The current Neo4j, and without APOC; only started for tests that ask for it."""
    lock = read_lock(LOCK_2026)
    with temporary_server(lock=lock, memory=SMALL, tuning=QUICK) as server:
        yield TestServer(uri=server.uri, username=server.username, password=server.password)


@pytest.fixture
async def queue(neo4j_server: TestServer) -> AsyncIterator[Neo4jUnderTest]:
    """A real queue, empty at the start of every test."""
    async with open_driver(neo4j_server.connection) as driver:
        real = Neo4jUnderTest(driver, neo4j_server.database)
        await real.wipe()
        yield real


@pytest.fixture(autouse=True)
def _no_settings_of_the_developer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let no variable and no .env of this machine decide what a test sees."""
    for name in list(os.environ):
        if name.startswith(OWN_PREFIXES) and not name.startswith(TEST_SERVER):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
