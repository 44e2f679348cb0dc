"""Write a lock file of the local Neo4j anew.

``python scripts/lock_neo4j.py`` resolves the server and APOC with all they depend on, downloads
every jar once (143 MB, into a temporary folder; two minutes in all) and notes sha256 and size.
``--release tests-2026`` does so for the newer server that the tests also run on.

To move to a new version, change RELEASES below, run the script, read the diff, and run the
tests. The first two numbers of server and APOC must be equal, and Maven Central does not have
every APOC: look there first.
"""

import argparse
import hashlib
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from jgo.maven import MavenContext

from embed_pipeline.devserver.jar_lock import LOCK_FILE, Jar
from embed_pipeline.devserver.maven import download

TESTS = Path(__file__).parents[1] / "tests"


@dataclass(frozen=True)
class Release:
    """What is to be locked, and where."""

    file: Path
    server: str
    main_class: str
    apoc: str | None = None

    @property
    def roots(self) -> list[str]:
        """The artifacts that all others follow from."""
        roots = [
            f"org.neo4j.app:neo4j-server:{self.server}",
            # Holds the main class, which the artifact above does not ask for.
            f"org.neo4j:neo4j:{self.server}",
        ]
        if self.apoc:
            roots += [
                f"org.neo4j.procedure:apoc-core:{self.apoc}",
                f"org.neo4j.procedure:apoc-common:{self.apoc}",
            ]
        return roots

    @property
    def header(self) -> str:
        """The lock file up to its first jar."""
        apoc = f'apoc = "{self.apoc}"\n' if self.apoc else ""
        return (
            "# Written by scripts/lock_neo4j.py; do not edit.\n"
            "# Every file of the local Neo4j server; one whose sha256 differs is never installed.\n"
            f'server = "{self.server}"\n{apoc}main_class = "{self.main_class}"\njars = [\n'
        )


RELEASES = {
    "package": Release(
        file=LOCK_FILE,
        server="5.26.30",
        apoc="5.26.19",
        main_class="org.neo4j.server.CommunityEntryPoint",
    ),
    # Without APOC: Maven Central has none for it.
    "tests-2026": Release(
        file=TESTS / "neo4j-2026.lock.toml",
        server="2026.08.1",
        main_class="org.neo4j.server.Neo4jCommunity",
    ),
}


def resolve(artifacts: list[str], folder: Path) -> list[tuple[str, str, str, str]]:
    """Group, artifact, version and classifier of everything the server needs, sorted."""
    context = MavenContext(repo_cache=folder, timeout=60)
    roots = [context.create_dependency(artifact) for artifact in artifacts]
    inputs, transitive = context.resolver.resolve(roots)
    return sorted((d.groupId, d.artifactId, d.version, d.classifier) for d in inputs + transitive)


def measure(coordinates: tuple[str, str, str, str], folder: Path) -> Jar:
    """Download one jar and take its sha256 and size."""
    group, artifact, version, classifier = coordinates
    path = download(
        group=group,
        artifact=artifact,
        version=version,
        classifier=classifier,
        into=folder,
        on_bytes=lambda _: None,
    )
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    return Jar(group, artifact, version, classifier, sha256=digest, size=len(content))


def as_toml(jar: Jar) -> str:
    """One line per jar, so that a diff shows what changed."""
    classifier = f'classifier = "{jar.classifier}", ' if jar.classifier else ""
    return (
        f'  {{ group = "{jar.group}", artifact = "{jar.artifact}", version = "{jar.version}", '
        f'{classifier}size = {jar.size}, sha256 = "{jar.sha256}" }},\n'
    )


def main() -> None:
    """Resolve, download, write."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--release", choices=RELEASES, default="package")
    release = RELEASES[parser.parse_args().release]
    with TemporaryDirectory() as temporary, ThreadPoolExecutor(16) as pool:
        folder = Path(temporary)
        print(f"resolving {', '.join(release.roots)}", file=sys.stderr)
        coordinates = resolve(release.roots, folder / "poms")
        print(f"downloading {len(coordinates)} jars", file=sys.stderr)
        jars = list(pool.map(lambda c: measure(c, folder), coordinates))
    release.file.write_text(release.header + "".join(map(as_toml, jars)) + "]\n", encoding="utf-8")
    print(f"{release.file}: {len(jars)} jars, {sum(j.size for j in jars):,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
