"""How a drain works, and how much of it."""

import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from embed_pipeline.domain.embedding import PreparedText, RequestLimits
from embed_pipeline.domain.errors import plain_fault
from embed_pipeline.domain.pieces import parse_recipe
from embed_pipeline.domain.ports import Counters, Embedder, JobStore, QueueSwitch, RateLimiter
from embed_pipeline.domain.prices import UNKNOWN, Price
from embed_pipeline.domain.text import Render
from embed_pipeline.worker.lease_keeper import Clock, OpenStore
from embed_pipeline.worker.outage import ReleaseOwner
from embed_pipeline.worker.report import DrainReport
from embed_pipeline.worker.settling import FaultOf


@dataclass(frozen=True, slots=True)
class Parts:
    """The collaborators of a drain."""

    store: JobStore
    open_store: OpenStore
    """Opens another store, for the thread of the heartbeat."""
    limiter: RateLimiter
    switch: QueueSwitch
    counters: Counters
    embedder: Embedder
    render: Render
    recipe: str
    prepare: Callable[[str], PreparedText] | None = None
    """Splits a text, and gives it its prefix; without it the embedder does."""
    fault_of: FaultOf = plain_fault
    release_owner: ReleaseOwner | None = None
    price: Price = UNKNOWN
    clock: Clock = time.monotonic
    batching: "Batching | None" = None
    """What goes through the provider's Batch API, and is looked after beside the work."""
    trace: Callable[[DrainReport], AbstractContextManager[object]] = nullcontext
    """What the whole drain is inside of, from before its first lease to after its last release."""

    @property
    def has_pieces(self) -> bool:
        """Whether each piece of a text is a node."""
        return parse_recipe(self.recipe).tokens is not None

    def prepared(self, text: str) -> PreparedText:
        """A text in the form in which it is sent."""
        return (self.prepare or self.embedder.prepare)(text)


@dataclass(frozen=True, slots=True)
class Batching:
    """Looks after batches, and submits what can wait."""

    look: Callable[[DrainReport], Coroutine[Any, Any, None]]
    """Collects what is ready, submits a backlog; its errors are its own."""
    least: int
    """The fewest jobs that make a batch: after so many the drain looks at the backlog again."""


SOONEST_LOOK: Final = 0.1
"""Seconds; a look is a transaction of some milliseconds."""
PATIENCE: Final = 40.0
"""After so many times the shortest pause the pauses grow, in proportion to the silence."""
MOST_PER_LEASE: Final = 2_048
"""As many as a request can hold; a lease of more would hold the mutex of the queue for longer."""


@dataclass(frozen=True, slots=True)
class DrainOptions:
    """Bounds and sizes of one drain."""

    lease: timedelta = timedelta(minutes=5)
    heartbeat: timedelta = timedelta(seconds=100)
    job_timeout: timedelta = timedelta(minutes=10)
    """How long the work on a batch may take, however alive the worker is."""
    grace: timedelta = timedelta(seconds=30)
    """How long requests in flight may go on after a stop."""
    recovery_interval: timedelta = timedelta(minutes=1)
    """Zero turns recovery off, at the start of a drain too."""
    recovery_grace: timedelta = timedelta(0)
    refusal: str | None = None
    """Why nothing is to be leased, where that is known before the first lease."""
    max_jobs: int | None = None
    max_time: timedelta | None = None
    until_empty: bool = True
    """End when nothing is due; otherwise wait for more until the budget is used."""
    linger: timedelta = timedelta(0)
    """Before it ends with nothing due, a drain looks for more until its last jobs (or its first
    look) are so long ago: a job that comes meanwhile needs no new drain."""
    jobs_per_lease: int | None = None
    """At most so many jobs at once; if not set, what the requests at once can hold."""
    jobs_per_request: int | None = None
    """At most so many texts per request; the provider's own limit if not set."""
    tokens_per_request: int | None = None
    """At most so many tokens per request, where the rate limit grants no more at once."""
    requests_at_once: int = 4
    idle_pause: timedelta = timedelta(milliseconds=300)
    """The longest time between two looks at a queue that has nothing due."""

    def pause_after(self, silence: float) -> float:
        """Seconds until the next look, after so many without a job: soon after work, then slower.

        At most 600 looks a minute, and 200 once nothing has come for 12 s.
        """
        return min(self.idle_pause.total_seconds(), max(SOONEST_LOOK, silence / PATIENCE))

    def jobs_left(self, report: DrainReport) -> int:
        """How many jobs the drain may still take, those that go into batches too."""
        if self.max_jobs is None:
            return sys.maxsize
        taken = report.leased - report.released - report.given_back + report.in_batches
        return max(0, self.max_jobs - taken)

    def limits(self, of_provider: RequestLimits) -> RequestLimits:
        """The limits of one request of the drain."""
        return replace(
            of_provider,
            inputs=min(of_provider.inputs, self.jobs_per_request or of_provider.inputs),
            tokens=min(of_provider.tokens, self.tokens_per_request or of_provider.tokens),
        )

    def most_per_lease(self, texts_per_request: int) -> int:
        """How many jobs to lease when so many texts fit into a request.

        A lease of 2,048 jobs whose requests hold 36 texts each would be 57 requests, of which four
        are under way and the rest waits: held for minutes, lost by a crash, given back by a pause.
        """
        if self.jobs_per_lease is not None:
            return self.jobs_per_lease
        return min(MOST_PER_LEASE, texts_per_request * self.requests_at_once)
