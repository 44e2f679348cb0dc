"""From the queue to requests that are ready to be sent."""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from embed_pipeline.domain.errors import PermanentError, TooMuchAtOnceError, TransientError
from embed_pipeline.domain.fairness import Lane
from embed_pipeline.domain.job import Lease, LeasedJob
from embed_pipeline.domain.results import Completion, EntityFate, LoadedEntity
from embed_pipeline.domain.text import hash_of_entity, pages_by_size
from embed_pipeline.worker.batching import Item, pack
from embed_pipeline.worker.options import DrainOptions
from embed_pipeline.worker.report import DrainReport, log_jobs
from embed_pipeline.worker.reuse import copy_of, reuse_pieces, reuse_vectors
from embed_pipeline.worker.settling import Settler

if TYPE_CHECKING:
    from embed_pipeline.worker.options import Parts

logger = logging.getLogger(__name__)

LOOKS_BEFORE_EMPTY: Final = 2
"""An empty lease is not an empty queue: others may have given jobs back a moment later."""

LEASES_BETWEEN_SUSPECTS: Final = 10
"""A busy drain lets its work run dry so often, to give a suspect the place it needs: alone."""

LEASES_BETWEEN_LONG: Final = 8
"""So many leases come between two pages of long texts while there are short ones: with a page after
each, 80 texts of 10 MB nearly doubled the time of 20,000 short ones."""
Loaded = tuple[LeasedJob, LoadedEntity]


