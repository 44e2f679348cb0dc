"""The folder of one local server: its data, its logs, its password and its address."""

import json
import os
import secrets
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import urlsplit

from embed_pipeline.devserver.admin_tool import AdminTool
from embed_pipeline.devserver.errors import LocalServerError
from embed_pipeline.devserver.files import write_private

USERNAME: Final = "neo4j"
DATABASE: Final = "neo4j"
ADMIN_TIMEOUT_SECONDS: Final = 120
TEMPORARY_PREFIX: Final = ".first-start-"
STAGING_PREFIX: Final = ".load-"


class ServerHome:
    """Paths below the home, and the files that others read.

    ``connection.json`` is the contract with the rest of the project, which finds the server by it
    without knowing this package. It stays when the server is stopped.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser().resolve()
        self.pid_file = self.folder / "server.pid"
        self.lock_file = self.folder / "lock"
        self.password_file = self.folder / "password"
        self.connection_file = self.folder / "connection.json"
        self.data = self.folder / "data"
        self._replaced = self.folder / "data.replaced"
        self.logs = self.folder / "logs"
        self.console_log = self.logs / "console.log"

    def create(self) -> None:
        """Make the folder, closed to other users.

        Raises:
            LocalServerError: the folder cannot be made or written.
        """
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
            self.folder.chmod(0o700)
        except OSError as error:
            raise LocalServerError(
                f"cannot create {self.folder}: {error.strerror}\n"
                "Choose a home for the server that you may write to."
            ) from error

    def read_password(self) -> str:
        """The password of the user ``neo4j``.

        Raises:
            LocalServerError: the server was never started.
        """
        try:
            return self.password_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise LocalServerError(
                f"cannot read {self.password_file}: {error.strerror}\n"
                "Start the server: its first start writes the file. If it is there, it belongs to "
                "another user."
            ) from error

    def read_connection(self) -> dict[str, str]:
        """What ``connection.json`` holds; empty if it is not there."""
        try:
            content = json.loads(self.connection_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def last_port(self) -> int | None:
        """The port of the last start."""
        try:
            return urlsplit(self.read_connection().get("uri", "")).port
        except ValueError:
            return None

    def write_connection(self, uri: str) -> None:
        """Tell the rest of the project where the server is."""
        connection = {
            "uri": uri,
            "username": USERNAME,
            "password": self.read_password(),
            "database": DATABASE,
        }
        write_private(self.connection_file, json.dumps(connection, indent=2) + "\n")

    def ensure_password(self, *, java: Path, jars: Path) -> None:
        """Create a random password before the server's first start.

        Neo4j reads ``auth.ini`` when it creates its first user, so at no time does it listen with
        the well-known password. Each step is one rename, and is done again until the next one
        has happened: the sequence may be killed anywhere.

        Raises:
            LocalServerError: the password of an existing database is lost.
        """
        self._remove_leftovers()
        auth_file = self.data / "dbms" / "auth.ini"
        has_users = (self.data / "databases" / "system").exists()
        if not self.password_file.exists():
            if has_users:
                raise LocalServerError(
                    f"{self.password_file} is missing, but the database has data.\n"
                    f"Write the password of user {USERNAME} to it, or remove {self.folder} to "
                    "begin with an empty database."
                )
            auth_file.unlink(missing_ok=True)
            # Hexadecimal: a leading "-" would be taken for an option by the tool below.
            write_private(self.password_file, secrets.token_hex(24) + "\n")
        if not has_users and not auth_file.exists():
            auth_file.parent.mkdir(parents=True, exist_ok=True)
            self._write_auth_file(auth_file, java=java, jars=jars)

    def _write_auth_file(self, auth_file: Path, *, java: Path, jars: Path) -> None:
        # neo4j-admin writes in place; in a home of its own, so that a rename can follow.
        with TemporaryDirectory(dir=self.folder, prefix=TEMPORARY_PREFIX) as temporary:
            tool = AdminTool(java, jars)
            # Read from the file: arguments are visible to every user of the machine.
            secret = f"@{self.password_file}"
            try:
                subprocess.run(
                    tool.command("dbms", "set-initial-password", secret),
                    env=tool.environment(Path(temporary)),
                    capture_output=True,
                    text=True,
                    check=True,
                    timeout=ADMIN_TIMEOUT_SECONDS,
                )
            except subprocess.SubprocessError as error:
                output = str(getattr(error, "stderr", None) or error).strip()
                raise LocalServerError(
                    f"could not set the initial password of Neo4j:\n{output[-2000:]}\n"
                    "Start again; if it fails again, remove the jars so that they are downloaded "
                    f"anew: {jars}"
                ) from error
            Path(temporary, "data", "dbms", "auth.ini").replace(auth_file)

    @property
    def has_data(self) -> bool:
        """Whether there is a database that could be dumped, or would be lost."""
        return (self.data / "databases" / DATABASE).exists()

    def adopt(self, new: Path) -> None:
        """Put a folder with a database in the place of the data; users and triggers stay.

        Two renames: ``settle`` undoes the first where the second has not happened.
        """
        if self.data.exists():
            kept = shutil.ignore_patterns(DATABASE, "*_lock")
            shutil.copytree(self.data, new, ignore=kept, dirs_exist_ok=True)
            os.sync()
            self.data.rename(self._replaced)
        new.rename(self.data)
        shutil.rmtree(self._replaced, ignore_errors=True)

    def settle(self) -> None:
        """Restore the old data if a load was killed before the new ones were in place."""
        if self._replaced.exists() and not self.data.exists():
            self._replaced.rename(self.data)
        shutil.rmtree(self._replaced, ignore_errors=True)
        for leftover in self.folder.glob(f"{STAGING_PREFIX}*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def _remove_leftovers(self) -> None:
        """Remove what a killed start or load has left."""
        self.settle()
        for leftover in self.folder.glob(f"{TEMPORARY_PREFIX}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        for file in (self.password_file, self.connection_file):
            for leftover in self.folder.glob(f".{file.name}-*"):
                leftover.unlink(missing_ok=True)
