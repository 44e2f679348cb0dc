"""The jars of the local server: whole or not there, and a clear word when they cannot be had."""

import errno
import hashlib
import io
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from embed_pipeline.devserver import jars as jars_module
from embed_pipeline.devserver.errors import LocalServerError
from embed_pipeline.devserver.jar_lock import LOCK_FILE, Jar, JarLock, read_lock
from embed_pipeline.devserver.jars import TEMPORARY_PREFIX, ensure_jars, is_installed
from tests.conftest import LOCK_2026
from tests.support.patience import PATIENCE_SECONDS

CONTENTS = {name: name.encode() * 1000 for name in ("kernel", "bolt", "cypher", "values")}


def jar_of(name: str, content: bytes, *, group: str = "org.example") -> Jar:
    digest = hashlib.sha256(content).hexdigest()
    return Jar(group, name, "1.0", classifier="", sha256=digest, size=len(content))


@pytest.fixture
def lock() -> JarLock:
    server = [jar_of(name, content) for name, content in CONTENTS.items()]
    apoc = jar_of("apoc-core", b"apoc" * 1000, group="org.neo4j.procedure")
    return JarLock(server="1.0", apoc="1.0", main_class="Main", jars=(*server, apoc))


class Repository:
    """Stands where Maven Central is; counts what it was asked for."""

    def __init__(self) -> None:
        self.files = CONTENTS | {"apoc-core": b"apoc" * 1000}
        self.asked: list[str] = []

    def __call__(self, jar: Jar, *, into: Path, on_bytes: Callable[[int], None]) -> Path:
        self.asked.append(jar.artifact)
        path = into / jar.artifact
        path.write_bytes(self.files[jar.artifact])
        on_bytes(path.stat().st_size)
        return path


def leftovers(cache: Path) -> list[Path]:
    return list(cache.rglob(f"{TEMPORARY_PREFIX}*"))


def test_jars_are_installed_and_apoc_gets_the_folder_where_neo4j_looks_for_procedures(
    tmp_path: Path, lock: JarLock
):
    folder = ensure_jars(tmp_path, lock=lock, fetch=Repository())

    assert {str(path.relative_to(folder)) for path in folder.rglob("*.jar")} == {
        "lib/kernel-1.0.jar",
        "lib/bolt-1.0.jar",
        "lib/cypher-1.0.jar",
        "lib/values-1.0.jar",
        "plugins/apoc-core-1.0.jar",
    }
    assert leftovers(tmp_path) == []


def test_second_call_downloads_nothing(tmp_path: Path, lock: JarLock):
    ensure_jars(tmp_path, lock=lock, fetch=Repository())
    repository = Repository()

    ensure_jars(tmp_path, lock=lock, fetch=repository)

    assert repository.asked == []


def test_progress_reaches_the_total_of_the_lock(tmp_path: Path, lock: JarLock):
    seen: list[tuple[int, int]] = []

    ensure_jars(tmp_path, lambda *done: seen.append(done), lock=lock, fetch=Repository())

    assert seen[-1] == (lock.size, lock.size)
    assert seen == sorted(seen)


def test_tampered_jar_is_refused_and_not_installed(tmp_path: Path, lock: JarLock):
    repository = Repository()
    repository.files["bolt"] = repository.files["bolt"].replace(b"b", b"x")

    with pytest.raises(LocalServerError, match="bolt is damaged: its sha256 is") as error:
        ensure_jars(tmp_path, lock=lock, fetch=repository)

    assert "Start again" in str(error.value)
    folder = tmp_path / lock.folder_name
    assert not (folder / "lib/bolt-1.0.jar").exists()
    assert not is_installed(folder, lock)
    assert leftovers(tmp_path) == []


def test_next_try_goes_on_where_the_failed_one_ended(tmp_path: Path, lock: JarLock):
    repository = Repository()
    del repository.files["values"]
    with pytest.raises(KeyError):
        ensure_jars(tmp_path, lock=lock, fetch=repository)
    whole = {path.name for path in (tmp_path / lock.folder_name).rglob("*.jar")}

    repository = Repository()
    ensure_jars(tmp_path, lock=lock, fetch=repository)

    assert {f"{name}-1.0.jar" for name in repository.asked}.isdisjoint(whole)
    assert "values" in repository.asked


