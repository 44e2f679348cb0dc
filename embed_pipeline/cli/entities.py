"""``embed-pipeline enqueue``, ``reconcile`` and ``search``: from entities to jobs and back."""

from __future__ import annotations

import sys
import time
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from embed_pipeline.cli.base import (
    AsJson,
    Yes,
    confirm,
    console,
    duration,
    is_screen,
    pasteable,
    print_json,
    safe,
    say_waiting,
    show,
    table,
    warn_about,
    with_queue,
)
from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.judging import Forced
from embed_pipeline.domain.keys import KeyValue
from embed_pipeline.domain.lifecycle import EnqueueOutcome
from embed_pipeline.domain.words import number_of
from embed_pipeline.operations.selection import jobs_for

if TYPE_CHECKING:
    from embed_pipeline.domain.misfits import Misfit
    from embed_pipeline.domain.results import Hit
    from embed_pipeline.operations.scan import Scan
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.queue import Queue

PAGE: Final = 500
LINE_SECONDS: Final = 5.0


def enqueue(
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY]...", help="Entities by their keys.")
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read keys, one per line.")] = False,
    priority: Annotated[
        int, typer.Option(metavar="N", help="Higher ones are embedded first; may be negative.")
    ] = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Ask the provider again although the text is the same.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Have entities, named by their keys, embedded in their current version.

    Says per entity: created, present (there is a job already), promoted (to a higher priority)
    or revived (a finished job is opened again). One unknown key, and nothing is enqueued.
    """
    from embed_pipeline.operations.planning import question_about_keys

    wanted = list(keys or [])
    if stdin:
        # Bytes that are no text become what the database then refuses with a message.
        sys.stdin.reconfigure(errors="surrogateescape")  # pyright: ignore[reportAttributeAccessIssue]
        wanted += [key for line in sys.stdin if (key := line.rstrip("\r\n"))]
    if not wanted:
        raise ConfigurationError("which entities? Name their keys, or give them through --stdin")

    async def work(queue: Queue, settings: Settings) -> list[EnqueueOutcome]:
        warn_about(settings)
        await queue.identity.check()
        jobs = await jobs_for(queue, wanted, model=settings.model, priority=priority, force=force)
        if question := await question_about_keys(queue, settings, wanted):
            confirm(question, yes=yes)
        return await queue.admin.enqueue(jobs)

    outcomes = with_queue(work)
    for key, outcome in zip(wanted, outcomes, strict=True):
        console.print(f"  {outcome:<8}  {safe(key)}", soft_wrap=True)
    counts = Counter(outcomes)
    console.print("✓ " + ", ".join(f"{counts[o]} {o}" for o in EnqueueOutcome if counts[o]))


def _number(text: str) -> int | float:
    try:
        # Large whole numbers lose their end as floats.
        return float(text) if set(text) & set(".enf") else int(text)
    except ValueError:
        raise ConfigurationError(
            f"--after-number is {text!r:.50}; it must be the number that 'go on with' named"
        ) from None


async def scan(
    queue: Queue,
    settings: Settings,
    *,
    after: KeyValue = "",
    limit: int | None = None,
    page_size: int = PAGE,
    dry_run: bool = False,
    force: Forced | None = None,
) -> Scan:
    """Reconcile page by page, showing how far it is; keeps the sum of all pages for ``status``."""
    from embed_pipeline.operations.scan import Scan

    total = Scan.begin(queue.reconciler(settings.model), after=after, force=force)
    said_at = time.monotonic()
    with console.status("Reading entities") as spinner:
        while not total.is_done and (limit is None or total.report.entities < limit):
            size = page_size if limit is None else min(page_size, limit - total.report.entities)
            await total.step(page_size=size, dry_run=dry_run)
            spinner.update(f"{total.report.entities} entities read")
            if not is_screen() and time.monotonic() - said_at >= LINE_SECONDS:
                console.print(f"▸ {total.report.entities} entities read")
                said_at = time.monotonic()
    is_complete = after == "" and total.is_done
    if is_complete and not dry_run:
        total.report = await total.reconciler.save(total.report)
    return total


def reconcile(
    page_size: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="N", help="Entities per transaction.")
    ] = PAGE,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Read at most so many entities.")
    ] = None,
    after: Annotated[
        str, typer.Option(metavar="KEY", help="Begin after this key, where --limit ended.")
    ] = "",
    after_number: Annotated[
        str | None,
        typer.Option(metavar="N", help="The same for keys that are numbers; they come last."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count; enqueue nothing.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Ask the provider again for those that fit, too.")
    ] = False,
    type_: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="--force: entities of this type.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="--force: vectors of this model.")
    ] = None,
    older_than: Annotated[
        timedelta | None,
        typer.Option(
            parser=duration, metavar="DURATION", help="--force: vectors older than 2h, 7d."
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Compare every entity with its vector, and enqueue what does not fit.

    Needs no trigger and finds whatever anybody wrote; safe to repeat and to interrupt. With --force
    those that fit are embedded again, too: all, or what --type, --model and --older-than name.
    """
    from embed_pipeline.operations.fit import find_misfits
    from embed_pipeline.operations.planning import question_about_force

    forced = Forced(entity_type=type_, model=model, older_than=older_than)
    if forced != Forced() and not force:
        raise ConfigurationError("--type, --model and --older-than say what --force means; add it")

    async def work(queue: Queue, settings: Settings) -> tuple[Scan, list[Misfit]]:
        warn_about(settings)
        meant = forced if force and not dry_run else None
        if question := await question_about_force(queue, settings, meant):
            confirm(question, yes=yes)
        done = await scan(
            queue,
            settings,
            after=after if after_number is None else _number(after_number),
            limit=limit,
            page_size=page_size,
            dry_run=dry_run,
            force=forced if force else None,
        )
        # A scan that began further on says nothing about the whole.
        is_of_all = after == "" and after_number is None
        return done, await find_misfits(queue, settings, done.report) if is_of_all else []

    found, unmeant = with_queue(work)
    rows = table()
    rows.add_row("Entities", str(found.report.entities))
    for kind, number in found.report.summary.items():
        rows.add_row(f"  {kind.replace('_', ' ')}", str(number))
        if kind == Coverage.STALE and found.report.neighbours_changed:
            rows.add_row("    only by their neighbours", str(found.report.neighbours_changed))
    if force:
        rows.add_row("To be embedded again", str(found.forced))
    if not dry_run:
        counts = [f"{found.enqueued[o]} {o}" for o in EnqueueOutcome if found.enqueued[o]]
        rows.add_row("Enqueued", ", ".join(counts) or "nothing")
    show(rows)
    if found.report.oversized:
        from embed_pipeline.domain.text import LONGEST_TEXT

        names = ", ".join(safe(name) for name in found.report.oversized_names)
        console.print(
            f"! Of {found.report.oversized} texts only the beginning is read, or nothing "
            f"({LONGEST_TEXT:,} characters are the most): {names}",
            soft_wrap=True,
        )
    for misfit in unmeant:
        console.print(f"! {safe(misfit.seen)}\n  [dim]→[/] {safe(misfit.remedy)}", soft_wrap=True)
    if isinstance(found.cursor, str):
        console.print(f"… go on with: --after '{safe(found.cursor)}'", soft_wrap=True)
    elif found.cursor is not None:
        console.print(f"… go on with: --after-number {found.cursor}")


