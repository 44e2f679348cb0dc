"""The verified jars of the server, in a cache that all checkouts of this user share.

A jar is visible under its name only after its sha256 was found right, by a rename; so neither
``kill -9`` nor a full disk leaves anything that looks valid. It is looked at again before every
use: anyone who can write to the cache could otherwise put a program into ours.
"""

import errno
import hashlib
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from embed_pipeline.devserver import maven
from embed_pipeline.devserver.errors import LocalServerError
from embed_pipeline.devserver.files import exclusive
from embed_pipeline.devserver.jar_lock import Jar, JarLock, read_lock
from embed_pipeline.devserver.threads import run_all

THREADS: Final = 16
DISK_MARGIN: Final = 64 * 1024**2
TEMPORARY_PREFIX: Final = ".download-"

MAKE_ROOM: Final = "Free some space, or set XDG_CACHE_HOME to a folder on a larger disk (Linux)."

log = logging.getLogger(__name__)

OnProgress = Callable[[int, int], None]
"""Called with bytes done and bytes in total, from one thread at a time."""


class Fetch(Protocol):
    """How one jar is brought into a folder; the seam where tests do without Maven Central."""

    def __call__(self, jar: Jar, *, into: Path, on_bytes: Callable[[int], None]) -> Path:
        """Bring ``jar`` into the folder and tell about the bytes."""
        ...


def fetch_from_maven(jar: Jar, *, into: Path, on_bytes: Callable[[int], None]) -> Path:
    """Download ``jar`` from Maven Central."""
    return maven.download(
        group=jar.group,
        artifact=jar.artifact,
        version=jar.version,
        classifier=jar.classifier,
        into=into,
        on_bytes=on_bytes,
    )


def default_cache() -> Path:
    """The cache folder of this user; ``XDG_CACHE_HOME`` moves it on Linux."""
    from platformdirs import user_cache_path

    return user_cache_path("embed-pipeline")


def ensure_jars(
    cache: Path | None = None,
    on_progress: OnProgress | None = None,
    *,
    lock: JarLock | None = None,
    fetch: Fetch = fetch_from_maven,
) -> Path:
    """Return a folder with ``lib/*.jar`` and ``plugins/*.jar``, downloading what is missing.

    Hashes what is there, at every start of the server: 143 MB take 0.11 s of processor time, which
    is not worth a note of what was verified before, since such a note can be forged.

    Raises:
        LocalServerError: no network, a wrong checksum, a jar too many, no space, or the folder is
            not writable.
    """
    lock = lock or read_lock()
    cache = cache or default_cache()
    folder = cache / lock.folder_name
    try:
        if is_installed(folder, lock):
            return folder
        for name in ("lib", "plugins"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        with exclusive(folder / "lock"):
            # Another process may have finished while this one waited for the lock.
            if not is_installed(folder, lock):
                _install(folder, lock, on_progress or _no_progress, fetch)
    except OSError as error:
        raise LocalServerError(_cannot_write(error, cache)) from error
    return folder


def is_installed(folder: Path, lock: JarLock) -> bool:
    """Say whether all jars are there, unchanged.

    Raises:
        LocalServerError: there is another one beside them, which Java would load too.
    """
    locked = {folder / jar.path for jar in lock.jars}
    for path in (*folder.glob("lib/*.jar"), *folder.glob("plugins/*.jar")):
        if path not in locked:
            raise LocalServerError(
                f"{path} is none of the jars that belong to Neo4j {lock.server}, and Java would "
                "load it.\nRemove it, or move it elsewhere if you need it; then start again."
            )
    return all(_is_whole(folder / jar.path, jar) for jar in lock.jars)


class _StoppedError(Exception):
    """Ends a download that is no longer wanted."""


def _install(folder: Path, lock: JarLock, on_progress: OnProgress, fetch: Fetch) -> None:
    # Left by a process that was killed: the holder of the lock is the only one at work here.
    for leftover in folder.glob(f"{TEMPORARY_PREFIX}*"):
        shutil.rmtree(leftover, ignore_errors=True)

    missing = [jar for jar in lock.jars if not _is_whole(folder / jar.path, jar)]
    for jar in missing:
        if (folder / jar.path).exists():
            log.warning(
                "%s was changed after its download: its sha256 is not that of the lock file. It is "
                "downloaded again.",
                folder / jar.path,
            )
    needed = sum(jar.size for jar in missing)
    _check_space(folder, needed)

    stop = threading.Event()
    counting = threading.Lock()
    done = lock.size - needed

    def report(count: int) -> None:
        nonlocal done
        if stop.is_set():
            raise _StoppedError
        with counting:
            done += count
            on_progress(done, lock.size)

    temporary = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=folder))

    def install(jar: Jar) -> None:
        path = fetch(jar, into=temporary, on_bytes=report)
        _verify(path, jar)
        path.replace(folder / jar.path)

    try:
        run_all(install, missing, threads=THREADS, stop=stop)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _verify(path: Path, jar: Jar) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
        # Else a power cut could leave the new name with old or no content.
        os.fsync(file.fileno())
    if found != jar.sha256:
        raise LocalServerError(
            f"{path.name} is damaged: its sha256 is {found}, expected {jar.sha256}\n"
            "It was not installed. Start again to download it anew; if that does not help, "
            "something between here and Maven Central (a proxy, a mirror) changes files."
        )


def _is_whole(path: Path, jar: Jar) -> bool:
    if _size(path) != jar.size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return -1


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed + DISK_MARGIN:
        raise LocalServerError(_no_space(folder, needed + DISK_MARGIN, free))


def _no_space(folder: Path, needed: int, free: int) -> str:
    return (
        f"not enough disk space for Neo4j: {folder} needs {_megabytes(needed)}, "
        f"{_megabytes(free)} are free\n{MAKE_ROOM}"
    )


def _cannot_write(error: OSError, cache: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk became full while Neo4j was downloaded to {cache}\n{MAKE_ROOM}"
    return (
        f"cannot write to {error.filename or cache}: {error.strerror or error}\n"
        "Make the folder writable, or set XDG_CACHE_HOME to one that is."
    )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"


def _no_progress(_done: int, _total: int) -> None:
    pass
