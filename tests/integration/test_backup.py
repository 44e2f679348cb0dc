"""Dump and load of the bundled server: whole or not at all, and the work goes on afterwards."""

import asyncio
import hashlib
import json
import os
import shutil
import stat
import zipfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from embed_pipeline.devserver.backup import DUMP, MANIFEST
from embed_pipeline.devserver.errors import LocalServerError
from embed_pipeline.devserver.neo4j_server import Neo4jServer
from embed_pipeline.devserver.ports import free_port
from embed_pipeline.domain.audit import Operator
from embed_pipeline.domain.job import JobStatus, NewJob
from embed_pipeline.domain.lifecycle import EnqueueOutcome
from embed_pipeline.store import schema
from embed_pipeline.store.connection import Connection, open_driver
from tests.conftest import QUICK, SMALL
from tests.support.queue_harness import DIMENSIONS, MODEL, SHAPE, Neo4jUnderTest

ENTITIES = [f"entity-{number}" for number in range(20)]
COMPLETED = JobStatus.COMPLETED
Result = TypeVar("Result")


def server_in(home: Path) -> Neo4jServer:
    return Neo4jServer(home, bolt_port=free_port(), memory=SMALL, tuning=QUICK)


async def on(server: Neo4jServer, work: Callable[[Neo4jUnderTest], Awaitable[Result]]) -> Result:
    """Start the server, do something with the queue in it, and stop it."""
    server.start()
    try:
        await asyncio.to_thread(server.wait_until_ready)
        connection = Connection(server.uri, server.username, server.password)
        async with open_driver(connection) as driver:
            return await work(Neo4jUnderTest(driver, server.database))
    finally:
        await asyncio.to_thread(server.stop)


async def drain(queue: Neo4jUnderTest, *, most: int) -> list[str]:
    """Complete up to ``most`` jobs; says whose they were."""
    batch = await queue.lease(limit=most)
    await queue.complete(*(item.lease for item in batch.jobs))
    return [item.lease.entity_uid for item in batch.jobs]


