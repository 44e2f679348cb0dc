"""Write ``embed_pipeline/local/neo4j.lock.toml`` anew.

``python scripts/lock_neo4j.py`` resolves the server and APOC with all they depend on, downloads
every jar once (143 MB, into a temporary folder; two minutes in all) and notes sha256 and size.

To move to a new version, change SERVER and APOC below, run the script, read the diff, and run the
tests. The first two numbers of both versions must be equal, and Maven Central does not have every
APOC: look there first.
"""

import hashlib
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from jgo.maven import MavenContext

from embed_pipeline.local.jar_lock import LOCK_FILE, Jar
from embed_pipeline.local.maven import download

SERVER = "5.26.30"
APOC = "5.26.19"

ROOTS = (
    f"org.neo4j.app:neo4j-server:{SERVER}",
    # Holds the main class, which the artifact above does not ask for.
    f"org.neo4j:neo4j:{SERVER}",
    f"org.neo4j.procedure:apoc-core:{APOC}",
    f"org.neo4j.procedure:apoc-common:{APOC}",
)

HEADER = f"""\
# Written by scripts/lock_neo4j.py; do not edit.
# Every file of the local Neo4j server; one whose sha256 differs is never installed.
server = "{SERVER}"
apoc = "{APOC}"
jars = [
"""


def resolve(folder: Path) -> list[tuple[str, str, str, str]]:
    """Group, artifact, version and classifier of everything the server needs, sorted."""
    context = MavenContext(repo_cache=folder, timeout=60)
    roots = [context.create_dependency(root) for root in ROOTS]
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
    with TemporaryDirectory() as temporary, ThreadPoolExecutor(16) as pool:
        folder = Path(temporary)
        print(f"resolving {', '.join(ROOTS)}", file=sys.stderr)
        coordinates = resolve(folder / "poms")
        print(f"downloading {len(coordinates)} jars", file=sys.stderr)
        jars = list(pool.map(lambda c: measure(c, folder), coordinates))
    LOCK_FILE.write_text(HEADER + "".join(map(as_toml, jars)) + "]\n", encoding="utf-8")
    print(f"{LOCK_FILE}: {len(jars)} jars, {sum(j.size for j in jars):,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