@dataclass(frozen=True, slots=True)
class Taken:
    """Jobs whose entities are to be read; none where nothing was due.

    ``is_probe``: there are none, because the provider is down; find out whether it still is.
    """

    jobs: Sequence[LeasedJob] = ()
    longest: int | None = None
    """Up to this size, where their texts are long; those of a lease are read if they are short."""
    is_probe: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests to send, and completions whose vectors the graph already has."""

    requests: Sequence[list[Item]] = ()
    known: Sequence[Completion] = field(default=())


class Intake:
    """Leases jobs, reads and renders their entities, and leaves out what is already known.

    Texts may be of any size. The short ones of a lease are read at once; of the long ones only the
    sizes, and then as many at a time as fit into memory, when nothing else is due or it is their
    turn: nobody waits behind them.
    """

    def __init__(
        self,
        parts: "Parts",
        options: DrainOptions,
        settler: Settler,
        report: DrainReport,
    ) -> None:
        self._parts = parts
        self._options = options
        self._settler = settler
        self._holdings = settler.holdings
        self._report = report
        self._long: deque[tuple[LeasedJob, int]] = deque()
        """Jobs whose texts are still to be read, with the sizes of the texts."""
        self._leases_since_long = 0
        self._leases = 0
        self.lease_took = 0.0
        self._holds_suspect = False
        self._look_again_at = 0.0
        self._silent_since = 0.0
        self._empty_in_a_row = 0
        self.refusal = options.refusal
        limits = parts.embedder.limits
        self._most = limits.inputs
        """Jobs of a lease; falls where the database has no time or memory for so many."""
        self._limits = options.limits(limits)
        self._texts_per_request = self._limits.inputs
        """As many as fitted into the last ones: long texts are few."""

    @property
    def budget(self) -> int:
        """How many jobs may still be leased."""
        most = min(self._options.most_per_lease(self._texts_per_request), self._most)
        return min(most, self._options.jobs_left(self._report))

    @property
    def has_long(self) -> bool:
        """Whether long texts of leased jobs are still to be read."""
        return bool(self._long)

    @property
    def may_take(self) -> bool:
        """Whether to lease now."""
        return self.has_long or self._may_lease

    @property
    def _may_lease(self) -> bool:
        if self.refusal is not None or self.budget == 0:
            return False
        if len(self._long) >= self._parts.embedder.limits.inputs:
            return False
        if self._parts.clock() < self._look_again_at:
            return False
        # Long texts that are not worked on yet need not be done first: they are given back.
        is_idle = len(self._holdings) <= len(self._long)
        return is_idle or not (self._holds_suspect or self._is_suspects_turn)

    @property
    def is_empty(self) -> bool:
        """Whether the last look found nothing."""
        return self._empty_in_a_row > 0

    @property
    def pause(self) -> float:
        """Seconds between two looks that find nothing."""
        return self._options.pause_after(self._parts.clock() - self._silent_since)

    @property
    def is_dry(self) -> bool:
        """Whether enough looks in a row have found nothing."""
        silence = self._parts.clock() - self._silent_since
        is_over = silence >= self._options.linger.total_seconds()
        return is_over and self._empty_in_a_row >= LOOKS_BEFORE_EMPTY

    async def take(self) -> Taken:
        """Lease jobs, or choose some whose texts were too long to be read with others.

        Raises:
            EmbedPipelineError: the database cannot be reached.
        """
        if self.budget == 0 and not self._long:
            return Taken()  # What was left has gone into a batch meanwhile.
        is_turn_of_long = self._leases_since_long >= LEASES_BETWEEN_LONG or not self._may_lease
        if self._long and is_turn_of_long:
            self._leases_since_long = 0
            return self._take_long()
        self._leases_since_long += 1
        if self._is_suspects_turn and len(self._holdings) <= len(self._long):
            await self._settler.release(self.give_up_long())
        lane = self._lane()
        asked_at = self._parts.clock()
        batch = await self._parts.store.lease(
            owner=self._report.owner,
            model=self._parts.embedder.model,
            limit=self.budget,
            duration=self._options.lease,
            lane=lane,
        )
        self.lease_took = (now := self._parts.clock()) - asked_at
        if batch.jobs or not self._leases:
            self._silent_since = now
        self._leases += 1
        deadline = asked_at + self._options.lease.total_seconds()
        self._holdings.add((leased.lease for leased in batch.jobs), deadline=deadline)
        self._report.leased += len(batch.jobs)
        # While this worker holds jobs, one of them may be the probe that opens the queue again;
        # and one that waits for jobs waits for an open queue, too.
        if batch.is_probe:
            return Taken(is_probe=True)
        is_final = self._options.until_empty and not len(self._holdings)
        self.refusal = batch.refusal if is_final else None
        self._holds_suspect = any(leased.is_suspect for leased in batch.jobs)
        if not batch.jobs:
            self._leases_since_long = LEASES_BETWEEN_LONG
            if self.refusal is None:
                self._note_empty(lane)
            return Taken()
        self._empty_in_a_row = 0
        log_jobs(logging.INFO, "acquired", self._report.owner, [x.lease for x in batch.jobs])
        return Taken(batch.jobs)

    def give_up_long(self) -> list[Lease]:
        """Forget the jobs with unread long texts, so that they can be released."""
        leases = [leased.lease for leased, _ in self._long]
        self._long.clear()
        return leases

    def look_again(self) -> None:
        """Something has ended, so new jobs may be due."""
        self._look_again_at = 0.0

    def _note_empty(self, lane: Lane) -> None:
        if lane is Lane.ANY:
            self._empty_in_a_row += 1
        stays = not self._options.until_empty or self._options.linger
        # What was held may have ended during the look: then there is nothing to wait for.
        is_busy = lane is Lane.HEALTHY and len(self._holdings) > 0
        if is_busy or (lane is Lane.ANY and stays):
            self._look_again_at = self._parts.clock() + self.pause

    @property
    def _is_suspects_turn(self) -> bool:
        return self._leases % LEASES_BETWEEN_SUSPECTS == LEASES_BETWEEN_SUSPECTS - 1

    def _lane(self) -> Lane:
        if len(self._holdings):
            return Lane.HEALTHY
        # With nothing due there is nothing to let pass, and any look finds a suspect, too.
        return Lane.SUSPECT if self._is_suspects_turn and not self.is_empty else Lane.ANY

    def _take_long(self) -> Taken:
        page = next(pages_by_size((entry, entry[1]) for entry in self._long))
        for _ in page:
            self._long.popleft()
        return Taken([leased for leased, _ in page], longest=max(size for _, size in page))

    async def prepare(self, taken: Taken) -> Batch:
        """Make requests of what was taken; one at a time, for the sake of memory.

        Raises:
            EmbedPipelineError: the database cannot be reached.
        """
        current: list[tuple[LeasedJob, Mapping[str, Any]]] = []
        for leased, entity in await self._load(taken.jobs, taken.longest):
            match entity.fate:
                case EntityFate.CURRENT:
                    current.append((leased, entity.properties))
                case EntityFate.LONG:
                    self._long.append((leased, entity.size))
                case EntityFate.FENCED:
                    self._report.lost += self._holdings.drop([leased.lease])
                case _:
                    self._holdings.drop([leased.lease])
                    self._report.superseded += 1
        # Counting the tokens of thousands of texts takes long enough to be noticed.
        items = await asyncio.to_thread(self._render, current)
        return await self._without_known(items)

    async def _load(self, jobs: Sequence[LeasedJob], longest: int | None) -> list[Loaded]:
        """Read entities; halve what is too much for the database until the culprit fails alone."""
        leases = [leased.lease for leased in jobs]
        try:
            loaded = await self._parts.store.load(leases, longest=longest)
        except TooMuchAtOnceError as error:
            if len(jobs) > 1:
                self._most = most = max(1, len(jobs) // 2)
                first, second = jobs[:most], jobs[most:]
                logger.info("owner=%s %s: %d jobs", self._report.owner, error, len(jobs))
                return await self._load(first, longest) + await self._load(second, longest)
            return await self._again(jobs[0], longest)
        self._most = min(self._parts.embedder.limits.inputs, 2 * self._most)
        return list(zip(jobs, loaded, strict=True))

    async def _again(self, job: LeasedJob, longest: int | None) -> list[Loaded]:
        """Retry a single entity: an answer shows that the server is not busy any more."""
        await self._parts.store.check([job.lease])
        try:
            [entity] = await self._parts.store.load([job.lease], longest=longest)
        except TooMuchAtOnceError as error:
            why = f"the text of the entity cannot be read: {error}; make it shorter, then retry"
            # Time is short for everybody on a busy server: only a later attempt can tell.
            kind = TransientError if error.is_time else PermanentError
            why += "; or the server was busy" if error.is_time else ""
            await self._settler.refuse(job.lease, kind(why))
            return []
        return [(job, entity)]

    def _render(self, entities: Sequence[tuple[LeasedJob, Mapping[str, Any]]]) -> list[Item]:
        items = []
        for leased, properties in entities:
            render, recipe = self._parts.render, self._parts.recipe
            text = render(properties)
            digest = hash_of_entity(properties, text, render=render, recipe=recipe)
            items.append(Item(leased, self._parts.prepared(text), digest))
        return items

    async def _without_known(self, items: list[Item]) -> Batch:
        # Providers refuse an empty text; the entity is done, and has no vector.
        blank = [item for item in items if not item.text.text.strip()]
        items = [item for item in items if item.text.text.strip()]
        reuse = reuse_pieces if self._parts.has_pieces else reuse_vectors
        asked, known = await reuse(self._parts.store, self._parts.embedder, items)
        self._report.cache_hits += len(known)
        requests = pack(asked, self._limits, lambda item: item.text)
        self._note_sizes(requests)
        return Batch(requests=requests, known=[*known, *(copy_of(item, None) for item in blank)])

    def _note_sizes(self, requests: Sequence[list[Item]]) -> None:
        # The last one is what was left, and only those before it are full.
        if full := [len(request) for request in requests[:-1]]:
            self._texts_per_request = max(full)
        elif requests:
            self._texts_per_request = min(self._limits.inputs, 2 * self._texts_per_request)
