"""The local server for real: its own jars, its own Java, its own process."""

import io
import ipaddress
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import LiteralString

import psutil
import pytest
from neo4j import Driver, GraphDatabase, Record
from neo4j.exceptions import AuthError, ClientError, Neo4jError

from embed_pipeline.devserver.config import ALLOWED_PROCEDURES
from embed_pipeline.devserver.errors import LocalServerError
from embed_pipeline.devserver.jars import ensure_jars
from embed_pipeline.devserver.neo4j_server import Neo4jServer
from embed_pipeline.devserver.ports import free_port
from embed_pipeline.devserver.shell import shell
from tests.conftest import QUICK, SMALL
from tests.support.patience import PATIENCE_SECONDS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neo4jServer]:
    """A running server; a test that stops it starts it again."""
    # The name is not an easy one: APOC, Java and sh each have their own idea of spaces.
    home = tmp_path_factory.mktemp("server") / "my -- server's höme"
    server = Neo4jServer(home, bolt_port=free_port(), memory=SMALL, tuning=QUICK)
    try:
        server.start()
        server.wait_until_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[Neo4jServer]:
    """A server that was never started."""
    server = Neo4jServer(tmp_path / "home", bolt_port=free_port(), memory=SMALL, tuning=QUICK)
    yield server
    server.stop(timedelta(seconds=0))


def connect(server: Neo4jServer) -> Driver:
    return GraphDatabase.driver(server.uri, auth=(server.username, server.password))


def query(server: Neo4jServer, statement: LiteralString, database: str = "neo4j") -> list[Record]:
    with connect(server) as driver:
        return driver.execute_query(statement, database_=database).records


