"""``embed-pipeline plan``: what embedding will take, before anybody pays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from embed_pipeline.cli.base import AsJson, as_plain, at, print_json, safe, show, table, with_queue
from embed_pipeline.domain.words import span

if TYPE_CHECKING:
    from embed_pipeline.domain.plan import Plan, Planned
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.queue import Queue


def plan(
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A model that is not set, to compare. [the one set]"),
    ] = None,
    json: AsJson = False,
) -> None:
    """Say what is to be embedded, and what that takes: tokens, requests, money, time.

    Reads every entity and changes none. The plan for the model that is set is kept; the next one
    says what was charged since.
    """
    from embed_pipeline.operations.following import settings_for_model
    from embed_pipeline.operations.planning import make_plan
    from embed_pipeline.store.plans import last_plan, save_plan

    async def work(queue: Queue, settings: Settings) -> tuple[Plan, Planned | None]:
        chosen = settings_for_model(settings, model) if model else settings
        made = await make_plan(queue, chosen)
        before = await last_plan(queue, made.model)
        if chosen is settings:
            await save_plan(queue, made)
        return made, before

    made, before = with_queue(work)
    if json:
        print_json(as_plain(made) | {"usd": made.usd, "last_plan": as_plain(before)})
        return
    rows = table()
    for name, value in plan_rows(made, before):
        rows.add_row(name, safe(value))
    show(rows)


def plan_rows(made: Plan, before: Planned | None) -> Iterator[tuple[str, str]]:
    """The plan as rows."""
    yield "Model", made.model
    yield "Entities", str(made.entities)
    for kind, number in made.kinds.items():
        yield f"  {kind.replace('_', ' ')}", str(number)
    in_pieces = f" in {made.pieces:,} pieces" if made.pieces != made.texts else ""
    yield "To be embedded", f"{made.texts:,} texts{in_pieces}, {made.tokens:,} tokens"
    yield "Requests", f"{made.requests:,}"
    yield "Cost", made.cost
    yield "Time", "nothing limits it" if made.time is None else f"at least {span(made.time)}"
    if before is not None:
        charged = f"{before.charged_tokens:,} charged since ({before.percent:.1f} %)"
        yield "Last plan", f"{at(before.at)}: {before.tokens:,} tokens planned, {charged}"
    for assumption in made.assumptions:
        yield "Assumed", assumption
