"""The ``embed-pipeline`` command: thin; everything it does is done elsewhere."""

import asyncio
import logging
import sys
from typing import Annotated

import typer
from rich.table import Table

from embed_pipeline import (
    cli_drain,
    cli_entities,
    cli_history,
    cli_jobs,
    cli_neo4j,
    cli_queue,
    wiring,
)
from embed_pipeline import doctor as examination
from embed_pipeline.cli_base import complaints, console, safe, with_database
from embed_pipeline.domain.errors import EmbedPipelineError
from embed_pipeline.settings import Settings, load_settings
from embed_pipeline.store.connection import Driver
from embed_pipeline.store.schema_state import InstallReport

COLOURS = {
    examination.Mark.GOOD: "green",
    examination.Mark.WARNING: "yellow",
    examination.Mark.BAD: "red",
    examination.Mark.SKIPPED: "dim",
}

app = typer.Typer(
    help="Keep every entity of a Neo4j knowledge graph embedded.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
sample = typer.Typer(help="The sample graph.", no_args_is_help=True)
app.add_typer(cli_neo4j.app, name="neo4j")
app.add_typer(sample, name="sample")
app.add_typer(cli_jobs.app, name="jobs")


def main() -> None:
    """Run the command; an expected error is a message and an exit code, never a traceback."""
    # The driver announces each retry; what came of it is said once, by us.
    logging.getLogger("neo4j").setLevel(logging.CRITICAL)
    try:
        app()
    except EmbedPipelineError as error:
        complaints.print(f"[red]✗[/] {safe(error)}", soft_wrap=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


@app.command()
def dev(
    port: Annotated[
        int,
        typer.Option(
            help="Port of the Dagster UI.", envvar="EMBED_PIPELINE_PORT", min=1024, max=65535
        ),
    ] = 3000,
    bolt_port: cli_neo4j.BoltPort = None,
) -> None:
    """Start everything on this machine: Neo4j, schema, sample graph, Dagster UI."""
    from embed_pipeline.local import dev as development

    development.run(
        load_settings(), console=console, server=cli_neo4j.bundled_server(bolt_port), port=port
    )


@app.command()
def init(
    replace_vector_index: Annotated[
        bool,
        typer.Option(help="Drop a vector index of other dimensions; vectors stay on the nodes."),
    ] = False,
    triggers: Annotated[
        bool | None,
        typer.Option(
            "--with-triggers/--without-triggers",
            help="Install or drop the APOC trigger that enqueues entities as they are written.",
        ),
    ] = None,
) -> None:
    """Create the constraints and indexes; safe to repeat."""

    async def work(driver: Driver, settings: Settings) -> InstallReport:
        report = await wiring.install_schema(
            driver, settings, replace_vector_index=replace_vector_index
        )
        if triggers is not None:
            await _set_trigger(driver, settings, install=triggers)
        return report

    report = with_database(work)
    for name in report.created:
        console.print(f"  created       {name}")
    for name in report.present:
        console.print(f"  already there {name}")
    console.print(f"✓ Schema version {report.version}")


async def _set_trigger(driver: Driver, settings: Settings, *, install: bool) -> None:
    trigger = wiring.queue_on(driver, settings).triggers(settings.model)
    if not install:
        await trigger.drop()
        console.print("✓ No trigger; 'embed-pipeline reconcile' finds what is to be embedded")
        return
    with console.status("Waiting until the server runs the trigger"):
        state = await trigger.install()
    if state.is_active:
        console.print(f"✓ The trigger enqueues every change for {safe(settings.model)}")
    else:
        console.print("! The trigger is installed; the server runs it after its next refresh")


@sample.command("load")
def sample_load() -> None:
    """Add the sample graph: a few hundred entities with prose; safe to repeat."""
    from embed_pipeline.local.sample import load_sample

    count = with_database(
        lambda driver, settings: load_sample(
            driver, database=settings.neo4j_database, shape=settings.entity_shape
        )
    )
    console.print(f"✓ {count} entities added" if count else "✓ The sample graph is already there")


for command in (
    cli_entities.enqueue,
    cli_entities.reconcile,
    cli_drain.drain,
    cli_queue.status,
    cli_entities.search,
    cli_queue.pause,
    cli_queue.resume,
    cli_queue.recover,
    cli_queue.cleanup,
    cli_history.report,
    cli_history.metrics,
):
    app.command()(command)


@app.command()
def doctor(
    settings_only: Annotated[
        bool, typer.Option("--settings-only", help="Check the settings and nothing else.")
    ] = False,
    probe: Annotated[
        bool, typer.Option("--probe", help="Embed one word, also where that costs money.")
    ] = False,
) -> None:
    """Check settings, Neo4j, APOC, schema and provider, and say what to do.

    Exit code: 0 all right, 2 configuration, 3 unreachable, 4 credentials, 5 schema.
    """
    settings = load_settings()
    findings = examination.examine_settings(settings)
    if not settings_only:

        async def collect() -> None:
            async for finding in examination.examine(settings, ask_provider=probe):
                findings.append(finding)

        with console.status("Looking"):
            asyncio.run(collect())
    _print(findings)
    raise typer.Exit(next((f.exit_code for f in findings if f.exit_code), 0))


def _print(findings: list[examination.Finding]) -> None:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for finding in findings:
        text = safe(finding.detail)
        if finding.remedy:
            text += f"\n[dim]→[/] {safe(finding.remedy)}"
        table.add_row(f"[{COLOURS[finding.mark]}]{finding.mark}", finding.subject, text)
    console.print(table)
