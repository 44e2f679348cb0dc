"""Files that are either whole or not there, and locks that die with their holder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp
from typing import IO

from embed_pipeline.devserver.errors import LocalServerError


def write_private(path: Path, content: str) -> None:
    """Write ``content`` atomically; at no moment readable by another user."""
    # mkstemp creates with mode 0600, so there is no moment with a wider one.
    descriptor, temporary = mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def exclusive(lock_file: Path) -> Iterator[None]:
    """Wait until no other process is inside a block with the same file.

    The kernel gives the lock back when its holder dies, however it dies; so the file may stay.
    """
    with _open_lock(lock_file) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise LocalServerError(
                f"cannot lock {lock_file}: {error.strerror}\n"
                "Some network file systems cannot lock files: use a folder on a local disk."
            ) from error
        yield


def _open_lock(lock_file: Path) -> IO[bytes]:
    try:
        return lock_file.open("ab")
    except OSError as error:
        raise LocalServerError(
            f"cannot write to {lock_file}: {error.strerror}\n"
            "Check that the folder is yours and that its disk is not full."
        ) from error
