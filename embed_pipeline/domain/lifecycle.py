"""What may happen to a job, as data, and what follows from an attempt.

::

    pending ──lease──▶ processing ──complete──▶ completed
       ▲  ◀─ release / retry / recover ─┘ │          │
       │                                  ├──▶ failed│
       │                                  └──▶ cancelled  (pending ──▶ cancelled too)
       └──── retry_failed / revive ◀──────────────┘

``revive`` opens a finished job again when the text of its entity has changed without a new version.
The requirements draw no arrow out of ``completed``; but they demand that a stored vector is that
of the current text, and the key (entity, model, version) leaves no room for a second job. So the
arrow exists, and only a different text (or an explicit ``force``) may use it. A cancellation by an
operator holds until the text changes; one by the queue itself (entity gone, newer version) ends
with the next enqueue of that key.

``attempts`` rises when a job is leased and not when it fails: a worker that dies without a word
has still spent one.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import JobStatus, NewJob


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Doubles from ``base`` up to ``cap``, then subtracts a random part, up to ``jitter`` of it.

    The jitter spreads jobs that failed together, so that they do not come back together.
    """

    base: timedelta = timedelta(seconds=5)
    cap: timedelta = timedelta(minutes=15)
    jitter: float = 0.2

    def delay(self, attempts: int, roll: float) -> timedelta:
        """The pause after the given number of attempts; ``roll`` is a number from 0 to 1."""
        # The exponent is bounded because a larger power overflows a timedelta.
        doubled = min(self.base * 2 ** min(max(attempts - 1, 0), 20), self.cap)
        return doubled * (1 - self.jitter * roll)


_PENDING, _PROCESSING = JobStatus.PENDING, JobStatus.PROCESSING
_COMPLETED, _FAILED, _CANCELLED = JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED


class Move(StrEnum):
    """Everything that changes the state of a job."""

    LEASE = "lease"
    COMPLETE = "complete"
    RETRY = "retry"
    EXHAUST = "exhaust"
    RELEASE = "release"
    RECOVER = "recover"
    CANCEL = "cancel"
    RETRY_FAILED = "retry_failed"
    REVIVE = "revive"


MOVES: Final[dict[Move, tuple[frozenset[JobStatus], JobStatus]]] = {
    Move.LEASE: (frozenset({_PENDING}), _PROCESSING),
    Move.COMPLETE: (frozenset({_PROCESSING}), _COMPLETED),
    Move.RETRY: (frozenset({_PROCESSING}), _PENDING),
    Move.EXHAUST: (frozenset({_PROCESSING}), _FAILED),
    Move.RELEASE: (frozenset({_PROCESSING}), _PENDING),
    Move.RECOVER: (frozenset({_PROCESSING}), _PENDING),
    Move.CANCEL: (frozenset({_PENDING, _PROCESSING}), _CANCELLED),
    Move.RETRY_FAILED: (frozenset({_FAILED}), _PENDING),
    Move.REVIVE: (frozenset({_COMPLETED, _FAILED, _CANCELLED}), _PENDING),
}
"""Each move with the states it may start from and the one it ends in."""

TRANSITIONS: Final = frozenset(
    (before, after) for sources, after in MOVES.values() for before in sources
)
"""Every pair of states that may follow each other; the store refuses all others."""


def is_allowed(move: Move, status: JobStatus) -> bool:
    """Say whether the table has this move from this state."""
    return status in MOVES[move][0]


@dataclass(frozen=True, slots=True)
class Retry:
    """Back to pending, to be leased after ``delay``."""

    delay: timedelta


@dataclass(frozen=True, slots=True)
class GiveUp:
    """To failed."""


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Back to pending with the attempt refunded: it was not the job's fault."""


def after_failure(
    category: ErrorCategory,
    *,
    attempts: int,
    max_attempts: int,
    policy: RetryPolicy,
    roll: float,
    is_pinned: bool = False,
    is_outage: bool = False,
) -> Retry | GiveUp | GiveBack:
    """Decide what a reported failure leads to; ``attempts`` already counts the failed one.

    A CRITICAL error is a global fault and costs the job nothing, unless bisecting has pinned it
    to this one job. Nor does any error of a provider that is down.
    """
    if is_outage or (category is ErrorCategory.CRITICAL and not is_pinned):
        return GiveBack()
    if category is not ErrorCategory.TRANSIENT or attempts >= max_attempts:
        return GiveUp()
    return Retry(policy.delay(attempts, roll))


def after_expiry(
    *,
    attempts: int,
    max_attempts: int,
    expiries: int,
    policy: RetryPolicy,
    roll: float,
    is_moved: bool = False,
    is_batch: bool = False,
) -> Retry | GiveUp | GiveBack:
    """Decide what an expired lease leads to; ``expiries`` already counts this one.

    The same policy as for a failure, except that the first expiry is available again at once:
    most workers die for reasons of their own. For the same reason it is never the end of a job:
    its first lease to expire may have been shared, so the last attempt is made again, alone. Who
    allows only one attempt gets no second one.

    ``is_moved``: a newer text was asked for under the lease. That one has not been tried yet.
    ``is_batch``: the provider has not answered in time; no worker died, and no job is to blame.
    """
    if is_batch:
        return GiveBack()
    decision = after_failure(
        ErrorCategory.TRANSIENT,
        attempts=attempts,
        max_attempts=max_attempts,
        policy=policy,
        roll=roll,
    )
    if isinstance(decision, Retry):
        return Retry(timedelta(0)) if expiries <= 1 else decision
    if is_moved:
        return GiveBack()
    return GiveBack() if expiries <= 1 and max_attempts > 1 else GiveUp()


class EnqueueOutcome(StrEnum):
    """What an enqueue found and did."""

    CREATED = "created"
    PRESENT = "present"
    PROMOTED = "promoted"
    REVIVED = "revived"


@dataclass(frozen=True, slots=True)
class Existing:
    """What an enqueue must know about the existing job."""

    status: JobStatus
    priority: int
    text_hash: str | None
    is_cancelled_by_operator: bool
    is_put_off: bool = False
    """It waits because it was not urgent; see ``NewJob``."""


def on_enqueue(existing: Existing, wish: NewJob) -> EnqueueOutcome:
    """Decide what the enqueue of an existing key does; priority only ever rises."""
    if not existing.status.is_terminal:
        is_hurried = existing.is_put_off and wish.delay is None
        is_higher = wish.priority > existing.priority or is_hurried
        is_promoted = existing.status is _PENDING and is_higher
        return EnqueueOutcome.PROMOTED if is_promoted else EnqueueOutcome.PRESENT
    if wish.force or wish.is_lost:
        return EnqueueOutcome.REVIVED
    if existing.status is _CANCELLED and not existing.is_cancelled_by_operator:
        return EnqueueOutcome.REVIVED
    is_known = wish.text_hash is not None and existing.text_hash is not None
    is_changed = is_known and wish.text_hash != existing.text_hash
    return EnqueueOutcome.REVIVED if is_changed else EnqueueOutcome.PRESENT
