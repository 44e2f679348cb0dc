"""``embed-pipeline cutover``: another model without a search that fails or mixes the two."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from embed_pipeline.cli.base import (
    AsJson,
    Yes,
    at,
    confirm,
    console,
    duration,
    operator,
    print_json,
    safe,
    show,
    table,
    with_database,
)
from embed_pipeline.cli.plan import plan_rows
from embed_pipeline.domain.vector import MOST_DIMENSIONS

if TYPE_CHECKING:
    from embed_pipeline.domain.cutover import Alias, Gate
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.connection import Driver

app = typer.Typer(
    help="Change to another model beside the live one, and back.", no_args_is_help=True
)


@app.command()
def start(
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="The other model; else that of the settings.")
    ] = None,
    provider: Annotated[
        Literal["openai", "local", "local-fast", "mock"] | None,
        typer.Option(help="The provider; else the one that is known to have the model."),
    ] = None,
    dimensions: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_DIMENSIONS, help="Length of its vectors; else the model's."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Fill another model beside the live one; searches go on undisturbed.

    Its vectors get a property, an index and a queue of their own, and share the rate limit. Without
    options the model is that of the settings. Safe to repeat.
    """
    from embed_pipeline.operations import cutover
    from embed_pipeline.operations.following import wanted_settings

    async def work(driver: Driver, settings: Settings) -> None:
        wanted = wanted_settings(settings, model=model, provider=provider, dimensions=dimensions)
        plan = await cutover.plan(driver, settings, wanted)
        rows = table()
        rows.add_row("Live", f"{safe(plan.live)}, index {safe(plan.live.index)}")
        rows.add_row("Candidate", f"{safe(plan.candidate)}, index {safe(plan.candidate.index)}")
        for name, value in plan_rows(plan.cost, None):
            rows.add_row(name, safe(value))
        show(rows)
        confirm("Fill the candidate beside the live one?", yes=yes)
        with console.status("Preparing the candidate"):
            scan = await cutover.start(driver, settings, plan, operator=operator())
        new = sum(number for kind, number in scan.enqueued.items() if kind != "present")
        console.print(
            f"✓ {new} jobs enqueued for {safe(plan.candidate)}. Drains serve both from here on "
            "(a running Dagster does, else run 'embed-pipeline drain'); then "
            "'embed-pipeline cutover status' and 'embed-pipeline cutover go'",
            soft_wrap=True,
        )

    with_database(work)


@app.command()
def status(json: AsJson = False) -> None:
    """Say which model is live, which one is beside it, and whether its gates let it go live."""
    from embed_pipeline.domain.cutover import Phase
    from embed_pipeline.operations import cutover
    from embed_pipeline.operations.following import difference

    async def work(
        driver: Driver, settings: Settings
    ) -> tuple[Alias | None, list[Gate], str | None]:
        alias = await cutover.read(driver, settings)
        if alias is None or alias.phase not in (Phase.FILLING, Phase.ROLLED_BACK):
            return alias, [], difference(settings, alias)
        found = await cutover.gates(driver, settings, alias)
        return alias, found, difference(settings, alias)

    alias, gates, differs = with_database(work)
    if json:
        print_json({"alias": alias, "gates": gates, "differs": differs})
        return
    if alias is None:
        console.print("▸ There has been no cut-over; the model of the settings is live")
        return
    rows = table()
    rows.add_row("Live", f"{safe(alias.live)}, index {safe(alias.live.index)}")
    rows.add_row("Since", f"{at(alias.since)}, epoch {alias.epoch}")
    if alias.other:
        rows.add_row("Beside it", f"{safe(alias.other)}, index {safe(alias.other.index)}")
    rows.add_row("Cut-over", str(alias.phase) if alias.phase else "none is under way")
    for gate in gates:
        mark = "[green]green[/]" if gate.passed else "[bold red]red[/]"
        rows.add_row(gate.name, f"{mark}  {safe(gate.detail)}")
    if differs:
        rows.add_row("[yellow]Settings differ", safe(differs))
    show(rows)


@app.command()
def go() -> None:
    """Make the candidate the live one, if every gate is green."""
    from embed_pipeline.operations import cutover

    alias, gates = with_database(
        lambda driver, settings: cutover.go(driver, settings, operator=operator())
    )
    for gate in gates:
        console.print(f"  green  {safe(gate)}", soft_wrap=True)
    _say_live(alias)


@app.command()
def rollback() -> None:
    """Make the former model live again; it was kept fresh."""
    from embed_pipeline.operations import cutover

    _say_live(
        with_database(
            lambda driver, settings: cutover.rollback(driver, settings, operator=operator())
        )
    )


@app.command()
def finish(
    grace: Annotated[
        timedelta | None,
        typer.Option(
            parser=duration, metavar="DURATION", help="It has not been searched for so long. [1h]"
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Even if it may still be searched.")
    ] = False,
    keep_index_name: Annotated[
        bool,
        typer.Option(
            "--keep-index-name",
            help="The index of the live model gets the name of the former one: it is made anew, "
            "and searches wait meanwhile. No grace.",
        ),
    ] = False,
    yes: Yes = False,
) -> None:
    """Remove the model that is not live: its index, its vectors and its jobs. Safe to repeat."""
    from embed_pipeline.domain.cutover import GRACE
    from embed_pipeline.operations import cutover

    async def work(driver: Driver, settings: Settings) -> tuple[object, int]:
        alias = await cutover.read(driver, settings)
        if alias and alias.other:
            confirm(f"Remove all vectors of {alias.other}? {alias.live} stays.", yes=yes)
        return await cutover.finish(
            driver,
            settings,
            grace=grace or GRACE,
            force=force,
            keep_index_name=keep_index_name,
            operator=operator(),
        )

    removed, entities = with_database(work)
    console.print(f"✓ {safe(removed)} is removed, with the vectors of {entities} entities")


def _say_live(alias: Alias) -> None:
    console.print(
        f"✓ {safe(alias.live)} is live, index {safe(alias.live.index)}, epoch {alias.epoch}. "
        f"{safe(alias.other)} stays fresh beside it until 'embed-pipeline cutover finish'",
        soft_wrap=True,
    )
