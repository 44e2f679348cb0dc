"""Dumps of the bundled server: one file that says what it is, and takes the place of data at once.

The file is a zip with Neo4j's own dump in it, which ``neo4j-admin database load`` can read too, and
a manifest.
"""

import hashlib
import json
import os
import shutil
import zipfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory, mkstemp
from typing import IO, Final

from embed_pipeline.devserver.admin_tool import AdminTool
from embed_pipeline.devserver.errors import LocalServerError
from embed_pipeline.devserver.home import DATABASE, STAGING_PREFIX, ServerHome

FORMAT: Final = 1
DUMP: Final = f"{DATABASE}.dump"
MANIFEST: Final = "manifest.json"
LARGEST_MANIFEST: Final = 65_536
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Manifest:
    """The header of a dump that describes it."""

    created: str
    neo4j: str
    embed_pipeline: str
    size: int
    sha256: str
    format: int = FORMAT


def dump(home: ServerHome, tool: AdminTool, file: Path, *, neo4j: str, force: bool) -> Manifest:
    """Write the data of a stopped server to ``file``, atomically.

    Raises:
        LocalServerError: there are no data, the file exists, or Neo4j refuses.
    """
    if not home.has_data:
        raise LocalServerError(
            f"there are no data below {home.folder}\nStart the server first: embed-pipeline dev"
        )
    if file.exists() and not force:
        raise LocalServerError(f"{file} exists\nChoose another name, or replace it with --force.")
    try:
        descriptor, name = mkstemp(dir=file.absolute().parent, prefix=f".{file.name}-")
    except OSError as error:
        raise LocalServerError(
            f"cannot write {file}: {error.strerror}\nChoose a folder that you may write to."
        ) from error
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as out:
            manifest = _write(out, home, tool, neo4j=neo4j)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(file)
    except LocalServerError as error:
        raise LocalServerError(
            f"the data of {home.folder} could not be dumped; nothing was written:\n{error}\n"
            "If the server was killed, start it and stop it once: it repairs its data."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return manifest


def _write(out: IO[bytes], home: ServerHome, tool: AdminTool, *, neo4j: str) -> Manifest:
    digest, size = hashlib.sha256(), 0
    with zipfile.ZipFile(out, "w") as archive:
        arguments = ("database", "dump", DATABASE, "--to-stdout")
        with (
            archive.open(DUMP, "w", force_zip64=True) as entry,
            tool.streaming(*arguments, home=home.folder, wanted="stdout") as stream,
        ):
            while chunk := stream.read(_CHUNK):
                entry.write(chunk)
                digest.update(chunk)
                size += len(chunk)
        manifest = Manifest(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            neo4j=neo4j,
            embed_pipeline=version("embed-pipeline"),
            size=size,
            sha256=digest.hexdigest(),
        )
        archive.writestr(MANIFEST, json.dumps(asdict(manifest), indent=2))
    return manifest


def load(home: ServerHome, tool: AdminTool, file: Path, *, neo4j: str, force: bool) -> Manifest:
    """Replace the data of a stopped server by those of ``file``.

    The file is checked first, then unpacked beside the data; they change places by renaming. A load
    that ends anywhere leaves the old data or the new ones.

    Raises:
        LocalServerError: the file is damaged or too new, there are data already, or Neo4j refuses.
    """
    home.settle()
    if home.has_data and not force:
        raise LocalServerError(
            f"{home.folder} has data already\nReplace them with --force; 'embed-pipeline neo4j "
            "dump' keeps a copy."
        )
    try:
        with zipfile.ZipFile(file) as archive:
            manifest = _verified(archive, file, neo4j=neo4j)
            with TemporaryDirectory(dir=home.folder, prefix=STAGING_PREFIX) as folder:
                staged = Path(folder)
                _unpack(archive, tool, staged)
                home.adopt(staged / "data")
    except (OSError, zipfile.BadZipFile, EOFError) as error:
        raise LocalServerError(
            f"{file} cannot be loaded: {getattr(error, 'strerror', None) or error}\n"
            "The data are as they were. Is it a whole file of 'embed-pipeline neo4j dump'?"
        ) from error
    return manifest


def _verified(archive: zipfile.ZipFile, file: Path, *, neo4j: str) -> Manifest:
    """Verify a dump and return its manifest."""
    names = sorted(archive.namelist())
    if names != sorted([DUMP, MANIFEST]):
        raise LocalServerError(f"{file} is no file of 'embed-pipeline neo4j dump'")
    if archive.getinfo(MANIFEST).file_size > LARGEST_MANIFEST:
        raise LocalServerError(f"the manifest in {file} is too large to be one")
    try:
        said = json.loads(archive.read(MANIFEST))
        newest = said["format"]
        if newest > FORMAT:
            raise LocalServerError(
                f"{file} was made by embed-pipeline {said.get('embed_pipeline')}, in a format that "
                "this version does not know\nUpdate embed-pipeline, then load it again."
            )
        manifest = Manifest(**said)
        is_newer = _release(manifest.neo4j) > _release(neo4j)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LocalServerError(f"the manifest in {file} is damaged") from error
    if is_newer:
        raise LocalServerError(
            f"{file} is of Neo4j {manifest.neo4j}; the bundled server is {neo4j} and cannot read "
            "data of a newer release\nUpdate embed-pipeline, then load it again."
        )
    with archive.open(DUMP) as entry:
        digest = _digest(entry)
    if digest != manifest.sha256:
        raise LocalServerError(
            f"{file} is damaged: its sha256 is not the one in its manifest\nThe data are as they "
            "were. Copy the file again, or take an older one."
        )
    return manifest


def _unpack(archive: zipfile.ZipFile, tool: AdminTool, staged: Path) -> None:
    arguments = ("database", "load", DATABASE, "--from-stdin")
    try:
        with (
            archive.open(DUMP) as entry,
            tool.streaming(*arguments, home=staged, wanted="stdin") as stream,
        ):
            shutil.copyfileobj(entry, stream, _CHUNK)
    except LocalServerError as error:
        message = f"Neo4j could not load it; the data are as they were:\n{error}"
        raise LocalServerError(message) from error


def _digest(entry: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := entry.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def _release(number: str) -> tuple[int, int]:
    major, minor = number.split(".")[:2]
    return int(major), int(minor)
