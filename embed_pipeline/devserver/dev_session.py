"""One ``embed-pipeline dev`` per project at a time, and nothing left over from one that died."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from embed_pipeline.devserver.errors import LocalServerError
from embed_pipeline.devserver.files import write_private
from embed_pipeline.paths import PRIVATE_UMASK, make_private


class DevSession:
    """What this session has started, noted on disk so that the next one can clean up."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes
        self._started = self._read()

    @property
    def started_neo4j(self) -> bool:
        """Say whether Neo4j was started by us, or by a session that died."""
        return bool(self._started.get("neo4j"))

    def note(self, *, neo4j: bool) -> None:
        """Remember it on disk, so that it survives ``kill -9``."""
        self._started["neo4j"] = neo4j
        write_private(self._notes, json.dumps(self._started))

    def _read(self) -> dict[str, bool]:
        try:
            return json.loads(self._notes.read_text())
        except (FileNotFoundError, ValueError):
            return {}


@contextmanager
def dev_session(folder: Path) -> Iterator[DevSession]:
    """Hold the project's session; the notes go when it has ended in order.

    Everything that it and its children write is closed to other users, and so is what is there.

    Raises:
        LocalServerError: another one is running.
    """
    umask = os.umask(PRIVATE_UMASK)
    make_private(folder)
    notes = folder / "dev.json"
    # The kernel gives the lock back when its holder dies, however it dies.
    descriptor = os.open(folder / "dev.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LocalServerError(
                "'embed-pipeline dev' is already running for this project.\n"
                "Use that one, or stop it with Ctrl-C first."
            ) from None
        try:
            yield DevSession(notes)
        finally:
            notes.unlink(missing_ok=True)
    finally:
        os.close(descriptor)
        os.umask(umask)
