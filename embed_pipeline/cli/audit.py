"""``embed-pipeline audit log``: who did what to the queue."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from embed_pipeline.cli.base import (
    AsJson,
    at,
    console,
    duration,
    print_json,
    safe,
    show,
    table,
    with_queue,
)
from embed_pipeline.domain.audit import OperatorAction

app = typer.Typer(help="What operators did to the queue.", no_args_is_help=True)


@app.callback()
def audit() -> None:
    """What operators did to the queue."""


@app.command()
def log(
    since: Annotated[
        timedelta | None,
        typer.Option(parser=duration, metavar="DURATION", help="Not longer ago: 30s, 15m, 2h, 7d."),
    ] = None,
    action: Annotated[
        list[OperatorAction] | None, typer.Option(help="Only this action; may be repeated.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    json: AsJson = False,
) -> None:
    """Show who cancelled, retried, released, paused, resumed, cleared or purged, newest first.

    Entries are kept for EMBED_JOB_RETENTION_DAYS.
    """
    from embed_pipeline.store.audit import FOR_EVER

    entries = with_queue(
        lambda queue, _: queue.audit.recent(within=since or FOR_EVER, actions=action, limit=limit)
    )
    if json:
        print_json(entries)
        return
    rows = table("TIME", "ACTOR", "ACTION", "COUNT", "ASKED FOR", "RUN")
    for entry in entries:
        count = f"{entry.count}" if entry.is_complete else f"{entry.count} (not finished)"
        actor, asked = safe(entry.actor), safe(entry.filter)
        run = safe(entry.run_id or "")
        rows.add_row(at(entry.at), actor, safe(entry.action), count, asked, run)
    if entries:
        show(rows)
    else:
        console.print("No such actions.")
