"""What a local Neo4j consists of and how it starts: ``neo4j.lock.toml``, read into values.

The lock is written by ``scripts/lock_neo4j.py``.
"""

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path

LOCK_FILE = Path(__file__).with_name("neo4j.lock.toml")

APOC_GROUP = "org.neo4j.procedure"


@dataclass(frozen=True)
class Jar:
    """One file of the server with its checksum."""

    group: str
    artifact: str
    version: str
    classifier: str
    sha256: str
    size: int

    @property
    def path(self) -> str:
        """Where the jar lies in the installed server.

        Neo4j looks for procedures only in ``plugins``; so APOC gets a folder of its own.
        """
        folder = "plugins" if self.group == APOC_GROUP else "lib"
        suffix = f"-{self.classifier}" if self.classifier else ""
        return f"{folder}/{self.artifact}-{self.version}{suffix}.jar"


@dataclass(frozen=True)
class JarLock:
    """The committed choice of versions; its name changes when any file changes."""

    server: str
    apoc: str | None
    main_class: str
    jars: tuple[Jar, ...]

    @property
    def size(self) -> int:
        """Bytes of all jars."""
        return sum(jar.size for jar in self.jars)

    @property
    def folder_name(self) -> str:
        """Unlike a version alone, it cannot mean two different sets of files."""
        digest = hashlib.sha256("".join(sorted(jar.sha256 for jar in self.jars)).encode())
        apoc = f"-apoc-{self.apoc}" if self.apoc else ""
        return f"neo4j-{self.server}{apoc}-{digest.hexdigest()[:12]}"


def read_lock(path: Path = LOCK_FILE) -> JarLock:
    """Read the lock file; the one in the package unless told otherwise."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    return JarLock(
        server=content["server"],
        apoc=content.get("apoc"),
        main_class=content["main_class"],
        jars=tuple(
            Jar(
                group=entry["group"],
                artifact=entry["artifact"],
                version=entry["version"],
                classifier=entry.get("classifier", ""),
                sha256=entry["sha256"],
                size=entry["size"],
            )
            for entry in content["jars"]
        ),
    )
