"""From what an operator says to the jobs that are meant."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from embed_pipeline.domain.errors import ConfigurationError, ErrorCategory
from embed_pipeline.domain.job import JobFilter, JobStatus, NewJob

if TYPE_CHECKING:
    from embed_pipeline.store.load import CurrentEntity
    from embed_pipeline.store.queue import Queue

PAGE: Final = 500
"""Entities that are read in one transaction."""


async def job_filter(
    queue: Queue,
    *,
    ids: Iterable[str] | None = None,
    statuses: Iterable[JobStatus] | None = None,
    categories: Iterable[ErrorCategory] | None = None,
    model: str | None = None,
    entities: Iterable[str] | None = None,
    owner: str | None = None,
    older_than: timedelta | None = None,
    everything: bool | None = None,
) -> JobFilter:
    """Build a filter; ages are measured by the clock of the database server.

    Raises:
        ConfigurationError: ``everything`` is false, and there is no condition.
    """
    which = JobFilter(
        ids=tuple(ids or ()) or None,
        statuses=frozenset(statuses or ()) or None,
        model=model,
        entity_uids=tuple(entities or ()) or None,
        categories=frozenset(categories or ()) or None,
        owner=owner,
    )
    if older_than is not None:
        now = (await queue.metrics.read()).at
        which = dataclasses.replace(which, created_before=now - older_than)
    if everything is False and which == JobFilter():
        raise ConfigurationError(
            "which jobs? Name their ids, give a filter, or say that all are meant: --all on the "
            "command line, all_jobs in a run config. Nothing was changed"
        )
    return which


def to_retry(which: JobFilter) -> JobFilter:
    """A named job is retried whatever its error was; other filters leave out PERMANENT ones."""
    if which.ids is None or which.categories is not None:
        return which
    return dataclasses.replace(which, categories=frozenset(ErrorCategory))


async def jobs_for(
    queue: Queue,
    wanted: Sequence[str | NewJob],
    *,
    model: str,
    priority: int = 0,
    force: bool = False,
) -> list[NewJob]:
    """Jobs for entities named by their keys; none at all if one is unknown.

    Raises:
        QueueError: there is no entity with one of the keys.
        InvalidJobError: a job is for another model.
    """
    from embed_pipeline.store.load import read_hashes
    from embed_pipeline.store.wishes import in_place_of_keys, wishes_for

    keys = [entity for entity in wanted if isinstance(entity, str)]
    entities: dict[str, CurrentEntity] = {}
    for start in range(0, len(keys), PAGE):
        page = sorted(set(keys[start : start + PAGE]))
        entities |= await queue.database.read(
            lambda tx, page=page: read_hashes(tx, queue.config, page)
        )
    wishes = wishes_for(keys, entities, queue.config, model=model, priority=priority, force=force)
    return in_place_of_keys(wanted, wishes, model=model)
