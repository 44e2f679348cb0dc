"""The local server before it runs: what can be wrong, and how it is said."""

import json
import os
import re
import socket
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from embed_pipeline.devserver import process
from embed_pipeline.devserver.config import Memory, home_argument, write_config
from embed_pipeline.devserver.errors import LocalServerError
from embed_pipeline.devserver.files import write_private
from embed_pipeline.devserver.home import ServerHome
from embed_pipeline.devserver.java import check_java
from embed_pipeline.devserver.neo4j_server import Neo4jServer
from embed_pipeline.devserver.ports import check_port, free_port
from embed_pipeline.devserver.shell import statements
from tests.support.project import ROOT

SLEEP = "import sys, time; print('ready', flush=True); time.sleep(600)"


@pytest.fixture
def home(tmp_path: Path) -> ServerHome:
    home = ServerHome(tmp_path / "home")
    home.create()
    return home


@pytest.fixture
def stranger():
    """A process that has nothing to do with Neo4j."""
    with subprocess.Popen([sys.executable, "-c", SLEEP], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        yield running
        running.kill()


@pytest.fixture
def taken_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "java"
    program.write_text(f'#!/bin/sh\necho "    java.specification.version = {version}" >&2\n')
    program.chmod(0o755)
    return program


def test_server_that_was_never_started_is_not_running_and_leaves_no_trace(tmp_path: Path):
    server = Neo4jServer(tmp_path / "home")

    assert not server.status().running
    assert server.stop() is False
    assert not server.home.exists()


@pytest.mark.parametrize("content", ["", "not a number", "999999999", "-1"])
def test_stale_pid_file_does_not_count(home: ServerHome, content: str):
    home.pid_file.write_text(content)

    assert not Neo4jServer(home.folder).status().running


def test_pid_that_now_belongs_to_a_stranger_does_not_count_and_is_not_stopped(
    home: ServerHome, stranger: subprocess.Popen[bytes]
):
    home.pid_file.write_text(str(stranger.pid))
    server = Neo4jServer(home.folder)

    assert not server.status().running
    assert server.stop() is False
    assert stranger.poll() is None
    assert not home.pid_file.exists()


def test_server_of_another_home_is_a_stranger(tmp_path: Path):
    pid_file = tmp_path / "pid"
    pid = process.launch(
        [sys.executable, "-c", SLEEP, home_argument(tmp_path / "a")],
        pid_file=pid_file,
        output=tmp_path / "log",
        folder=tmp_path,
        env=os.environ,
    )
    try:
        assert process.find(pid_file, argument=home_argument(tmp_path / "a")) == pid
        assert process.find(pid_file, argument=home_argument(tmp_path / "b")) is None
    finally:
        process.end(pid, argument=home_argument(tmp_path / "a"), patience=timedelta(seconds=10))


def test_launched_process_is_not_our_child_and_hears_no_ctrl_c(tmp_path: Path):
    program = "import os, sys; print(os.getsid(0), os.getppid(), flush=True); sys.stdin.read()"
    process.launch(
        [sys.executable, "-c", program],
        pid_file=tmp_path / "pid",
        output=tmp_path / "log",
        folder=tmp_path,
        env=os.environ,
    )
    while not (line := (tmp_path / "log").read_text()).endswith("\n"):
        pass

    session, _parent = map(int, line.split())
    assert session != os.getsid(0)
    with pytest.raises(ChildProcessError):
        os.waitpid(process.read_pid(tmp_path / "pid") or 0, os.WNOHANG)


def test_process_that_ignores_the_request_to_end_is_killed(tmp_path: Path):
    deaf = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True);"
        + SLEEP
    )
    argument = home_argument(tmp_path)
    pid = process.launch(
        [sys.executable, "-c", deaf, argument],
        pid_file=tmp_path / "pid",
        output=tmp_path / "log",
        folder=tmp_path,
        env=os.environ,
    )
    while "ready" not in (tmp_path / "log").read_text():
        pass

    ended_by_itself = process.end(pid, argument=argument, patience=timedelta(seconds=0.2))

    assert ended_by_itself is False
    assert process.find(tmp_path / "pid", argument=argument) is None


