"""The configuration of the local server: what it listens to, may do and may use."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"

ALLOWED_PROCEDURES: Final = (
    "apoc.periodic.iterate",
    "apoc.trigger.drop",
    "apoc.trigger.install",
    "apoc.trigger.list",
    "apoc.trigger.show",
    "apoc.version",
)
"""Procedures and functions of APOC that the project calls; what Neo4j itself has is always there.
"""

NEO4J_CONF: Final = """\
# Written at every start by embed_pipeline.devserver; changes made here are lost.

# Nothing but Bolt, and nothing but this machine.
server.default_listen_address={host}
server.default_advertised_address={host}
server.bolt.listen_address={host}:{bolt_port}
server.bolt.advertised_address={host}:{bolt_port}
server.http.enabled=false
server.https.enabled=false
dbms.security.auth_enabled=true
dbms.usage_report.enabled=false

# An injected statement reads no file of this machine, and asks no address
# for anything (LOAD CSV is the only clause that does).
dbms.security.allow_csv_import_from_file_urls=false
internal.dbms.cypher_ip_blocklist=0.0.0.0/0,::/0

server.directories.plugins={plugins}
# APOC brings 190 procedures, among them those that read files and addresses, run any statement
# or start others later. Only what the queue calls is loaded.
dbms.security.procedures.allowlist={allowed}
# Of these only triggers reach into the kernel [ran].
dbms.security.procedures.unrestricted=apoc.trigger.*

server.memory.heap.initial_size={heap}
server.memory.heap.max_size={heap}
server.memory.pagecache.size={pagecache}

# Else Bolt waits twice 5 s for requests after the databases are closed (a stop took 10.6 s).
internal.dbms.bolt.netty_server_shutdown_quiet_period=0

# No endless waits for a lock: a paused client would otherwise stop all others.
db.lock.acquisition.timeout=10s
# The last resort against a forgotten transaction. Not lower: apoc.periodic.iterate,
# CALL … IN TRANSACTIONS and db.awaitIndexes keep one transaction open over all their batches.
# The queue sets 10 s on each of its own. (Index population is no transaction.)
db.transaction.timeout=10m

# Keep just what recovery needs: the default of two days fills laptops.
db.tx_log.rotation.retention_policy=keep_none
db.tx_log.rotation.size=32m
"""

APOC_CONF: Final = """\
# Written at every start by embed_pipeline.devserver; changes made here are lost.
apoc.trigger.enabled=true
# Milliseconds until a trigger that was just installed works; the default is a minute.
apoc.trigger.refresh=1000
"""

JVM_OPTIONS: Final = (
    "-XX:+UseG1GC",
    "-XX:-OmitStackTraceInFastThrow",
    # A server without memory half works; one that ended is noticed.
    "-XX:+ExitOnOutOfMemoryError",
    # Else a crash writes its report into the folder where the server was started.
    "-XX:ErrorFile=logs/jvm-crash-%p.log",
    "-Djdk.nio.maxCachedBufferSize=1024",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dlog4j2.disable.jmx=true",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
)


@dataclass(frozen=True)
class Memory:
    """How much memory the server takes, in the notation of Java and Neo4j (``512m``, ``2g``)."""

    heap: str = "1g"
    pagecache: str = "512m"


@dataclass(frozen=True)
class Tuning:
    """What a server gets beside what every server gets."""

    java_options: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of ``neo4j.conf``."""


def write_config(
    home: Path, *, jars: Path, bolt_port: int, memory: Memory, tuning: Tuning | None = None
) -> None:
    """Write ``conf/neo4j.conf`` and ``conf/apoc.conf`` below ``home``."""
    settings = tuning.settings if tuning else {}
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    content = NEO4J_CONF.format(
        host=HOST,
        bolt_port=bolt_port,
        plugins=jars / "plugins",
        allowed=",".join(ALLOWED_PROCEDURES),
        heap=memory.heap,
        pagecache=memory.pagecache,
    )
    content += "".join(f"{name}={value}\n" for name, value in settings.items())
    (conf / "neo4j.conf").write_text(content, encoding="utf-8")
    (conf / "apoc.conf").write_text(APOC_CONF, encoding="utf-8")


def server_command(
    java: Path,
    main_class: str,
    *,
    home: Path,
    jars: Path,
    memory: Memory,
    tuning: Tuning | None = None,
) -> list[str]:
    """The command line of the server, to be run in its home.

    ``home_argument`` in it tells it from other processes.
    """
    # APOC must be on the class path too, not only in the plugin folder: otherwise Neo4j cannot
    # inject ApocConfig into its procedures.
    class_path = f"{jars}/plugins/*:{jars}/lib/*"
    return [
        str(java),
        f"-Xms{memory.heap}",
        f"-Xmx{memory.heap}",
        *JVM_OPTIONS,
        *(tuning.java_options if tuning else ()),
        "-cp",
        class_path,
        main_class,
        home_argument(home),
        # Relative to the home, where the process runs: APOC cuts this out of the command line with
        # a pattern of its own, which fails at some folder names, and triggers are off then.
        "--config-dir=conf",
        # Else Neo4j is silent on stdout, and what ended this start is hidden among older ones.
        "--console-mode",
    ]


def home_argument(home: Path) -> str:
    """The argument that identifies a process as the server of ``home``."""
    return f"--home-dir={home}"
