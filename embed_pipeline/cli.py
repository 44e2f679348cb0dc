"""The ``embed-pipeline`` command: thin; everything it does is done elsewhere."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from embed_pipeline import cli_neo4j, wiring
from embed_pipeline import doctor as examination
from embed_pipeline.domain.errors import EmbedPipelineError
from embed_pipeline.settings import Settings, load_settings
from embed_pipeline.store import schema
from embed_pipeline.store.connection import Driver, connected

Result = TypeVar("Result")
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
console = Console(highlight=False)


def main() -> None:
    """Run the command; an expected error is a message and an exit code, never a traceback."""
    # The driver announces each retry; what came of it is said once, by us.
    logging.getLogger("neo4j").setLevel(logging.CRITICAL)
    try:
        app()
    except EmbedPipelineError as error:
        Console(stderr=True, highlight=False).print(
            f"[red]✗[/] {escape(str(error))}", soft_wrap=True
        )
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


def with_database(work: Callable[[Driver, Settings], Awaitable[Result]]) -> Result:
    """Do ``work`` with a driver; its errors become messages."""
    settings = load_settings()

    async def run() -> Result:
        async with connected(wiring.connection(settings)) as driver:
            return await work(driver, settings)

    return asyncio.run(run())


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
) -> None:
    """Create the constraints and indexes; safe to repeat."""
    report = with_database(
        lambda driver, settings: schema.install(
            driver,
            database=settings.neo4j_database,
            shape=settings.entity_shape,
            dimensions=settings.dimensions,
            replace_vector_index=replace_vector_index,
        )
    )
    for name in report.created:
        console.print(f"  created       {name}")
    for name in report.present:
        console.print(f"  already there {name}")
    console.print(f"✓ Schema version {report.version}")


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
        text = escape(finding.detail)
        if finding.remedy:
            text += f"\n[dim]→[/] {escape(finding.remedy)}"
        table.add_row(f"[{COLOURS[finding.mark]}]{finding.mark}", finding.subject, text)
    console.print(table)
