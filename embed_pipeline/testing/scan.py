"""The scan of a queue in memory."""

from collections import Counter
from dataclasses import replace

from embed_pipeline.domain.coverage import Coverage, ReconcilePage
from embed_pipeline.domain.embedding import TextSize
from embed_pipeline.domain.explanation import Explanation, why_not
from embed_pipeline.domain.job import JobStatus, NewJob
from embed_pipeline.domain.judging import EntityReading, classify
from embed_pipeline.domain.relations import BEHIND
from embed_pipeline.domain.tally import Tally
from embed_pipeline.domain.text import (
    only_neighbours_differ,
    recipe_of,
    render_for,
)
from embed_pipeline.domain.vector import dimensions_of
from embed_pipeline.testing.admin_side import FakeAdminSide
from embed_pipeline.testing.state import FakeEntity, key_of


class FakeScan(FakeAdminSide):
    """Compares entities with their vectors, and enqueues what does not fit."""

    async def reconcile(self, model: str) -> ReconcilePage:
        """Compare every entity with its vector, and enqueue what does not fit."""
        tally = Tally()
        wishes: list[NewJob] = []
        for uid, entity in sorted(self.entities.items()):
            reading = self._reading(uid, entity, model)
            digest = self.hash_of(entity.properties)
            found = classify(reading, model=model, text_hash=digest, dimensions=None)
            only_neighbours = only_neighbours_differ(
                reading.vector_hash, digest, recipe=recipe_of(self.shape)
            )
            tally.add(reading, found, only_neighbours=only_neighbours)
            if found is Coverage.CURRENT:
                continue
            tally.add_wanted(found, TextSize())
            is_lost = reading.job_status is JobStatus.COMPLETED
            wish = NewJob(uid, model, entity.version, text_hash=digest, is_lost=is_lost)
            if only_neighbours:
                wish = replace(wish, priority=BEHIND, delay=self.relations_delay)
            wishes.append(wish)
        outcomes = await self.enqueue(wishes) if wishes else []
        return tally.page(cursor=None, orphaned=0, enqueued=dict(Counter(outcomes)))

    def explain(self, uid: str, model: str) -> Explanation:
        """Why an entity is found, or is not."""
        jobs = (job for job in self.jobs.values() if key_of(job)[:2] == (uid, model))
        found = tuple(sorted(jobs, key=lambda job: -job.version))
        entity = self.entities.get(uid)
        if entity is None:
            return Explanation(uid, model, None, f"there is no entity {uid!r}", jobs=found)
        reading, digest = self._reading(uid, entity, model), self.hash_of(entity.properties)
        coverage = classify(reading, model=model, text_hash=digest, dimensions=None)
        job = next((job for job in found if job.version == entity.version), None)
        recipe, stopped = recipe_of(self.shape), self.queue_state.closed
        why = why_not(reading, coverage, text_hash=digest, recipe=recipe, job=job, stopped=stopped)
        return Explanation(
            uid,
            model,
            coverage,
            why,
            text=render_for(self.shape)(entity.properties),
            version=entity.version,
            jobs=found,
        )

    def _reading(self, uid: str, entity: FakeEntity, model: str) -> EntityReading:
        key = (uid, model, entity.version)
        job = next((job for job in self.jobs.values() if key_of(job) == key), None)
        return EntityReading(
            uid=uid,
            version=entity.version,
            has_vector=entity.vector is not None,
            dimensions=None if entity.vector is None else dimensions_of(entity.vector),
            vector_model=entity.vector_model,
            vector_hash=entity.vector_hash,
            vector_version=entity.vector_version,
            job_status=job.status if job else None,
            is_ours=entity.is_ours,
            is_wanted_anew=job is not None
            and job.status is JobStatus.COMPLETED
            and self.forced.get(job.id, -1) >= job.fence,
            entity_type=str(entity.properties.get(self.shape.type, "")),
            pieces=entity.vector_pieces,
            found_pieces=None if self.shape.pieces is None else len(entity.pieces),
        )
