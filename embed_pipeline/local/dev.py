"""``embed-pipeline dev``: everything on this machine, from one command to one Ctrl-C."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

from rich.console import Console
from rich.text import Text

from embed_pipeline import wiring
from embed_pipeline.domain.printable import printable
from embed_pipeline.local.console import start_visibly
from embed_pipeline.local.dagster_process import DagsterProcess, check_ui_port
from embed_pipeline.local.dev_session import DevSession, dev_session
from embed_pipeline.local.errors import LocalServerError
from embed_pipeline.local.neo4j_server import Neo4jServer
from embed_pipeline.local.sample import load_into_empty_graph
from embed_pipeline.paths import dagster_home, project_dir, state_dir
from embed_pipeline.settings import Settings
from embed_pipeline.store.connection import connected

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


def run(settings: Settings, *, console: Console, server: Neo4jServer, port: int) -> None:
    """Start what is needed, say where it is, and stop it all at Ctrl-C."""
    try:
        with _terminated_like_interrupted(), dev_session(state_dir()) as session:
            if session.dagster_group:
                DagsterProcess.stop_leftover(session.dagster_group, project=project_dir())
            check_ui_port(port)
            with ExitStack() as cleanup:
                _run(settings, session, cleanup, console=console, server=server, port=port)
    except KeyboardInterrupt:
        with suppress(OSError):
            console.print("✓ Stopped")


def _run(
    settings: Settings,
    session: DevSession,
    cleanup: ExitStack,
    *,
    console: Console,
    server: Neo4jServer,
    port: int,
) -> None:
    if settings.uses_bundled_server:
        if start_visibly(server, console):
            session.note(neo4j=True)
        if session.started_neo4j:
            cleanup.callback(_stop, server, "Neo4j", console)
    _prepare_database(settings, console)
    console.print("▸ Dagster is starting")
    dagster = DagsterProcess(
        project=project_dir(),
        home=dagster_home(),
        port=port,
        on_alarm=lambda line: _show_alarm(console, line),
    )
    cleanup.callback(_stop, dagster, "Dagster", console)
    session.note(dagster_group=dagster.group)
    dagster.wait_until_loaded()
    _print_addresses(settings, console, dagster, server)
    dagster.wait()
    raise LocalServerError(f"Dagster ended by itself; why stands in {dagster.log_file}")


def _show_alarm(console: Console, line: str) -> None:
    """Show a line of Dagster's log, which has colours of its own and may quote anything."""
    console.print(printable(Text.from_ansi(line).plain), style="yellow", markup=False)


def _prepare_database(settings: Settings, console: Console) -> None:
    async def main() -> None:
        async with connected(wiring.connection(settings)) as driver:
            report = await wiring.install_schema(driver, settings)
            console.print(f"▸ Schema: {len(report.created)} created, {len(report.present)} there")
            # Nobody wants strangers in a graph of their own.
            if settings.uses_bundled_server:
                loaded = await load_into_empty_graph(
                    driver, database=settings.neo4j_database, shape=settings.entity_shape
                )
                if loaded:
                    console.print(f"▸ Sample graph: {loaded} entities")

    asyncio.run(main())


def _print_addresses(
    settings: Settings, console: Console, dagster: DagsterProcess, server: Neo4jServer
) -> None:
    where: dict[str, object] = {"Dagster UI": dagster.url, "Neo4j": settings.neo4j_uri}
    if settings.uses_bundled_server:
        where["Cypher prompt"] = "embed-pipeline neo4j shell"
        where["Graph data"] = _short(server.home)
    where["Dagster data"] = _short(dagster.home)
    where["Logs"] = _short(dagster.log_file)
    console.print()
    for name, value in where.items():
        console.print(f"  {name:<14} {value}", highlight=False, soft_wrap=True)
    console.print("\n✓ Running. Ctrl-C stops everything; the data stays.\n")


def _stop(part: DagsterProcess | Neo4jServer, name: str, console: Console) -> None:
    # The terminal may be gone, and that must not keep anything alive.
    with suppress(OSError):
        console.print(f"▸ Stopping {name}")
    part.stop()


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Let a closed terminal or a plain ``kill`` end everything as cleanly as Ctrl-C."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in STOP_SIGNALS}
    # In the background of a script Ctrl-C is ignored; `kill -INT` should work all the same.
    before[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
