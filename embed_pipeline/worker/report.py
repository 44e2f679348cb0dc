"""What a drain did, in numbers."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from embed_pipeline.domain.breaker import Breaker
from embed_pipeline.domain.errors import ErrorCategory, fingerprint
from embed_pipeline.domain.job import JobStatus, Lease, run_id_of
from embed_pipeline.domain.prices import UNKNOWN, Price
from embed_pipeline.domain.redact import one_line, redact
from embed_pipeline.domain.results import FailureOutcome, RecoveredJob, tally_of

logger = logging.getLogger(__name__)


class Ending(StrEnum):
    """Why a drain ended."""

    EMPTY = "nothing left to do"
    BUDGET = "its budget is used"
    SPENT = "nothing more may be spent for now"
    STOPPED = "it was told to stop"
    CLOSED = "the queue gives out no jobs"
    CRITICAL = "nothing can work until somebody acts"
    OUTAGE = "the provider is down"
    HEARTBEAT = "its heartbeats did not reach the database"


FAULTS: Final = (Ending.CRITICAL, Ending.OUTAGE, Ending.HEARTBEAT)
MOST_KINDS: Final = 20
"""Kinds of errors that are told apart; a provider may have a new message for every text."""
LONGEST_EXAMPLE: Final = 300
MOST_FAILED_IDS: Final = 100
NAMED_KINDS: Final = 3
"""Kinds of errors in one sentence."""


@dataclass(slots=True)
class ErrorKind:
    """Failed attempts whose messages differ only in numbers, ids and names."""

    category: ErrorCategory
    example: str
    """The first message, as it may be shown."""
    outcomes: Counter[FailureOutcome] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        """The number of attempts."""
        return self.outcomes.total()

    def __str__(self) -> str:
        return f"{self.count} {self.category}: {self.example}"


@dataclass(slots=True)
class DrainReport:
    """Updated while the drain works; complete when it has ended."""

    owner: str
    model: str
    leased: int = 0
    completed: int = 0
    failed: Counter[ErrorCategory] = field(default_factory=Counter)
    retried: int = 0
    given_back: int = 0
    released: int = 0
    superseded: int = 0
    moved: int = 0
    fenced: int = 0
    lost: int = 0
    recovered: int = 0
    recovery_errors: int = 0
    heartbeats: int = 0
    heartbeats_failed: int = 0
    cache_hits: int = 0
    in_pieces: int = 0
    in_batches: int = 0
    """Jobs that were submitted to the provider's Batch API instead."""
    requests: int = 0
    requests_limited: int = 0
    holds_clamped: int = 0
    """Pauses of the provider that were longer than is granted."""
    tokens: int = 0
    seconds: float = 0.0
    seconds_waiting: float = 0.0
    """For the rate limit."""
    seconds_idle: float = 0.0
    """For new jobs, with nothing left to do."""
    ending: Ending | None = None
    reason: str | None = None
    price: Price = UNKNOWN
    """Of a token while the drain worked."""
    breaker: Breaker | None = None
    """As this drain has left it, if it met a fault that stops everybody."""
    kinds: dict[tuple[ErrorCategory, str], ErrorKind] = field(default_factory=dict)
    failed_ids: list[str] = field(default_factory=list)
    """The first jobs that have failed for good; the queue has the rest."""
    taken_back: dict[str, Counter[JobStatus]] = field(default_factory=dict)
    """What has become of the recovered jobs of each former owner; telling it clears this."""

    def note_recovered(self, jobs: Sequence[RecoveredJob]) -> None:
        """Count jobs that were recovered, with their former owners."""
        self.recovered += len(jobs)
        for owner, tally in tally_of(jobs).items():
            self.taken_back.setdefault(owner, Counter()).update(tally)

    def note_failed(self, job_id: str) -> None:
        """Record a job that has failed for good."""
        if len(self.failed_ids) < MOST_FAILED_IDS:
            self.failed_ids.append(job_id)

    def note_error(self, category: ErrorCategory, message: str, outcome: FailureOutcome) -> None:
        """Count a failed attempt with those of its kind."""
        key = category, fingerprint(message)
        if key not in self.kinds:
            example = one_line(redact(message))[:LONGEST_EXAMPLE]
            if len(self.kinds) >= MOST_KINDS:
                key, example = (category, ""), "other errors"
            self.kinds.setdefault(key, ErrorKind(category, example))
        self.kinds[key].outcomes[outcome] += 1

    @property
    def errors(self) -> list[ErrorKind]:
        """The kinds of failed attempts, the most frequent first."""
        return sorted(self.kinds.values(), key=lambda kind: -kind.count)

    @property
    def why(self) -> str:
        """The most frequent kinds of errors in one line; empty if there are none."""
        named = [str(kind) for kind in self.errors[:NAMED_KINDS]]
        if (more := len(self.kinds) - NAMED_KINDS) > 0:
            named.append(f"{more} more kinds of errors")
        return "; ".join(named)

    @property
    def has_only_failed(self) -> bool:
        """Whether nothing was completed and something has failed, finally or not."""
        return self.completed == 0 and self.failed.total() + self.retried > 0

    @property
    def throughput(self) -> float:
        """Jobs completed per second while there was something to do."""
        busy = self.seconds - self.seconds_idle
        return self.completed / busy if busy > 0 else 0.0

    @property
    def cost_usd(self) -> float | None:
        """The cost of the tokens; None if the price is unknown."""
        return self.price.usd(self.tokens)

    @property
    def cost_nano_usd(self) -> int:
        """The same in whole billionths, for the counters; 0 if unknown."""
        return self.price.nano_usd(self.tokens)

    @property
    def fault(self) -> str | None:
        """Why this drain needs attention, in a sentence; None if it does not."""
        if self.ending in FAULTS:
            reason = f" ({self.reason})" if self.reason else ""
            return f"The drain gave up, {self.ending}{reason}; its jobs are given back"
        if not self.has_only_failed or self.ending is Ending.STOPPED:
            return None
        return (
            f"The drain has completed nothing: {self.failed.total()} failed, {self.retried} to be "
            f"tried again ({self.why})"
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and texts, for metadata and logs."""
        numbers = {
            name: value
            for name in self.__slots__
            if isinstance(value := getattr(self, name), (int, float)) and name != "failed"
        }
        return {
            **numbers,
            **{f"failed_{c.value.lower()}": self.failed[c] for c in ErrorCategory},
            "throughput": round(self.throughput, 2),
            "cost_usd": self.cost_usd,
            "ending": self.ending.value if self.ending else None,
            "reason": self.reason,
            "owner": self.owner,
            "model": self.model,
        }


def log_jobs(level: int, what: str, owner: str, leases: Sequence[Lease]) -> None:
    """Log what happened to these jobs in one line, however many they are."""
    if logger.isEnabledFor(level):
        ids = ",".join(lease.job_id for lease in leases)
        run = run_id_of(owner)
        logger.log(level, "%s owner=%s run=%s jobs=%d ids=%s", what, owner, run, len(leases), ids)
