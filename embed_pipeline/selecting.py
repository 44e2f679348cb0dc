"""From what an operator says to the jobs that are meant."""

import dataclasses
from collections.abc import Iterable
from datetime import timedelta

from embed_pipeline.domain.errors import ConfigurationError, ErrorCategory
from embed_pipeline.domain.filters import JobFilter
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.store.queue import Queue


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
    """Put a filter together; ages are reckoned from the time of the database server.

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
    """Whoever names a job means it, whatever it failed of; other filters leave out PERMANENT."""
    if which.ids is None or which.categories is not None:
        return which
    return dataclasses.replace(which, categories=frozenset(ErrorCategory))