def wait_for(condition: Callable[[], object], *, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def run_python(program: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_status_tells_where_the_running_server_is(server: Neo4jServer):
    status = server.status()

    assert status.running
    assert status.uri == server.uri
    assert status.pid is not None
    assert psutil.pid_exists(status.pid)
    assert status.since is not None
    assert query(server, "CALL dbms.components() YIELD versions")[0]["versions"] == [status.version]


def test_wrong_password_is_refused(server: Neo4jServer):
    with (
        GraphDatabase.driver(server.uri, auth=("neo4j", "neo4j")) as driver,
        pytest.raises(AuthError),
    ):
        driver.verify_connectivity()


def test_nobody_gets_in_without_a_password(server: Neo4jServer):
    with GraphDatabase.driver(server.uri) as driver, pytest.raises(AuthError):
        driver.verify_connectivity()


def test_secrets_are_readable_by_this_user_only(server: Neo4jServer):
    assert stat.S_IMODE(server.home.stat().st_mode) == 0o700
    for name in ("password", "connection.json"):
        assert stat.S_IMODE((server.home / name).stat().st_mode) == 0o600


def test_password_is_not_on_the_command_line_nor_in_the_logs(server: Neo4jServer):
    pid = server.status().pid
    assert pid is not None

    assert server.password not in " ".join(psutil.Process(pid).cmdline())
    assert all(server.password not in path.read_text() for path in server.log_files)


def test_only_bolt_listens_and_only_on_loopback(server: Neo4jServer):
    pid = server.status().pid
    assert pid is not None

    connections = psutil.Process(pid).net_connections(kind="inet")
    listening = [c.laddr for c in connections if c.status == psutil.CONN_LISTEN]

    assert [port for _, port in listening] == [server.bolt_port]
    for address, _ in listening:
        ip = ipaddress.ip_address(address)
        assert (getattr(ip, "ipv4_mapped", None) or ip).is_loopback


def test_address_of_the_machine_in_the_network_is_not_served(server: Neo4jServer):
    addresses = [
        address.address
        for interface in psutil.net_if_addrs().values()
        for address in interface
        if address.family == socket.AF_INET and not address.address.startswith("127.")
    ]
    if not addresses:
        pytest.skip("this machine has no address but loopback")

    for address in addresses:
        with pytest.raises(OSError, match=r"refused|timed out"):
            socket.create_connection((address, server.bolt_port), timeout=2)


def test_apoc_of_the_lock_answers(server: Neo4jServer):
    [record] = query(server, "RETURN apoc.version() AS version")

    assert record["version"].startswith("5.26.")


def test_of_apoc_only_what_the_project_calls_is_loaded(server: Neo4jServer):
    procedures = query(server, "SHOW PROCEDURES YIELD name")
    functions = query(server, "SHOW USER DEFINED FUNCTIONS YIELD name")

    loaded = {record["name"] for record in (*procedures, *functions)}
    assert {name for name in loaded if name.startswith("apoc.")} == set(ALLOWED_PROCEDURES)


@pytest.mark.parametrize(
    "statement",
    [
        "CALL apoc.load.json('file:///etc/hosts')",
        "CALL apoc.load.json('http://127.0.0.1:1/')",
        "CALL apoc.cypher.runFile('x.cypher')",
        "CALL apoc.cypher.run('RETURN 1', {})",
        "CALL apoc.export.csv.all('all.csv', {})",
        "CALL apoc.periodic.submit('later', 'RETURN 1')",
        "CALL apoc.util.sleep(1)",
        "CALL apoc.trigger.add('t', 'RETURN 1', {})",
        "CALL dbms.setConfigValue('dbms.security.auth_enabled', 'false')",
        "RETURN apoc.convert.toJson([1])",
        "RETURN apoc.cypher.runFirstColumnSingle('RETURN 1', {})",
    ],
)
def test_what_the_project_does_not_call_is_not_there(server: Neo4jServer, statement: LiteralString):
    with pytest.raises(ClientError, match=r"no procedure with the name|Unknown function"):
        query(server, statement)


def test_apoc_works_in_batches(server: Neo4jServer):
    [record] = query(
        server,
        """
        CALL apoc.periodic.iterate(
          'UNWIND range(1, 100) AS i RETURN i', 'CREATE (:Batched {i: i})', {batchSize: 10})
        YIELD batches, failedBatches
        """,
    )

    assert (record["batches"], record["failedBatches"]) == (10, 0)


def test_a_new_trigger_works_within_seconds(server: Neo4jServer):
    query(
        server,
        """
        CALL apoc.trigger.install('neo4j', 'copy',
          'UNWIND $createdNodes AS n WITH n WHERE n:Original CREATE (:Copy)', {phase: 'before'})
        """,
        database="system",
    )

    def copies() -> int:
        query(server, "CREATE (:Original)")
        return query(server, "OPTIONAL MATCH (c:Copy) RETURN count(c) AS copies")[0]["copies"]

    wait_for(copies)
    query(server, "CALL apoc.trigger.drop('neo4j', 'copy')", database="system")


def test_files_of_the_machine_cannot_be_read_through_the_database(server: Neo4jServer):
    with pytest.raises(Exception, match="allow_csv_import_from_file_urls"):
        query(server, "LOAD CSV FROM 'file:///etc/hosts' AS line RETURN line")


@pytest.mark.parametrize("scheme", ["http", "ftp"])
def test_no_address_can_be_asked_through_the_database(server: Neo4jServer, scheme: str):
    with socket.create_server(("127.0.0.1", 0)) as listener, connect(server) as driver:
        address = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/"
        with pytest.raises(Neo4jError):
            driver.execute_query("LOAD CSV FROM $address AS line RETURN line", address=address)

        listener.settimeout(0)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_start_prints_no_warnings(server: Neo4jServer):
    log = (server.home / "logs" / "console.log").read_text()

    before_ready, ready, _ = log.partition("Started.")
    assert ready
    assert "WARN" not in before_ready.upper()


def test_shell_answers_what_is_piped_in(
    server: Neo4jServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    pipe = "RETURN 'a;b' AS first;\nRETRUN 1;\nRETURN 'never' AS last;"
    monkeypatch.setattr(sys, "stdin", io.StringIO(pipe))

    exit_code = shell(server.uri, (server.username, server.password))

    shown = capsys.readouterr().out
    assert exit_code == 1
    assert "a;b" in shown
    assert "Invalid input 'RETRUN'" in shown
    assert "never" not in shown


def test_starting_a_running_server_changes_nothing(server: Neo4jServer):
    before = server.status()

    assert Neo4jServer(server.home).start() is False

    assert server.status() == before


def test_running_server_is_not_moved_to_another_port_behind_its_back(server: Neo4jServer):
    with pytest.raises(LocalServerError, match="already runs at"):
        Neo4jServer(server.home, bolt_port=free_port()).start()


def test_stopped_and_started_on_another_port_it_has_its_data_and_password(server: Neo4jServer):
    query(server, "CREATE (:Kept {by: 'stop'})")
    password = server.password

    assert server.stop()
    assert not server.status().running
    server.bolt_port = free_port()
    assert server.start()
    server.wait_until_ready()

    assert len(query(server, "MATCH (k:Kept {by: 'stop'}) RETURN k")) == 1
    assert server.password == password
    assert json.loads((server.home / "connection.json").read_text())["uri"] == server.uri


def test_killed_server_starts_again_with_all_that_was_acknowledged(server: Neo4jServer):
    query(server, "CREATE (:Kept {by: 'kill'})")
    pid = server.status().pid
    assert pid is not None

    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not server.status().running)
    assert (server.home / "server.pid").exists(), "the crash leaves its pid file"
    assert server.start()
    server.wait_until_ready()

    assert len(query(server, "MATCH (k:Kept {by: 'kill'}) RETURN k")) == 1


START = """
    import sys
    from pathlib import Path
    from embed_pipeline.devserver.neo4j_server import Neo4jServer

    print(Neo4jServer(Path(sys.argv[1]), bolt_port=int(sys.argv[2])).start())
"""


def test_several_starts_at_once_make_one_server(new_server: Neo4jServer):
    starters = [run_python(START, new_server.home, new_server.bolt_port) for _ in range(4)]

    answers = [starter.communicate(timeout=PATIENCE_SECONDS)[0].strip() for starter in starters]

    assert sorted(answers) == ["False", "False", "False", "True"]
    home = f"--home-dir={new_server.home}"
    running = [p for p in psutil.process_iter(["cmdline"]) if home in (p.info["cmdline"] or [])]
    assert len(running) == 1


def test_first_start_that_is_killed_half_way_can_be_repeated(new_server: Neo4jServer):
    new_server.start()
    wait_for((new_server.home / "data" / "databases" / "system").exists)
    pid = new_server.status().pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not new_server.status().running)

    new_server.start()
    new_server.wait_until_ready()

    assert query(new_server, "RETURN 1 AS one")[0]["one"] == 1


TEMPORARY = """
    import sys
    from embed_pipeline.devserver.config import Memory
    from embed_pipeline.devserver.temporary import temporary_server

    with temporary_server(memory=Memory(heap="512m", pagecache="64m")) as server:
        print(server.status().pid, server.home, flush=True)
        sys.stdin.read()
"""


def test_temporary_server_is_gone_also_when_its_owner_is_killed():
    with run_python(TEMPORARY) as owner:
        assert owner.stdout is not None
        pid, home = owner.stdout.readline().split()
        assert psutil.pid_exists(int(pid))

        owner.kill()

        wait_for(lambda: not psutil.pid_exists(int(pid)))
        wait_for(lambda: not Path(home).exists())


def test_jars_that_are_in_place_are_not_fetched_again(server: Neo4jServer):
    def refuse(*_: object, **__: object) -> Path:
        pytest.fail("a jar was fetched")

    assert ensure_jars(fetch=refuse).is_dir()
