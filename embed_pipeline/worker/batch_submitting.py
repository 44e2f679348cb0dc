"""From waiting jobs to a batch at the provider.

Every step is written down before the next one, in the order of ``Step``: a worker that finds an
abandoned batch knows whether the provider may have it.
"""

import asyncio
import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final
from uuid import uuid4

from embed_pipeline.domain.batch import (
    LONGEST_BATCH,
    MOST_BYTES,
    MOST_LINES,
    REFUSED_FOR,
    WHILE_MADE,
    BatchRefusedError,
    BatchStatus,
    SentJob,
    custom_id,
    owner_of_batch,
)
from embed_pipeline.domain.breaker import BreakerStatus
from embed_pipeline.domain.errors import TooMuchAtOnceError
from embed_pipeline.domain.fairness import Lane
from embed_pipeline.domain.job import Lease, LeasedJob
from embed_pipeline.domain.results import EntityFate
from embed_pipeline.domain.text import hash_of_entity
from embed_pipeline.worker.batch_parts import (
    COUNTED,
    FOR_EVER,
    BatchParts,
    Step,
    TurnLostError,
    give_back,
)
from embed_pipeline.worker.batching import Item
from embed_pipeline.worker.chores import Counting
from embed_pipeline.worker.lease_keeper import Holdings
from embed_pipeline.worker.report import DrainReport
from embed_pipeline.worker.reuse import copy_of, reuse_vectors
from embed_pipeline.worker.settling import Settler

logger = logging.getLogger(__name__)

PAGE: Final = 2_000
"""Jobs per lease: the mutex of the queue is held as long as for an ordinary one."""


@dataclass(slots=True)
class Submitted:
    """What was sent, or why not."""

    batch: str | None = None
    jobs: int = 0
    tokens: int = 0
    left: int = 0
    """Jobs whose texts are too long for one input: the ordinary drain does them."""
    reason: str | None = None


@dataclass(slots=True)
class _Filled:
    """The current content of the file."""

    sent: list[SentJob] = field(default_factory=list)
    left: list[Lease] = field(default_factory=list)
    bytes: int = 0
    reason: str | None = None

    @property
    def tokens(self) -> int:
        return sum(job.tokens for job in self.sent)


