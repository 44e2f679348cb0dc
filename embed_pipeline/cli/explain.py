"""``embed-pipeline explain``: why an entity is found, or is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from embed_pipeline.cli.base import AsJson, as_plain, at, print_json, safe, show, table, with_queue

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
        price = {} if found.change is None else {"change_usd": found.change.usd}
        print_json(as_plain(found) | {"is_found": found.is_found} | price)
    else:
        rows = table()
        for name, value in _rows(found):
            rows.add_row(name, safe(value))
        show(rows)
    if not found.is_found:
        raise typer.Exit(1)


def _rows(found: Explanation) -> Iterator[tuple[str, str]]:
    yield "Entity", found.entity
    yield "Model", found.model
    yield "Vector", found.coverage.value.replace("_", " ") if found.coverage else "none"
    yield "Why", found.why
    if found.coverage is not None:
        yield "Text", found.text
        yield "Tokens", f"{found.tokens:,}"
        yield "Named by", f"{found.dependants:,} other texts"
    if found.change is not None:
        change = found.change
        yield "A new name", f"{change.texts:,} texts, {change.tokens:,} tokens, {change.cost}"
    for job in found.jobs:
        yield "Job", job_line(job)


def job_line(job: Job) -> str:
    """How the job of a version stands."""
    since = at(job.processed_at or job.queued_at)
    said = f"version {job.version}: {job.status.value} since {since}"
    return f"{said}, {job.attempts} attempts{f', {job.error}' if job.error else ''}"