@pytest.mark.parametrize("damage", [b"", b"short", CONTENTS["bolt"][:-1] + b"x"])
def test_jar_that_was_changed_in_the_cache_is_noticed_and_fetched_again(
    tmp_path: Path, lock: JarLock, damage: bytes, caplog: pytest.LogCaptureFixture
):
    folder = ensure_jars(tmp_path, lock=lock, fetch=Repository())
    (folder / "lib/bolt-1.0.jar").write_bytes(damage)

    repository = Repository()
    ensure_jars(tmp_path, lock=lock, fetch=repository)

    assert repository.asked == ["bolt"]
    assert (folder / "lib/bolt-1.0.jar").read_bytes() == CONTENTS["bolt"]
    assert f"{folder}/lib/bolt-1.0.jar was changed after its download" in caplog.text


@pytest.mark.parametrize("place", ["lib", "plugins"])
def test_jar_that_nobody_locked_is_refused_where_java_would_load_it(
    tmp_path: Path, lock: JarLock, place: str
):
    folder = ensure_jars(tmp_path, lock=lock, fetch=Repository())
    (folder / place / "extra.jar").write_bytes(b"not ours")

    with pytest.raises(LocalServerError, match=f"{place}/extra.jar is none of the jars") as error:
        ensure_jars(tmp_path, lock=lock, fetch=Repository())

    assert "Remove it" in str(error.value)
    assert (folder / place / "extra.jar").exists()


KILLED_WHILE_DOWNLOADING = """
    import sys, time
    from pathlib import Path
    from embed_pipeline.devserver.jar_lock import Jar, JarLock
    from embed_pipeline.devserver.jars import ensure_jars

    def fetch(jar, *, into, on_bytes):
        (into / "half.jar").write_bytes(b"half")
        print("downloading", flush=True)
        while True:
            time.sleep(0.01)
            on_bytes(0)

    jar = Jar("g", "a", "1.0", "", sha256="0" * 64, size=1000)
    ensure_jars(Path(sys.argv[1]), lock=JarLock("1", None, "Main", (jar,)), fetch=fetch)
"""