def test_port_of_another_program_is_named_before_anything_is_downloaded(
    tmp_path: Path, taken_port: int
):
    server = Neo4jServer(tmp_path / "home", bolt_port=taken_port, cache=tmp_path / "cache")

    with pytest.raises(LocalServerError, match=f"port {taken_port} is taken") as error:
        server.start()

    assert "--bolt-port" in str(error.value)
    assert not (tmp_path / "cache").exists()
    assert not (server.home / "connection.json").exists()


def test_port_bound_without_listening_is_refused_too():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))

        with pytest.raises(LocalServerError, match="cannot be used"):
            check_port(holder.getsockname()[1])


@pytest.mark.parametrize("port", [70000, -1])
def test_impossible_port_is_a_clear_message(port: int):
    with pytest.raises(LocalServerError, match=f"port {port} cannot be used"):
        check_port(port)


@pytest.mark.parametrize("version", ["17", "21"])
def test_suitable_java_is_accepted(tmp_path: Path, version: str):
    check_java(fake_java(tmp_path, version))


@pytest.mark.parametrize("version", ["1.8", "11", "25"])
def test_unsuitable_java_is_named_with_what_to_do(tmp_path: Path, version: str):
    java = fake_java(tmp_path, version)
    server = Neo4jServer(
        tmp_path / "home", bolt_port=free_port(), java=java, cache=tmp_path / "cache"
    )

    with pytest.raises(LocalServerError, match="Neo4j needs 17 or 21") as error:
        server.start()

    assert "pip install" in str(error.value)
    assert not (tmp_path / "cache").exists()


def test_java_that_does_not_run_is_a_clear_message(tmp_path: Path):
    with pytest.raises(LocalServerError, match="Java does not run on this machine"):
        check_java(tmp_path / "nowhere" / "java")


def test_waiting_for_a_server_that_died_ends_at_once_with_the_end_of_its_log(home: ServerHome):
    home.console_log.write_text("one\nError: could not open the store\n")

    with pytest.raises(LocalServerError, match="could not open the store"):
        Neo4jServer(home.folder).wait_until_ready(timedelta(minutes=5))


