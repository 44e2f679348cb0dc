"""Why an entity is found, or is not: the one way for job, command line and API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.explanation import NAMED, Explanation, why_not
from embed_pipeline.domain.job import JobFilter
from embed_pipeline.domain.text import recipe_of
from embed_pipeline.operations.planning import plan_for_keys
from embed_pipeline.store.explain import look_at
from embed_pipeline.store.search import why_nothing

if TYPE_CHECKING:
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.queue import Queue

JOBS: Final = 100
"""Jobs of an entity that are looked at: one for each version."""


async def explain(queue: Queue, settings: Settings, entity: str) -> Explanation:
    """Say what is embedded of an entity, whether that is current, and what a change costs.

    Changes nothing, and asks no provider.
    """
    model, shape = settings.model, settings.entity_shape
    found = await queue.admin.find_jobs(JobFilter(entity_uids=(entity,), model=model), limit=JOBS)
    jobs = tuple(sorted(found, key=lambda job: -job.version))
    looked = await look_at(queue, model, entity)
    if looked is None:
        return Explanation(
            entity,
            model,
            None,
            f"there is no current {shape.label} node whose {shape.key} is {entity!r:.200}",
            jobs=jobs,
        )
    reading = looked.reading
    job = next((job for job in jobs if job.version == reading.version), None)
    own = await plan_for_keys(queue, settings, [entity])
    hidden = await why_nothing(queue.database, queue.config, dimensions=settings.dimensions)
    why = why_not(
        reading,
        looked.coverage,
        text_hash=looked.text_hash,
        recipe=recipe_of(shape),
        job=job,
        stopped=(await queue.switch.state()).closed,
        keeps_foreign=queue.config.keeps_foreign,
        hidden=hidden,
    )
    if looked.coverage is not Coverage.CURRENT:
        # What the scan of these settings would do next it is not allowed to do.
        why = await queue.identity.refusal() or why
    return Explanation(
        entity,
        model,
        looked.coverage,
        why,
        text=looked.text,
        prefix=queue.config.shape.prefix,
        is_cut=reading.is_cut,
        tokens=own.tokens,
        pieces=own.pieces,
        version=reading.version,
        dependants=len(looked.dependants),
        has_more=looked.has_more,
        named_by=tuple(looked.dependants[:NAMED]),
        alone=own,
        change=await plan_for_keys(queue, settings, [entity, *looked.dependants]),
        is_at_most=queue.config.shape.pieces is not None,
        hidden=hidden,
        jobs=jobs,
    )
