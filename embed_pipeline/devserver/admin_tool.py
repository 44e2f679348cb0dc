"""Neo4j's own tool for a server that does not run: its password, its dumps."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from embed_pipeline.devserver.errors import LocalServerError
from embed_pipeline.devserver.java import java_environment

MOST_SAID: Final = 2_000


@dataclass(frozen=True, slots=True)
class AdminTool:
    """``neo4j-admin`` from the jars of the server."""

    java: Path
    jars: Path

    def command(self, *arguments: str) -> list[str]:
        """The command line."""
        compiler, classes = "-XX:TieredStopAtLevel=1", f"{self.jars}/lib/*"
        return [str(self.java), compiler, "-cp", classes, "org.neo4j.cli.AdminTool", *arguments]

    def environment(self, home: Path) -> dict[str, str]:
        """The variables that point it to the data of ``home``, with Neo4j's default settings."""
        return java_environment() | {"NEO4J_HOME": str(home), "NEO4J_CONF": str(home)}

    @contextmanager
    def streaming(self, *arguments: str, home: Path, wanted: str) -> Iterator[IO[bytes]]:
        """Run it and hand over the end of its stream; it must have ended well after the block.

        ``wanted`` is the stream: ``stdin`` or ``stdout``.

        Raises:
            LocalServerError: it failed; says what it said.
        """
        other = "stdin" if wanted == "stdout" else "stdout"
        with TemporaryFile() as said:
            streams = {wanted: subprocess.PIPE, other: subprocess.DEVNULL, "stderr": said}
            command, env = self.command(*arguments), self.environment(home)
            with subprocess.Popen(command, env=env, cwd=home, **streams) as process:
                stream = getattr(process, wanted)
                try:
                    yield stream
                    stream.close()
                except BrokenPipeError:
                    pass  # It has ended before its input: its own words say why.
                except BaseException:
                    process.kill()
                    raise
                code = process.wait()
            if code:
                said.seek(0)
                raise LocalServerError(_reason(said.read().decode(errors="replace")))


def _reason(said: str) -> str:
    """The tool's error message without progress output and stack traces."""
    lines = [line for line in said.splitlines() if line and not line.startswith(("Files:", "\tat"))]
    return "\n".join(lines)[-MOST_SAID:] or "neo4j-admin failed without a word"