def test_home_is_closed_to_other_users_whatever_the_umask(tmp_path: Path):
    before = os.umask(0)
    try:
        home = ServerHome(tmp_path / "home")
        home.create()
        write_private(home.password_file, "secret\n")
        home.write_connection("bolt://127.0.0.1:1")
    finally:
        os.umask(before)

    assert stat.S_IMODE(home.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(home.password_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.connection_file.stat().st_mode) == 0o600


def test_connection_file_tells_the_rest_of_the_project_all_it_needs(home: ServerHome):
    write_private(home.password_file, "secret\n")

    home.write_connection("bolt://127.0.0.1:17687")

    assert json.loads(home.connection_file.read_text()) == {
        "uri": "bolt://127.0.0.1:17687",
        "username": "neo4j",
        "password": "secret",
        "database": "neo4j",
    }
    assert Neo4jServer(home.folder).bolt_port == 17687


@pytest.mark.parametrize("content", ["", "[]", "{", '{"uri": "bolt://h:x"}'])
def test_broken_connection_file_means_the_default_port(home: ServerHome, content: str):
    home.connection_file.write_text(content)

    assert Neo4jServer(home.folder).uri == "bolt://127.0.0.1:7687"


def test_lost_password_of_a_database_with_data_is_not_replaced(home: ServerHome, tmp_path: Path):
    (home.folder / "data" / "databases" / "system").mkdir(parents=True)

    with pytest.raises(LocalServerError, match="password is missing"):
        home.ensure_password(java=tmp_path / "java", jars=tmp_path)

    assert not home.password_file.exists()


def test_first_start_killed_after_the_password_keeps_that_password(
    home: ServerHome, tmp_path: Path
):
    write_private(home.password_file, "secret\n")
    auth_file = home.folder / "data" / "dbms" / "auth.ini"
    auth_file.parent.mkdir(parents=True)
    auth_file.write_text("neo4j:SHA-256,…\n")

    home.ensure_password(java=tmp_path / "no-java-needed", jars=tmp_path)

    assert home.read_password() == "secret"


def test_what_a_killed_start_left_is_removed(home: ServerHome, tmp_path: Path):
    write_private(home.password_file, "secret\n")
    (home.folder / "data" / "databases" / "system").mkdir(parents=True)
    (home.folder / ".first-start-x").mkdir()
    (home.folder / ".password-x").touch()

    home.ensure_password(java=tmp_path / "no-java-needed", jars=tmp_path)

    assert {path.name for path in home.folder.iterdir()} == {"data", "logs", "password"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_home_that_cannot_be_written_is_a_clear_message(tmp_path: Path):
    tmp_path.chmod(0o500)

    with pytest.raises(LocalServerError, match="cannot create"):
        Neo4jServer(tmp_path / "home").start()


def test_home_that_is_a_file_is_a_clear_message(tmp_path: Path):
    (tmp_path / "home").touch()

    with pytest.raises(LocalServerError, match="cannot create"):
        Neo4jServer(tmp_path / "home").start()


def test_failing_admin_tool_is_a_clear_message_and_leaves_nothing(home: ServerHome, tmp_path: Path):
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho no such class >&2\nexit 1\n")
    java.chmod(0o755)

    with pytest.raises(LocalServerError, match="no such class"):
        home.ensure_password(java=java, jars=tmp_path)

    assert not list(home.folder.glob(".first-start-*"))
    assert not (home.folder / "data" / "dbms" / "auth.ini").exists()


def test_configuration_closes_everything_but_bolt_on_this_machine(tmp_path: Path):
    write_config(tmp_path, jars=tmp_path / "jars", bolt_port=17687, memory=Memory(heap="2g"))

    lines = (tmp_path / "conf" / "neo4j.conf").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert settings["server.bolt.listen_address"] == "127.0.0.1:17687"
    assert settings["server.http.enabled"] == "false"
    assert settings["server.https.enabled"] == "false"
    assert settings["dbms.security.auth_enabled"] == "true"
    assert settings["server.memory.heap.max_size"] == "2g"
    assert settings["dbms.security.procedures.unrestricted"] == "apoc.trigger.*"
    assert settings["dbms.security.allow_csv_import_from_file_urls"] == "false"
    assert settings["internal.dbms.cypher_ip_blocklist"] == "0.0.0.0/0,::/0"


def test_of_apoc_the_configuration_allows_what_the_statements_call_and_nothing_else(
    tmp_path: Path,
):
    write_config(tmp_path, jars=tmp_path / "jars", bolt_port=17687, memory=Memory())

    [line] = re.findall(r"allowlist=(.*)", (tmp_path / "conf" / "neo4j.conf").read_text())
    code = "".join(path.read_text() for path in (ROOT / "embed_pipeline/store").rglob("*.py"))
    called = re.findall(r"(?:CALL|RETURN) (apoc(?:\.\w+)+)\(", code)
    assert set(line.split(",")) == set(called)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["RETURN 1;"], ["RETURN 1"]),
        (["RETURN", "  1", ";"], ["RETURN\n  1"]),
        (["RETURN 1; RETURN 2;"], ["RETURN 1", "RETURN 2"]),
        (['RETURN \'a;b\', "c;\\";", `d;`;'], ['RETURN \'a;b\', "c;\\";", `d;`']),
        (["RETURN 1 // not; yet", "AS x;"], ["RETURN 1 // not; yet\nAS x"]),
        (["/* ; ", " ; */ RETURN 1;"], ["/* ; \n ; */ RETURN 1"]),
        (["RETURN 1"], ["RETURN 1"]),
        (["RETURN 1; // the end"], ["RETURN 1"]),
        (["RETURN 1;", ":quit", "RETURN 2;"], ["RETURN 1"]),
        (["MATCH (n)", None, "RETURN 1;"], ["RETURN 1"]),
        ([";", " ; "], []),
    ],
)
def test_shell_cuts_its_input_into_statements(lines: list[str | None], expected: list[str]):
    assert list(statements(iter(lines))) == expected
