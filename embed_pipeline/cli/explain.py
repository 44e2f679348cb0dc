"""``embed-pipeline explain``: why an entity is found, or is not."""

from __future__ import annotations

from collections.abc import Iterator
from json import loads
from typing import TYPE_CHECKING, Annotated

import typer

from embed_pipeline.cli.base import AsJson, as_plain, at, print_json, safe, show, table, with_queue
from embed_pipeline.domain.text import LONGEST_TEXT
from embed_pipeline.domain.words import number_of

if TYPE_CHECKING:
    from embed_pipeline.domain.explanation import Explanation
    from embed_pipeline.domain.job import Job
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.queue import Queue


def explain(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="The key of the entity.")],
    json: AsJson = False,
) -> None:
    """Say why an entity is found, or is not: its text, its vector, its jobs, the price of a change.

    Changes nothing and asks no provider. Exit code 1: its vector is not that of its text.
    """
    from embed_pipeline.operations.explaining import explain as look

    async def work(queue: Queue, settings: Settings) -> Explanation:
        return await look(queue, settings, entity)

    found = with_queue(work)
    if json:
        plans = {"alone_usd": found.alone, "change_usd": found.change}
        prices = {name: plan.usd for name, plan in plans.items() if plan is not None}
        print_json(as_plain(found) | {"is_found": found.is_found} | prices)
    else:
        rows = table()
        for name, value in _rows(found):
            rows.add_row(name, safe(value))
        show(rows)
    if not found.is_found:
        raise typer.Exit(1)


def _rows(found: Explanation) -> Iterator[tuple[str, str]]:
    least = "at least " if found.has_more else ""
    yield "Entity", found.entity
    yield "Model", found.model
    yield "Vector", found.coverage.value.replace("_", " ") if found.coverage else "none"
    yield "Why", found.why
    if found.coverage is not None:
        if found.prefix:
            yield "Sent before it", found.prefix
        yield "Text", found.text
        if found.is_cut:
            yield "Left out", f"what a property has behind its first {LONGEST_TEXT:,} characters"
        in_pieces = f" in {found.pieces:,} pieces" if found.pieces > 1 else ""
        yield "Tokens", f"{found.tokens:,}{in_pieces}"
        more = ", …" if found.has_more or found.dependants > len(found.named_by) else ""
        names = f": {', '.join(found.named_by)}{more}" if found.named_by else ""
        yield "Named by", f"{least}{number_of(found.dependants, 'other text')}{names}"
    most = "up to " if found.is_at_most else ""
    if found.alone is not None:
        yield "A new text", f"{most}{found.alone.tokens:,} tokens, {found.alone.cost}"
    if found.change is not None:
        change = found.change
        texts, tokens = number_of(change.texts, "text"), number_of(change.tokens, "token")
        yield "A new name", f"{least}{texts}, {most}{tokens}, {change.cost}"
    for job in found.jobs:
        yield "Job", job_line(job)
        for line in history_lines(job):
            yield "", line


def history_lines(job: Job) -> Iterator[str]:
    """What has become of the job of a version so far."""
    yield f"made {at(job.created_at)}, asked for {at(job.queued_at)}"
    if job.started_at is not None:
        tokens = "" if job.tokens is None else f", {job.tokens:,} tokens"
        pieces = "" if job.pieces is None else f" in {job.pieces:,} pieces"
        yield f"begun {at(job.started_at)} by {job.lock_owner or job.last_owner}{tokens}{pieces}"
    if job.cancelled_by is not None:
        yield f"cancelled by {job.cancelled_by}"
    yield from map(_tried, job.error_history)


def _tried(entry: str) -> str:
    """An attempt that failed; whatever others have written there."""
    try:
        said = loads(entry)
        return f"attempt {said['attempt']} failed: {said['category']}: {said['message']}"
    except (ValueError, KeyError, TypeError):
        return f"failed: {entry}"


def job_line(job: Job) -> str:
    """How the job of a version stands."""
    since = at(job.processed_at or job.queued_at)
    said = f"version {job.version}: {job.status.value} since {since}"
    return f"{said}, {job.attempts} attempts{f', {job.error}' if job.error else ''}"