@pytest.fixture(scope="module")
def half_done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Neo4jServer, list[str]]:
    """A stopped server half of whose entities are embedded, and the names of those."""
    server = server_in(tmp_path_factory.mktemp("first") / "home")

    async def begin(queue: Neo4jUnderTest) -> list[str]:
        await queue.install()
        await queue.given_jobs(*ENTITIES)
        queue.act_as(Operator("alice"))
        await queue.switch.pause(by="alice")
        await queue.switch.resume()
        return await drain(queue, most=len(ENTITIES) // 2)

    return server, asyncio.run(on(server, begin))


@pytest.fixture(scope="module")
def dumped(
    half_done: tuple[Neo4jServer, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    file = tmp_path_factory.mktemp("dump") / "queue.dump"
    half_done[0].dump(file)
    return file


def contents(home: Path) -> dict[str, bytes]:
    """The data of a server, file by file."""
    data = home / "data"
    return {
        str(path.relative_to(data)): path.read_bytes()
        for path in sorted(data.rglob("*"))
        if path.is_file() and not path.name.endswith("_lock")
    }


@pytest.mark.proof
async def test_a_restored_queue_goes_on_where_the_dump_was_made(
    half_done: tuple[Neo4jServer, list[str]], dumped: Path, tmp_path: Path
) -> None:
    _, before = half_done
    server = server_in(tmp_path / "another home")

    server.load(dumped)

    async def go_on(queue: Neo4jUnderTest) -> None:
        state = await schema.inspect(queue.driver, database=queue.database, shape=SHAPE)
        assert state.problem is None
        assert state.vector_index is not None
        assert state.vector_index.dimensions == DIMENSIONS
        assert [entry.action for entry in await queue.actions()] == ["resume", "pause"]
        again = await queue.admin.enqueue([NewJob(uid, MODEL) for uid in ENTITIES])
        assert again == [EnqueueOutcome.PRESENT] * len(ENTITIES)
        after = await drain(queue, most=100)
        assert sorted(before + after) == sorted(ENTITIES)
        jobs = await queue.nodes()
        assert {(job["status"], job["fence"], job["attempts"]) for job in jobs} == {
            (COMPLETED, 1, 1)
        }
        for uid in ENTITIES:
            assert await queue.vector(uid) is not None

    await on(server, go_on)


def test_a_dump_is_one_file_for_its_owner_that_neo4j_can_read_too(dumped: Path) -> None:
    assert stat.S_IMODE(dumped.stat().st_mode) == 0o600
    assert [path.name for path in dumped.parent.iterdir()] == [dumped.name]
    with zipfile.ZipFile(dumped) as archive:
        assert archive.namelist() == [DUMP, MANIFEST]
        assert archive.read(DUMP)[:4] == b"DZV1"
        assert json.loads(archive.read(MANIFEST))["neo4j"].startswith("5.26.")


def test_a_dump_replaces_no_file_unless_told_to(
    half_done: tuple[Neo4jServer, list[str]], tmp_path: Path
) -> None:
    file = tmp_path / "precious"
    file.write_text("precious")

    with pytest.raises(LocalServerError, match="--force"):
        half_done[0].dump(file)
    assert file.read_text() == "precious"

    half_done[0].dump(file, force=True)
    assert zipfile.is_zipfile(file)


def test_a_dump_that_fails_leaves_no_file(
    half_done: tuple[Neo4jServer, list[str]], tmp_path: Path
) -> None:
    broken = tmp_path / "home"
    shutil.copytree(half_done[0].home, broken)
    (broken / "data/databases/neo4j/neostore").write_bytes(b"rubbish")

    with pytest.raises(LocalServerError, match="nothing was written"):
        server_in(broken).dump(tmp_path / "file")

    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_server_that_was_never_started_has_nothing_to_dump(tmp_path: Path) -> None:
    with pytest.raises(LocalServerError, match="no data"):
        server_in(tmp_path / "home").dump(tmp_path / "file")


@pytest.fixture
def precious(half_done: tuple[Neo4jServer, list[str]], tmp_path: Path) -> Neo4jServer:
    """Another server with data of its own."""
    shutil.copytree(half_done[0].home, tmp_path / "precious")
    return server_in(tmp_path / "precious")


def rewritten(dumped: Path, file: Path, *, dump: bytes | None = None, **manifest: Any) -> Path:
    """The archive with something else in it, and a manifest that fits."""
    with zipfile.ZipFile(dumped) as old, zipfile.ZipFile(file, "w") as new:
        content = old.read(DUMP) if dump is None else dump
        said = json.loads(old.read(MANIFEST))
        new.writestr(DUMP, content)
        said |= {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), **manifest}
        new.writestr(MANIFEST, json.dumps(said))
    return file


def cut(dumped: Path, file: Path) -> Path:
    file.write_bytes(dumped.read_bytes()[:-200])
    return file


def flipped(dumped: Path, file: Path) -> Path:
    content = bytearray(dumped.read_bytes())
    content[2_000] ^= 1
    file.write_bytes(content)
    return file


UNFIT = {
    "cut off": (cut, "cannot be loaded"),
    "one bit flipped": (flipped, "cannot be loaded|damaged"),
    "another sha256": (lambda d, f: rewritten(d, f, sha256="0" * 64), "damaged"),
    "of a newer major version": (lambda d, f: rewritten(d, f, neo4j="2026.08.0"), "newer release"),
    "of a newer minor version": (lambda d, f: rewritten(d, f, neo4j="5.27.0"), "newer release"),
    "in a newer format": (lambda d, f: rewritten(d, f, format=2), "Update embed-pipeline"),
    "of rubbish": (lambda d, f: rewritten(d, f, dump=b"DZV1rubbish"), "as they were"),
    "of half a dump": (
        lambda d, f: rewritten(d, f, dump=zipfile.ZipFile(d).read(DUMP)[:9_000]),
        "as they were",
    ),
    "with a manifest of rubbish": (lambda d, f: rewritten(d, f, neo4j=7), "manifest"),
}


@pytest.mark.parametrize("unfit", UNFIT)
def test_an_unfit_file_leaves_the_old_data(
    precious: Neo4jServer, dumped: Path, tmp_path: Path, unfit: str
) -> None:
    make, message = UNFIT[unfit]
    file = make(dumped, tmp_path / "unfit")
    before = contents(precious.home)

    with pytest.raises(LocalServerError, match=message):
        precious.load(file, force=True)

    assert contents(precious.home) == before
    assert not list(precious.home.glob(".load-*"))


def test_data_are_replaced_only_when_told_to(precious: Neo4jServer, dumped: Path) -> None:
    marker = precious.home / "data/databases/neo4j/marker"
    marker.touch()
    password = precious.password

    with pytest.raises(LocalServerError, match="--force"):
        precious.load(dumped)
    assert marker.exists()

    precious.load(dumped, force=True)
    assert not marker.exists()
    assert (precious.home / "data/databases/system/neostore").exists()
    assert precious.password == password


def test_a_load_that_was_killed_between_its_renames_is_undone(
    precious: Neo4jServer, dumped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, rename = contents(precious.home), Path.rename

    class KilledError(Exception):
        pass

    def killed(self: Path, target: Path) -> Path:
        if target == precious.home / "data":
            raise KilledError
        return rename(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killed)
        with pytest.raises(KilledError):
            precious.load(dumped, force=True)
    assert not (precious.home / "data").exists()

    precious._home.settle()

    assert contents(precious.home) == before
    assert not (precious.home / "data.replaced").exists()


@pytest.mark.parametrize("name", ["dump", "load"])
def test_a_running_server_is_left_alone(precious: Neo4jServer, dumped: Path, name: str) -> None:
    # A process that looks like the server: its home stands on its command line.
    pid = os.getpid()
    precious._home.pid_file.write_text(str(pid))
    with pytest.MonkeyPatch.context() as patched:
        line = [f"--home-dir={precious.home}"]
        patched.setattr("embed_pipeline.devserver.process.command_line", lambda _: line)

        with pytest.raises(LocalServerError, match="--restart"):
            getattr(precious, name)(dumped, force=True)
