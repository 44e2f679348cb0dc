"""``embed-pipeline limits``: the rate limit that all workers share, and who made it wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from embed_pipeline.cli.base import (
    AsJson,
    Yes,
    at,
    confirm,
    console,
    print_json,
    safe,
    show,
    table,
    with_queue,
)
from embed_pipeline.cli.jobs_change import Preview
from embed_pipeline.domain.holds import HOW_TO_END
from embed_pipeline.domain.words import span

if TYPE_CHECKING:
    from embed_pipeline.domain.holds import Hold
    from embed_pipeline.domain.rate_window import LimiterState
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.queue import Queue

app = typer.Typer()


@app.callback(invoke_without_command=True)
def limits(context: typer.Context, json: AsJson = False) -> None:
    """Show the rate limit that all workers share: how much is used, and who made it wait.

    Queues with the same EMBEDDING_RATE_LIMIT_NAME share one.
    """
    if context.invoked_subcommand is not None:
        return
    state = with_queue(_read)
    if json:
        print_json(state)
        return
    rows = table()
    for name, value in limit_rows(state):
        rows.add_row(f"[bold red]{name}" if name in ("Held", "Budget used") else name, safe(value))
    show(rows)


def limit_rows(state: LimiterState) -> Iterator[tuple[str, str]]:
    """The state of the limiter as rows."""
    yield "Name", state.name
    yield "Allowed", str(state.limits)
    yield "Used", f"{state.requests} requests, {state.tokens} tokens"
    when = f"in {span(state.wait)}, at {at(state.at + state.wait)}" if state.wait else "now"
    yield "Next request", when
    for use in state.budget:
        yield "Budget used" if use.is_spent else "Budget", str(use)
    if (hold := state.hold) is not None:
        yield "Held", f"for {span(hold.until - state.at)}: {hold}; {HOW_TO_END}"


@app.command()
def clear(preview: Preview = False, yes: Yes = False) -> None:
    """End a pause that the provider has asked for, for everybody who shares the limit.

    What was sent still counts against the limit. Drains that wait go on within seconds.
    """
    from embed_pipeline.operations import wiring

    async def work(queue: Queue, settings: Settings) -> Hold | None:
        hold = (await _read(queue, settings)).hold
        if hold is None or preview:
            return hold
        confirm(f"End this pause: {hold}?", yes=yes)
        return await wiring.open_limiter(queue, settings).clear()

    hold = with_queue(work)
    if hold is None:
        console.print("▸ The provider has asked for no pause; nothing was changed")
    elif preview:
        console.print(f"▸ Would end this: {safe(hold)}; nothing was changed", soft_wrap=True)
    else:
        console.print(f"✓ Ended: {safe(hold)}", soft_wrap=True)


async def _read(queue: Queue, settings: Settings) -> LimiterState:
    from embed_pipeline.operations import wiring

    return await wiring.open_limiter(queue, settings).read()
