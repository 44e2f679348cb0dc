"""The ``embed-pipeline`` command: thin; everything it does is done elsewhere."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from embed_pipeline.cli import (
    audit,
    compare,
    cutover,
    doctor,
    drain,
    entities,
    explain,
    history,
    jobs,
    limits,
    mcp,
    neo4j,
    plan,
    quality,
    queue,
    status,
    support,
)
from embed_pipeline.cli.base import (
    choose,
    complain,
    console,
    each_chosen,
    operator,
    safe,
    with_database,
)
from embed_pipeline.domain.errors import EmbedPipelineError
from embed_pipeline.domain.redact import printable
from embed_pipeline.lean import load_libraries_alone

if TYPE_CHECKING:
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.connection import Driver
    from embed_pipeline.store.schema.state import InstallReport

app = typer.Typer(
    help="Keep every entity of a Neo4j knowledge graph embedded.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
ChangeModel = Annotated[
    bool,
    typer.Option(
        "--change-model",
        help="Let the queue belong to the model, dimensions and template of these settings: every "
        "entity is embedded again, a vector index of other dimensions is replaced.",
    ),
]
sample = typer.Typer(help="The sample graph.", no_args_is_help=True)
app.add_typer(neo4j.app, name="neo4j")
app.add_typer(sample, name="sample")
app.add_typer(jobs.app, name="jobs")
app.add_typer(limits.app, name="limits")
app.add_typer(audit.app, name="audit")
app.add_typer(cutover.app, name="cutover")


@app.callback()
def _choose(
    embedding: Annotated[
        str | None,
        typer.Option(
            "--embedding",
            metavar="NAME",
            help="Which embedding of embeddings.yaml is meant, before or after the command; "
            "without it, init, status, doctor and metrics are about all.",
        ),
    ] = None,
) -> None:
    choose(embedding)


def _embedding_first(words: list[str]) -> list[str]:
    """Move ``--embedding`` to the front of the arguments, where global options stand."""
    end = words.index("--") if "--" in words else len(words)
    for at, word in enumerate(words[:end]):
        if word == "--embedding" or word.startswith("--embedding="):
            length = 1 if "=" in word else 2
            return [*words[at : at + length], *words[:at], *words[at + length :]]
    return words


def main() -> None:
    """Run the command; an expected error is a message and an exit code, never a traceback.

    An unexpected one is a traceback without secrets, fit for bug reports.
    """
    load_libraries_alone()
    # The driver announces each retry; what came of it is said once, by us.
    logging.getLogger("neo4j").setLevel(logging.CRITICAL)
    try:
        app(_embedding_first(sys.argv[1:]))
    except EmbedPipelineError as error:
        complain(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        from traceback import format_exception

        from embed_pipeline.settings.secrets import without_secrets

        typer.echo(printable(without_secrets("".join(format_exception(error)))), err=True)
        sys.exit(1)


@app.command()
def dev(
    port: Annotated[
        int,
        typer.Option(
            help="Port of the Dagster UI.", envvar="EMBED_PIPELINE_PORT", min=1024, max=65535
        ),
    ] = 3000,
    bolt_port: neo4j.BoltPort = None,
    change_model: ChangeModel = False,
) -> None:
    """Start everything on this machine: Neo4j, schema, sample graph, Dagster UI."""
    from embed_pipeline.devserver import dev as development
    from embed_pipeline.settings.embeddings import load_embeddings

    development.run(
        load_embeddings(),
        console=console,
        server=neo4j.bundled_server(bolt_port),
        port=port,
        change_model=change_model,
    )


@app.command()
def init(
    change_model: ChangeModel = False,
    triggers: Annotated[
        bool | None,
        typer.Option(
            "--with-triggers/--without-triggers",
            help="Install or drop the APOC trigger that enqueues entities as they are written.",
        ),
    ] = None,
    quantized: Annotated[
        bool | None,
        typer.Option(
            "--quantized/--not-quantized",
            help="Whether a vector index that is made is quantized: less memory, fewer hits. "
            "[EMBED_VECTOR_INDEX_QUANTIZED]",
        ),
    ] = None,
) -> None:
    """Create the constraints and indexes; safe to repeat."""
    from embed_pipeline.operations import wiring
    from embed_pipeline.operations.following import install_live

    async def work(driver: Driver, as_set: Settings) -> InstallReport:
        report, settings = await install_live(
            driver, as_set, change_model=change_model, operator=operator()
        )
        if triggers is not None:
            await _set_trigger(driver, settings, install=triggers)
        elif change_model and (await wiring.trigger_on(driver, settings).inspect()).is_other:
            # It would go on enqueueing for the former model.
            await _set_trigger(driver, settings, install=True)
        return report

    every = each_chosen()
    for settings in every:
        if len(every) > 1:
            console.print(f"[bold]{safe(settings.queue)}")
        if quantized is not None:
            chosen = {"index_quantized": "true" if quantized else "false"}
            settings = settings.model_copy(update=chosen)
        report = with_database(work, settings)
        for name in report.created:
            console.print(f"  created       {name}")
        for name in report.present:
            console.print(f"  already there {name}")
        console.print(f"✓ Schema version {report.version}")


async def _set_trigger(driver: Driver, settings: Settings, *, install: bool) -> None:
    from embed_pipeline.operations import wiring

    trigger = wiring.trigger_on(driver, settings)
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
    from embed_pipeline.devserver.sample import load_sample

    count = with_database(
        lambda driver, settings: load_sample(
            driver, database=settings.neo4j_database, shape=settings.entity_shape
        )
    )
    console.print(f"✓ {count} entities added" if count else "✓ The sample graph is already there")


for command in (
    entities.enqueue,
    entities.reconcile,
    plan.plan,
    quality.quality,
    compare.compare,
    drain.drain,
    status.status,
    entities.search,
    explain.explain,
    queue.pause,
    queue.resume,
    queue.recover,
    queue.cleanup,
    history.report,
    history.metrics,
    mcp.mcp,
    support.support,
    doctor.doctor,
):
    app.command()(command)