def why_nothing(others: dict[str, int], waiting: int) -> str:
    """What to say of a search without hits: what else is there, and what happens next."""
    found = ", ".join(f"{count} with {safe(model)}" for model, count in others.items())
    if waiting:
        todo = (
            f"{number_of(waiting)} under way; with Dagster drains take them by themselves "
            "('embed-pipeline status' shows how far they are), else run 'embed-pipeline drain'"
        )
    else:
        todo = "run 'embed-pipeline reconcile', then 'embed-pipeline drain'"
    return pasteable(
        f"! Nothing is embedded with this model yet{f' ({found})' if found else ''}: {todo}"
    )


def search(
    text: Annotated[str, typer.Argument(help="A question, or words.")],
    limit: Annotated[int, typer.Option(min=1, max=1_000, metavar="N", help="How many.")] = 10,
    json: AsJson = False,
) -> None:
    """Find the entities nearest in meaning; embeds the text and asks the vector index."""
    from embed_pipeline.operations.search import search_for
    from embed_pipeline.store.search import embedded_by_model

    async def work(queue: Queue, settings: Settings) -> tuple[list[Hit], dict[str, int], int]:
        warn_about(settings)
        hits = await search_for(queue, settings, text, limit=limit, on_wait=say_waiting)
        if hits:
            return hits, {}, 0
        counts = await queue.admin.counts()
        waiting = counts[JobStatus.PENDING] + counts[JobStatus.PROCESSING]
        return hits, await embedded_by_model(queue.database, queue.config), waiting

    hits, others, waiting = with_queue(work, for_vectors=True)
    if json:
        print_json(hits)
        return
    if not hits:
        console.print(why_nothing(others, waiting), soft_wrap=True)
        return
    rows = table("SCORE", "NAME", "TYPE", "BECAUSE")
    for hit in hits:
        said = (safe(text or "") for text in (hit.uid, hit.type, hit.sentence))
        rows.add_row(f"{hit.score:.3f}", *said)
    show(rows)
