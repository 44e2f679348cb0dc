"""``embed-pipeline enqueue``, ``reconcile`` and ``search``: from entities to jobs and back."""

import asyncio
import sys
import time
from collections import Counter
from typing import Annotated, Final

import typer

from embed_pipeline import wiring
from embed_pipeline.cli_base import (
    age,
    console,
    is_screen,
    safe,
    show,
    table,
    warn_about,
    with_queue,
)
from embed_pipeline.domain.errors import ConfigurationError, EmbeddingError, QueueError
from embed_pipeline.domain.job import NewJob
from embed_pipeline.domain.lifecycle import EnqueueOutcome
from embed_pipeline.scanning import Scan
from embed_pipeline.settings import Settings
from embed_pipeline.store.loading import read_entities
from embed_pipeline.store.queue import Queue
from embed_pipeline.store.search import Hit, embedded_by_model, search_entities
from embed_pipeline.worker.batching import judge_answer

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
        bool, typer.Option("--force", help="Embed again although the text is the same.")
    ] = False,
) -> None:
    """Have entities, named by their keys, embedded in their current version.

    Says per entity: created, present (there is a job already), promoted (to a higher priority)
    or revived (a finished job is opened again). One unknown key, and nothing is enqueued.
    """
    wanted = list(keys or [])
    if stdin:
        # Bytes that are no text become what the database then refuses with a message.
        sys.stdin.reconfigure(errors="surrogateescape")  # pyright: ignore[reportAttributeAccessIssue]
        wanted += [key for line in sys.stdin if (key := line.rstrip("\r\n"))]
    if not wanted:
        raise ConfigurationError("which entities? Name their keys, or give them through --stdin")

    async def work(queue: Queue, settings: Settings) -> list[EnqueueOutcome]:
        warn_about(settings)
        jobs = await _jobs_for(queue, settings, wanted, priority=priority, force=force)
        return await queue.admin.enqueue(jobs)

    outcomes = with_queue(work)
    for key, outcome in zip(wanted, outcomes, strict=True):
        console.print(f"  {outcome:<8}  {safe(key)}", soft_wrap=True)
    counts = Counter(outcomes)
    console.print("✓ " + ", ".join(f"{counts[o]} {o}" for o in EnqueueOutcome if counts[o]))


async def _jobs_for(
    queue: Queue, settings: Settings, keys: list[str], *, priority: int, force: bool
) -> list[NewJob]:
    jobs: list[NewJob] = []
    unknown: list[str] = []
    for start in range(0, len(keys), PAGE):
        page = keys[start : start + PAGE]
        entities = await queue.database.read(
            lambda tx, page=page: read_entities(tx, queue.config, sorted(set(page)))
        )
        unknown += [key for key in page if not entities[key].exists]
        jobs += [
            NewJob(
                key,
                settings.model,
                entities[key].version,
                priority=priority,
                text_hash=queue.config.hash_of(entities[key].text),
                force=force,
            )
            for key in page
            if entities[key].exists
        ]
    if unknown:
        names = ", ".join(repr(key) for key in unknown[:5])
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        shape = settings.entity_shape
        raise QueueError(
            f"no current {shape.label} has the {shape.key} {names}{more}; nothing was enqueued"
        )
    return jobs


async def scan(
    queue: Queue,
    settings: Settings,
    *,
    after: str = "",
    limit: int | None = None,
    page_size: int = PAGE,
    dry_run: bool = False,
    clear_orphans: bool = False,
) -> Scan:
    """Reconcile page by page, showing how far it is; keeps the sum of all pages for ``status``."""
    total, said_at = Scan.begin(queue.reconciler(settings.model), after=after), time.monotonic()
    with console.status("Reading entities") as spinner:
        while total.cursor is not None and (limit is None or total.report.entities < limit):
            size = page_size if limit is None else min(page_size, limit - total.report.entities)
            await total.step(page_size=size, dry_run=dry_run, clear_orphans=clear_orphans)
            spinner.update(f"{total.report.entities} entities read")
            if not is_screen() and time.monotonic() - said_at >= LINE_SECONDS:
                console.print(f"▸ {total.report.entities} entities read")
                said_at = time.monotonic()
    is_complete = after == "" and total.cursor is None
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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count; enqueue nothing.")] = False,
    clear_orphans: Annotated[
        bool,
        typer.Option("--clear-orphans", help="Also remove vectors of outdated entity versions."),
    ] = False,
) -> None:
    """Compare every entity with its vector, and enqueue what does not fit.

    Needs no trigger and finds whatever anybody wrote; safe to repeat and to interrupt.
    """

    async def work(queue: Queue, settings: Settings) -> Scan:
        warn_about(settings)
        return await scan(
            queue,
            settings,
            after=after,
            limit=limit,
            page_size=page_size,
            dry_run=dry_run,
            clear_orphans=clear_orphans,
        )

    found = with_queue(work)
    rows = table()
    rows.add_row("Entities", str(found.report.entities))
    for kind, number in found.report.summary.items():
        rows.add_row(f"  {kind.replace('_', ' ')}", str(number))
    if not dry_run:
        counts = [f"{found.enqueued[o]} {o}" for o in EnqueueOutcome if found.enqueued[o]]
        rows.add_row("Enqueued", ", ".join(counts) or "nothing")
    show(rows)
    if found.cursor is not None:
        console.print(f"… go on with: --after '{safe(found.cursor)}'", soft_wrap=True)


def search(
    text: Annotated[str, typer.Argument(help="A question, or words.")],
    limit: Annotated[int, typer.Option(min=1, max=1_000, metavar="N", help="How many.")] = 10,
) -> None:
    """Find the entities nearest in meaning; embeds the text and asks the vector index."""

    async def work(queue: Queue, settings: Settings) -> tuple[list[Hit], dict[str, int]]:
        warn_about(settings)
        vector = await _embed(queue, settings, text)
        hits = await search_entities(
            queue.database,
            queue.config,
            vector=vector,
            model=settings.model,
            limit=limit,
        )
        return hits, {} if hits else await embedded_by_model(queue.database, queue.config)

    hits, others = with_queue(work, for_vectors=True)
    if not hits:
        with_others = ", ".join(f"{count} with {safe(model)}" for model, count in others.items())
        console.print(
            f"! Nothing is embedded with this model yet{f' ({with_others})' if others else ''}: "
            "run 'embed-pipeline reconcile', then 'embed-pipeline drain'",
            soft_wrap=True,
        )
        return
    rows = table("SCORE", "NAME", "TYPE")
    for hit in hits:
        rows.add_row(f"{hit.score:.3f}", safe(hit.uid), safe(hit.type or ""))
    show(rows)


async def _embed(queue: Queue, settings: Settings, text: str) -> list[float]:
    """Embed one text; it counts against the limit that all workers share."""
    limiter = wiring.open_limiter(queue, settings)
    embedder = wiring.open_embedder(settings)
    try:
        prepared = embedder.prepare(text)
        while not (grant := await limiter.acquire(tokens=prepared.tokens)).is_granted:
            console.print(f"▸ Waiting {age(grant.wait)} for the rate limit")
            await asyncio.sleep(grant.wait.total_seconds())
        vectors = (await embedder.embed([prepared])).vectors
        [answer] = judge_answer(vectors, expected=1, dimensions=embedder.dimensions)
    finally:
        await embedder.close()
    if isinstance(answer, EmbeddingError):
        raise answer
    return list(answer)
