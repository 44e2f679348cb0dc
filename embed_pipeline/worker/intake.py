"""From the queue to requests that are ready to be sent."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from embed_pipeline.domain.fairness import Lane
from embed_pipeline.domain.job import LeasedJob
from embed_pipeline.domain.results import Completion, EntityFate
from embed_pipeline.domain.text import text_hash
from embed_pipeline.worker.batching import Item, pack
from embed_pipeline.worker.holdings import Holdings
from embed_pipeline.worker.options import DrainOptions
from embed_pipeline.worker.report import DrainReport

if TYPE_CHECKING:
    from embed_pipeline.worker.engine import Parts

LOOKS_BEFORE_EMPTY: Final = 2
"""An empty lease is not an empty queue: others may have given jobs back a moment later."""

LEASES_BETWEEN_SUSPECTS: Final = 10
"""A busy drain lets its work run dry so often, to give a suspect the place it needs: alone."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests to send, and completions whose vectors the graph already has."""

    requests: Sequence[list[Item]] = ()
    known: Sequence[Completion] = field(default=())


class Intake:
    """Leases jobs, reads and renders their entities, and leaves out what is already known."""

    def __init__(
        self,
        parts: "Parts",
        options: DrainOptions,
        holdings: Holdings,
        report: DrainReport,
    ) -> None:
        self._parts = parts
        self._options = options
        self._holdings = holdings
        self._report = report
        self._leases = 0
        self._holds_suspect = False
        self._look_again_at = 0.0
        self._silent_since = 0.0
        self._empty_in_a_row = 0
        self.refusal: str | None = None
        limits = parts.embedder.limits
        inputs = min(limits.inputs, options.jobs_per_request or limits.inputs)
        self._limits = replace(limits, inputs=inputs)

    @property
    def budget(self) -> int:
        """How many jobs may still be leased."""
        if self._options.max_jobs is None:
            return self._options.jobs_per_lease
        spent = self._report.leased - self._report.released - self._report.given_back
        return max(0, min(self._options.jobs_per_lease, self._options.max_jobs - spent))

    @property
    def may_lease(self) -> bool:
        """Say whether this is a moment to ask for jobs."""
        if self.refusal is not None or self.budget == 0:
            return False
        if time.monotonic() < self._look_again_at:
            return False
        return not len(self._holdings) or not (self._holds_suspect or self._is_suspects_turn)

    @property
    def is_empty(self) -> bool:
        """Say whether the last look found nothing."""
        return self._empty_in_a_row > 0

    @property
    def is_dry(self) -> bool:
        """Say whether it has looked long enough in vain."""
        silence = time.monotonic() - self._silent_since
        is_over = silence >= self._options.linger.total_seconds()
        return is_over and self._empty_in_a_row >= LOOKS_BEFORE_EMPTY

    async def take(self) -> Batch:
        """Lease jobs and make requests of them."""
        lane = self._lane()
        asked_at = time.monotonic()
        batch = await self._parts.store.lease(
            owner=self._report.owner,
            model=self._parts.embedder.model,
            limit=self.budget,
            duration=self._options.lease,
            lane=lane,
        )
        if batch.jobs or not self._leases:
            self._silent_since = time.monotonic()
        self._leases += 1
        deadline = asked_at + self._options.lease.total_seconds()
        self._holdings.add((leased.lease for leased in batch.jobs), deadline=deadline)
        self._report.leased += len(batch.jobs)
        # While this worker holds jobs, one of them may be the probe that opens the queue again;
        # and one that waits for jobs waits for an open queue, too.
        is_final = self._options.until_empty and not len(self._holdings)
        self.refusal = batch.refusal if is_final else None
        self._holds_suspect = any(leased.is_suspect for leased in batch.jobs)
        if not batch.jobs:
            if self.refusal is None:
                self._note_empty(lane)
            return Batch()
        self._empty_in_a_row = 0
        return await self._prepare(batch.jobs)

    def look_again(self) -> None:
        """Something has ended, so there may be jobs that were not there before."""
        self._look_again_at = 0.0

    def _note_empty(self, lane: Lane) -> None:
        if lane is Lane.ANY:
            self._empty_in_a_row += 1
        stays = not self._options.until_empty or self._options.linger
        # What was held may have ended during the look: then there is nothing to wait for.
        is_busy = lane is Lane.HEALTHY and len(self._holdings) > 0
        if is_busy or (lane is Lane.ANY and stays):
            self._look_again_at = time.monotonic() + self._options.idle_pause.total_seconds()

    @property
    def _is_suspects_turn(self) -> bool:
        return self._leases % LEASES_BETWEEN_SUSPECTS == LEASES_BETWEEN_SUSPECTS - 1

    def _lane(self) -> Lane:
        if len(self._holdings):
            return Lane.HEALTHY
        # With nothing due there is nobody to let pass, and any look finds a suspect, too.
        return Lane.SUSPECT if self._is_suspects_turn and not self.is_empty else Lane.ANY

    async def _prepare(self, jobs: Sequence[LeasedJob]) -> Batch:
        loaded = await self._parts.store.load([leased.lease for leased in jobs])
        current: list[tuple[LeasedJob, Mapping[str, Any]]] = []
        for leased, entity in zip(jobs, loaded, strict=True):
            if entity.fate is EntityFate.CURRENT:
                current.append((leased, entity.properties))
                continue
            self._holdings.drop([leased.lease])
            if entity.fate is EntityFate.FENCED:
                self._report.lost += 1
            else:
                self._report.superseded += 1
        # Counting the tokens of thousands of texts takes long enough to be noticed.
        items = await asyncio.to_thread(self._render, current)
        return await self._without_known(items)

    def _render(self, entities: Sequence[tuple[LeasedJob, Mapping[str, Any]]]) -> list[Item]:
        items = []
        for leased, properties in entities:
            text = self._parts.render(properties)
            digest = text_hash(text, recipe=self._parts.recipe)
            items.append(Item(leased, self._parts.embedder.prepare(text), digest))
        return items

    async def _without_known(self, items: list[Item]) -> Batch:
        embedder = self._parts.embedder
        # Providers refuse an empty text; the entity is done, and has no vector.
        blank = [item for item in items if not item.text.text.strip()]
        items = [item for item in items if item.text.text.strip()]
        vectors = await self._parts.store.find_vectors(
            [item.text_hash for item in items],
            model=embedder.model,
            dimensions=embedder.dimensions,
        )
        known = [item for item in items if item.text_hash in vectors]
        self._report.cache_hits += len(known)
        return Batch(
            requests=pack((i for i in items if i.text_hash not in vectors), self._limits),
            known=[
                Completion(
                    item.leased.lease,
                    vectors.get(item.text_hash),
                    item.text_hash,
                    tokens=0,
                    tokens_in=item.text.tokens_cut,
                )
                for item in (*known, *blank)
            ],
        )