class Submitter:
    """Creates one batch at a time."""

    def __init__(self, parts: BatchParts) -> None:
        self._all = parts
        self._parts = parts.parts
        self._batches = parts.batches
        self._provider = parts.provider
        holdings = Holdings()
        # What is leased belongs to the batch, and what is done with it here is not reported.
        report = DrainReport(owner_of_batch("new"), parts.parts.embedder.model)
        self._settler = Settler(parts.parts.store, holdings, report, parts.parts.fault_of)
        self._report = report
        self._counting = Counting(parts.parts.counters, report, counted=COUNTED)

    async def submit(self, *, most: int = MOST_LINES) -> Submitted:
        """Send up to ``most`` waiting jobs as one batch."""
        if reason := await self.refusal():
            return Submitted(reason=reason)
        id_, model = uuid4().hex, self._parts.embedder.model
        await self._batches.begin(id_, model=model, holder=self._all.holder)
        is_refused, done = False, Submitted()
        try:
            async with self._all.turn(id_):
                await self._submit(id_, min(most, MOST_LINES), done)
            return done
        except BatchRefusedError as error:
            is_refused = True
            return await self._give_up(id_, str(error), done.tokens)
        finally:
            if not is_refused:
                await self._all.let_go(id_)

    async def refusal(self) -> str | None:
        """Why no batch is created now."""
        state = await self._parts.switch.state()
        if state.is_paused:
            return f"paused by {state.paused_by}"
        if state.breaker.status is not BreakerStatus.CLOSED:
            return str(state.breaker)
        if self._parts.has_pieces:
            return "pieces of texts are nodes (EMBED_PIECES=nodes), which batches do not make"
        now = await self._batches.now()
        for batch in await self._batches.every():
            if batch.status is BatchStatus.REFUSED and batch.until and batch.until > now:
                return batch.line(now)
        return None

    async def _submit(self, id_: str, most: int, done: Submitted) -> None:
        with tempfile.TemporaryDirectory(prefix="embed-pipeline-") as folder:
            path = Path(folder) / "batch.jsonl"
            with path.open("wb") as file:
                filled = await self._fill(id_, file, most)
            self._all.passed(Step.LEASED)
            await self._settler.release(filled.left)
            done.jobs, done.tokens = len(filled.sent), filled.tokens
            done.left, done.reason = len(filled.left), filled.reason
            if not filled.sent:
                await self._batches.drop(id_, holder=self._all.holder)
                return
            await self._batches.mark_sent(filled.sent)
            now = await self._batches.now()
            await self._batches.hold(id_, now + WHILE_MADE)
            file_id = await self._provider.upload(path, name=f"embed-pipeline-{id_}.jsonl")
        self._all.passed(Step.UPLOADED)
        await self._all.write(
            id_,
            status=BatchStatus.CREATING.value,
            input_file=file_id,
            jobs=done.jobs,
        )
        self._all.passed(Step.CREATING)
        # Before the provider is asked: it may have the batch although its answer is lost.
        await self._batches.hold(id_, await self._batches.now() + LONGEST_BATCH)
        await self._all.write(id_)
        self._all.passed(Step.HELD)
        made = await self._provider.create(file_id, self._all.metadata(id_))
        self._all.passed(Step.CREATED)
        try:
            await self._all.write(
                id_,
                status=BatchStatus.SUBMITTED.value,
                provider_id=made.id,
                provider_status=made.status,
                expires_at=made.expires_at,
            )
        except TurnLostError:
            await self._cancel_unless_adopted(id_, made.id)
            raise
        self._all.passed(Step.SUBMITTED)
        logger.info("batch=%s submitted: %d jobs as %s", id_, done.jobs, made.id)
        done.batch = id_

    async def _cancel_unless_adopted(self, id_: str, provider_id: str) -> None:
        """After a sleep of minutes: others have found the batch, or have given its jobs back."""
        found = {batch.id: batch for batch in await self._batches.every()}.get(id_)
        if found is None or found.status is BatchStatus.ABANDONED:
            logger.warning("batch=%s came too late, %s is cancelled", id_, provider_id)
            await self._provider.cancel(provider_id)

    async def _give_up(self, id_: str, why: str, tokens: int) -> Submitted:
        """The provider refuses: give all jobs back, for ordinary drains to work on meanwhile."""
        logger.warning("batch=%s refused: %s", id_, why)
        model = self._parts.embedder.model
        sent = await self._batches.sent_jobs(id_, model=model)
        await give_back([job.lease for job in sent], self._settler)
        until = await self._batches.now() + REFUSED_FOR
        status = BatchStatus.REFUSED.value
        holder = self._all.holder
        if await self._batches.write(id_, holder=holder, status=status, error=why, until=until):
            await self._all.refund(tokens)
        return Submitted(reason=f"the provider refused a batch: {why}")

    async def _fill(self, id_: str, file: IO[bytes], most: int) -> _Filled:
        filled = _Filled()
        while len(filled.sent) < most and filled.bytes < MOST_BYTES and filled.reason is None:
            leased = await self._parts.store.lease(
                owner=owner_of_batch(id_),
                model=self._parts.embedder.model,
                limit=min(PAGE, most - len(filled.sent)),
                duration=WHILE_MADE,
                # Suspects are tried apart from others, so a drain does that.
                lane=Lane.HEALTHY,
            )
            if not leased.jobs:
                filled.reason = leased.refusal
                break
            self._settler.holdings.add((job.lease for job in leased.jobs), deadline=FOR_EVER)
            await self._add_page(filled, file, leased.jobs)
            # By page, so that nothing that was counted for a batch without a file stays counted.
            await self._all.write(id_, tokens=filled.tokens)
        return filled

    async def _add_page(self, filled: _Filled, file: IO[bytes], jobs: Sequence[LeasedJob]) -> None:
        by_lease = {job.lease: job for job in jobs}
        try:
            loaded = await self._parts.store.load(list(by_lease))
        except TooMuchAtOnceError as error:
            filled.left += by_lease
            filled.reason = str(error)
            return
        current = [
            (by_lease[x.lease], x.properties) for x in loaded if x.fate is EntityFate.CURRENT
        ]
        filled.left += [x.lease for x in loaded if x.fate is EntityFate.LONG]
        items = await asyncio.to_thread(self._render, current)
        # As in a drain: nothing to embed is done, and what the graph has is copied.
        blank = [item for item in items if not item.text.text.strip()]
        items = [item for item in items if item.text.text.strip()]
        filled.left += [item.leased.lease for item in items if item.text.pieces]
        whole = [item for item in items if not item.text.pieces]
        asked, known = await reuse_vectors(self._parts.store, self._parts.embedder, whole)
        await self._settler.complete([*known, *(copy_of(item, None) for item in blank)])
        self._report.cache_hits += len(known)
        await self._counting.send()
        tokens = sum(item.text.tokens for item in asked)
        if asked and (refused := await self._all.purse.spend(tokens)):
            filled.left += [item.leased.lease for item in asked]
            filled.reason = refused
            return
        for item in asked:
            line = self._provider.line(custom_id(item.leased.lease), item.text)
            filled.bytes += file.write(line)
            filled.sent.append(SentJob(item.leased.lease, item.text_hash, item.text.tokens))

    def _render(self, entities: Sequence[tuple[LeasedJob, Mapping[str, Any]]]) -> list[Item]:
        items = []
        render, recipe = self._parts.render, self._parts.recipe
        for leased, properties in entities:
            text = render(properties)
            digest = hash_of_entity(properties, text, render=render, recipe=recipe)
            items.append(Item(leased, self._parts.prepared(text), digest))
        return items
