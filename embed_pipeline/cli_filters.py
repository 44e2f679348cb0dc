"""Which jobs: the options that several commands share, and the filter they make."""

import dataclasses
from datetime import timedelta
from typing import Annotated

import typer

from embed_pipeline.cli_base import duration
from embed_pipeline.domain.errors import ConfigurationError, ErrorCategory
from embed_pipeline.domain.filters import JobFilter
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.store.queue import Queue

Statuses = Annotated[
    list[JobStatus] | None, typer.Option("--status", help="In this state; may be repeated.")
]
Categories = Annotated[
    list[ErrorCategory] | None,
    typer.Option("--category", case_sensitive=False, help="With such an error; may be repeated."),
]
Model = Annotated[str | None, typer.Option(help="For this embedding model.")]
Entities = Annotated[
    list[str] | None,
    typer.Option("--entity", metavar="KEY", help="Of this entity; may be repeated."),
]
OlderThan = Annotated[
    timedelta | None,
    typer.Option(parser=duration, metavar="DURATION", help="Created longer ago: 30s, 15m, 2h, 7d."),
]
Owner = Annotated[
    str | None, typer.Option(metavar="OWNER", help="Held by this worker or Dagster run.")
]


async def job_filter(
    queue: Queue,
    *,
    ids: list[str] | None = None,
    statuses: list[JobStatus] | None = None,
    categories: list[ErrorCategory] | None = None,
    model: str | None = None,
    entities: list[str] | None = None,
    owner: str | None = None,
    older_than: timedelta | None = None,
    everything: bool | None = None,
) -> JobFilter:
    """Put a filter together; with ``everything`` an empty one must be meant."""
    which = JobFilter(
        ids=tuple(ids) if ids else None,
        statuses=frozenset(statuses) if statuses else None,
        model=model,
        entity_uids=tuple(entities) if entities else None,
        categories=frozenset(categories) if categories else None,
        owner=owner,
    )
    if older_than is not None:
        now = (await queue.metrics.read()).at
        which = dataclasses.replace(which, created_before=now - older_than)
    if everything is False and which == JobFilter():
        raise ConfigurationError("which jobs? Name their ids, give a filter, or say --all")
    return which
