"""A log file of bounded size that never holds up the program whose output it keeps."""

import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

LARGEST_BYTES: Final = 10_000_000
OLDER_FILES: Final = 2


class RotatingLog:
    """Appends text to a file that only this user can read; a full one becomes ``<name>.1``.

    ``write`` never raises. Whoever calls it reads a pipe, and the program at the other end of
    that pipe would stand still if reading stopped because a disk is full.
    """

    def __init__(
        self,
        path: Path,
        *,
        on_trouble: Callable[[str], None],
        largest_bytes: int = LARGEST_BYTES,
        older_files: int = OLDER_FILES,
    ) -> None:
        """Nothing is opened before the first ``write``.

        Args:
            path: of the file that is written to.
            on_trouble: is told once when writing fails, and again only after it has worked.
            largest_bytes: at which the file is put aside and a new one is begun.
            older_files: how many of those are kept.
        """
        self._path = path
        self._on_trouble = on_trouble
        self._largest = largest_bytes
        self._older = older_files
        self._descriptor: int | None = None
        self._missing = 0
        self._mutex = threading.Lock()

    def write(self, text: str) -> None:
        """Append ``text``, or drop it when the disk does not take it; the next call tries again."""
        with self._mutex:
            try:
                self._append_all(text.encode("utf-8", "replace"))
                return
            except OSError as error:
                # Closed, so that a file which is deleted to make room gives its room back.
                self._close()
                self._missing += 1
                is_news = self._missing == 1
                reason = error.strerror or type(error).__name__
        if is_news:
            self._on_trouble(
                f"WARNING {self._path} cannot be written: {reason}. Nothing else stops, but what "
                "Dagster says is lost until there is room"
            )

    def close(self) -> None:
        """Close the file; another ``write`` opens it again."""
        with self._mutex:
            self._close()

    def _append_all(self, data: bytes) -> None:
        self._make_ready(len(data))
        if self._missing:
            # The line before may have been cut in the middle.
            self._append(f"\n({self._missing} lines are missing here)\n".encode())
        self._append(data)
        self._missing = 0

    def _append(self, data: bytes) -> None:
        while data and self._descriptor is not None:
            data = data[os.write(self._descriptor, data) :]

    def _make_ready(self, wanted: int) -> None:
        """Open the file, rotated if ``wanted`` bytes do not fit."""
        if self._descriptor is not None and not os.fstat(self._descriptor).st_nlink:
            self._close()
        if self._descriptor is None:
            self._descriptor = self._open()
        size = os.fstat(self._descriptor).st_size
        if size and size + wanted > self._largest:
            self._close()
            # A folder that lets nothing be renamed is no reason to lose lines.
            with suppress(OSError):
                self._put_aside()
            self._descriptor = self._open()

    def _put_aside(self) -> None:
        names = [self._path, *(Path(f"{self._path}.{n}") for n in range(1, self._older + 1))]
        for older, newer in zip(reversed(names[1:]), reversed(names[:-1]), strict=True):
            if newer.exists():
                newer.replace(older)

    def _open(self) -> int:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        # The file of an older version may be readable by others; /dev/null has to be.
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, 0o600)
        return descriptor

    def _close(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with suppress(OSError):
                os.close(descriptor)