@pytest.fixture
def downloading(tmp_path: Path):
    program = textwrap.dedent(KILLED_WHILE_DOWNLOADING)
    command = [sys.executable, "-c", program, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "downloading\n"
        yield process
        process.kill()


def test_ctrl_c_leaves_no_temporary_files(tmp_path: Path, downloading: subprocess.Popen[str]):
    assert leftovers(tmp_path) != []

    downloading.send_signal(signal.SIGINT)
    downloading.wait(timeout=PATIENCE_SECONDS)

    assert leftovers(tmp_path) == []
    assert list(tmp_path.rglob("*.jar")) == []


def test_killed_download_leaves_nothing_that_looks_valid_and_the_next_one_tidies_up(
    tmp_path: Path, downloading: subprocess.Popen[str]
):
    downloading.send_signal(signal.SIGKILL)
    downloading.wait(timeout=PATIENCE_SECONDS)

    [folder] = tmp_path.iterdir()
    half = Jar("g", "a", "1.0", "", sha256="0" * 64, size=1000)
    assert not is_installed(folder, JarLock("1", None, "Main", (half,)))
    assert leftovers(tmp_path) != []

    content = b"whole"
    digest = hashlib.sha256(content).hexdigest()
    whole = JarLock(
        "1", None, "Main", (Jar("g", "a", "1.0", "", sha256=digest, size=len(content)),)
    )
    folder.rename(tmp_path / whole.folder_name)
    repository = Repository()
    repository.files["a"] = content
    ensure_jars(tmp_path, lock=whole, fetch=repository)

    assert leftovers(tmp_path) == []


def test_two_at_once_download_each_jar_once(tmp_path: Path, lock: JarLock):
    repository = Repository()
    callers = [
        threading.Thread(
            target=ensure_jars, args=[tmp_path], kwargs={"lock": lock, "fetch": repository}
        )
        for _ in range(4)
    ]

    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()

    assert sorted(repository.asked) == sorted(repository.files)


def test_without_network_the_message_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # Nothing listens there, so that the real download meets a real refusal.
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")

    with pytest.raises(LocalServerError, match="from Maven Central") as error:
        ensure_jars(tmp_path)

    assert "Check the network" in str(error.value)
    assert "NEO4J_URI" in str(error.value)
    assert leftovers(tmp_path) == []


def test_request_that_fails_once_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    content = b"jar"
    answers = [requests.ConnectionError("reset by peer"), content]

    def request(_method: str, url: str, **_options: object) -> requests.Response:
        response = requests.Response()
        response.status_code = 404 if url.endswith(".sha1") else 200
        if response.status_code == 200:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            response.raw = io.BytesIO(answer)
            response.headers["content-length"] = str(len(answer))
        return response

    monkeypatch.setattr(requests, "request", request)
    lock = JarLock("1", None, "Main", (jar_of("flaky", content),))

    folder = ensure_jars(tmp_path, lock=lock)

    assert (folder / "lib/flaky-1.0.jar").read_bytes() == content
    assert leftovers(tmp_path) == []


def test_too_little_space_is_said_before_anything_is_downloaded(
    tmp_path: Path, lock: JarLock, monkeypatch: pytest.MonkeyPatch
):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(jars_module.shutil, "disk_usage", lambda _: usage(10, 9, 1))
    repository = Repository()

    with pytest.raises(LocalServerError, match="not enough disk space") as error:
        ensure_jars(tmp_path, lock=lock, fetch=repository)

    assert "XDG_CACHE_HOME" in str(error.value)
    assert repository.asked == []


def test_disk_that_becomes_full_is_said_and_temporary_files_are_gone(tmp_path: Path, lock: JarLock):
    def fetch(jar: Jar, *, into: Path, on_bytes: Callable[[int], None]) -> Path:
        (into / "half").write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(LocalServerError, match="the disk became full"):
        ensure_jars(tmp_path, lock=lock, fetch=fetch)

    assert leftovers(tmp_path) == []


def test_cache_that_cannot_be_written_is_said(tmp_path: Path, lock: JarLock):
    (tmp_path / "file").touch()

    with pytest.raises(LocalServerError, match="cannot write to"):
        ensure_jars(tmp_path / "file", lock=lock, fetch=Repository())


def test_a_hanging_download_does_not_hold_up_the_error_of_another(tmp_path: Path, lock: JarLock):
    hang = threading.Event()

    def fetch(jar: Jar, *, into: Path, on_bytes: Callable[[int], None]) -> Path:
        if jar.artifact == "kernel":
            hang.wait(60)
            hung.append(jar)
        raise LocalServerError("no network")

    hung: list[Jar] = []
    with pytest.raises(LocalServerError, match="no network"):
        ensure_jars(tmp_path, lock=lock, fetch=fetch)
    was_over = bool(hung)
    hang.set()

    assert not was_over


@pytest.mark.parametrize("file", [LOCK_FILE, LOCK_2026], ids=["package", "tests"])
def test_committed_lock_is_well_formed(file: Path):
    lock = read_lock(file)

    assert len(lock.jars) > 200
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in lock.jars)
    assert all(jar.size > 0 for jar in lock.jars)
    assert len({jar.path for jar in lock.jars}) == len(lock.jars)
    assert "//" not in file.read_text(encoding="utf-8"), "no address belongs in here"


def test_package_has_the_apoc_of_its_server():
    lock = read_lock()

    assert lock.apoc is not None
    assert {jar.version for jar in lock.jars if jar.path.startswith("plugins/")} == {lock.apoc}
    assert lock.server.split(".")[:2] == lock.apoc.split(".")[:2]


def test_a_release_without_apoc_has_no_plugins_and_no_apoc_in_its_name():
    lock = read_lock(LOCK_2026)

    assert lock.apoc is None
    assert not any(jar.path.startswith("plugins/") for jar in lock.jars)
    assert re.fullmatch(r"neo4j-2026\.\d+\.\d+-[0-9a-f]{12}", lock.folder_name)


def test_a_changed_jar_makes_another_folder(lock: JarLock):
    first, *others = lock.jars
    changed = replace(lock, jars=(jar_of(first.artifact, b"changed"), *others))

    assert changed.folder_name != lock.folder_name
