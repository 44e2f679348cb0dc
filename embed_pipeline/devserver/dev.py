"""``embed-pipeline dev``: everything on this machine, from one command to one Ctrl-C."""

from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final, cast

from rich.console import Console
from rich.text import Text

from embed_pipeline.devserver.console import start_visibly
from embed_pipeline.devserver.dagster_process import DagsterProcess, check_ui_port
from embed_pipeline.devserver.dev_session import DevSession, dev_session
from embed_pipeline.devserver.errors import LocalServerError
from embed_pipeline.devserver.leftovers import stop_leftovers
from embed_pipeline.devserver.neo4j_server import Neo4jServer
from embed_pipeline.devserver.offering import Ask, can_be_asked, hear_yes, offer_change
from embed_pipeline.devserver.output import Outlet, Speaker
from embed_pipeline.devserver.sample import load_into_empty_graph
from embed_pipeline.devserver.stop_signals import StopSignals
from embed_pipeline.domain.errors import SchemaError
from embed_pipeline.domain.identity import CHANGE_MODEL
from embed_pipeline.domain.redact import printable
from embed_pipeline.operations import wiring
from embed_pipeline.operations.blocking import finish
from embed_pipeline.operations.following import difference, install_live, read_live
from embed_pipeline.operations.sides import name_live
from embed_pipeline.paths import dagster_home, program, project_dir, state_dir
from embed_pipeline.settings import Settings
from embed_pipeline.store.connection import Driver, connected

CHANGE_FROM_HERE: Final = "embed-pipeline dev --change-model"


def run(
    embeddings: tuple[Settings, ...],
    *,
    console: Console,
    server: Neo4jServer,
    port: int,
    change_model: bool = False,
) -> None:
    """Start what is needed, say where it is, and stop it all when told to.

    Ctrl-C, SIGTERM, and a terminal or pipe that was closed mean stop. Started with SIGHUP
    ignored, as by ``nohup``, it goes on without anybody who reads its output.
    """
    outlet = Outlet(console.file)
    console.file = cast("IO[str]", outlet)
    speaker = Speaker(console)
    try:
        with StopSignals() as signals, dev_session(state_dir()) as session:
            if stop_leftovers(dagster_home()):
                speaker.say("▸ Stopped the Dagster of an earlier start that had been left running")
            check_ui_port(port)
            with ExitStack() as cleanup:
                settings = embeddings[0]
                if settings.uses_bundled_server:
                    _start_neo4j(server, session, cleanup, console)
                ask = hear_yes if can_be_asked() else None
                for each in embeddings:
                    prepare_database(each, speaker, change_model=change_model, ask=ask)
                speaker.say("▸ Dagster is starting")
                dagster = _start_dagster(port, signals, cleanup, speaker)
                # Whatever ends the wait: from here on only the stop is under way.
                cleanup.callback(speaker.say, "▸ Stopping; another Ctrl-C does not wait for runs")
                cleanup.callback(signals.stop)
                dagster.wait_until_loaded()
                _say_addresses(settings, speaker, dagster, server)
                if not dagster.wait(lambda: outlet.is_gone and not signals.outlive_hang_up):
                    raise LocalServerError(
                        f"Dagster ended by itself; why stands in {dagster.log_file}"
                    )
    except KeyboardInterrupt:
        speaker.say("✓ Stopped")
    finally:
        speaker.close()


def _start_neo4j(
    server: Neo4jServer, session: DevSession, cleanup: ExitStack, console: Console
) -> None:
    # Noted before it is started: interrupted in between, nothing else would stop it.
    if not server.status().running:
        session.note(neo4j=True)
    if session.started_neo4j:
        cleanup.callback(server.stop)
    start_visibly(server, console)


def _start_dagster(
    port: int, signals: StopSignals, cleanup: ExitStack, speaker: Speaker
) -> DagsterProcess:
    with signals.held_back():
        dagster = DagsterProcess(
            project=project_dir(),
            home=dagster_home(),
            port=port,
            on_alarm=lambda line: _say_alarm(speaker, line),
        )
        cleanup.callback(dagster.stop)
    return dagster


def _say_alarm(speaker: Speaker, line: str) -> None:
    """Print a line of Dagster's log; it has its own colours and may quote untrusted text."""
    speaker.say(printable(Text.from_ansi(line).plain), style="yellow")


def prepare_database(
    as_set: Settings, speaker: Speaker, *, change_model: bool, ask: Ask | None = None
) -> None:
    """Create the schema, and load the sample graph into an empty graph of our own.

    ``ask``: where the settings name another model than the live one, somebody can be asked whether
    it is to be filled now.

    Raises:
        SchemaError: the database holds something that contradicts, such as another model.
    """

    async def main() -> bool:
        async with connected(wiring.connection(as_set)) as driver:
            is_wanted = await _say_what_is_live(driver, as_set, speaker, change_model=change_model)
            report, settings = await install_live(driver, as_set, change_model=change_model)
            speaker.say(f"▸ Schema: {len(report.created)} created, {len(report.present)} there")
            # No sample in a graph of the user's own, nor a trigger that was not asked for.
            if settings.uses_bundled_server:
                trigger = await wiring.trigger_on(driver, settings).install()
                if trigger.is_active:
                    speaker.say("▸ Trigger: every write has its job when it is acknowledged")
                else:
                    speaker.say("! The trigger is installed, but the server does not run it yet")
                loaded = await load_into_empty_graph(
                    driver, database=settings.neo4j_database, shape=settings.entity_shape
                )
                if loaded:
                    speaker.say(f"▸ Sample graph: {loaded} entities")
        return is_wanted

    try:
        is_wanted = finish(main())
    except SchemaError as error:
        # The server that 'init' would need ends with this session.
        raise type(error)(str(error).replace(CHANGE_MODEL, CHANGE_FROM_HERE)) from None
    if is_wanted and ask is not None:
        offer_change(as_set, speaker, command=program(), ask=ask)


async def _say_what_is_live(
    driver: Driver, as_set: Settings, speaker: Speaker, *, change_model: bool
) -> bool:
    """Go on with the live model when the settings name another one, and say how to change it.

    Says whether a cut-over to it could begin.
    """
    if not change_model and await wiring.queue_on(driver, as_set).identity.refusal():
        await name_live(driver, as_set)
    following = await read_live(wiring.queue_on(driver, as_set).database, as_set)
    if differs := difference(as_set, following.alias):
        said = printable(differs).replace("embed-pipeline cutover", f"{program()} cutover")
        speaker.say(f"! {said}", style="yellow")
    return differs is not None and following.alias is not None and following.alias.other is None


def _say_addresses(
    settings: Settings, speaker: Speaker, dagster: DagsterProcess, server: Neo4jServer
) -> None:
    where: dict[str, object] = {"Dagster UI": dagster.url, "Neo4j": settings.neo4j_uri}
    if settings.uses_bundled_server:
        where["Cypher prompt"] = f"{program()} neo4j shell"
        where["Graph data"] = _short(server.home)
    where["Dagster data"] = _short(dagster.home)
    where["Logs"] = _short(dagster.log_file)
    speaker.say("")
    for name, value in where.items():
        speaker.say(f"  {name:<14} {value}")
    speaker.say("\n✓ Running. Ctrl-C stops everything; the data stays.\n")


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
