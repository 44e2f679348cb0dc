"""What a drain did, in numbers."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.prices import cost_of


class Ending(StrEnum):
    """Why a drain ended."""

    EMPTY = "nothing left to do"
    BUDGET = "its budget is used"
    STOPPED = "it was told to stop"
    CLOSED = "the queue gives out no jobs"
    CRITICAL = "nothing can work until somebody acts"
    HEARTBEAT = "its heartbeats did not reach the database"


FAULTS: Final = (Ending.CRITICAL, Ending.HEARTBEAT)


@dataclass(slots=True)
class DrainReport:
    """Counted while the drain works; complete when it has ended."""

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
    truncated: int = 0
    requests: int = 0
    requests_limited: int = 0
    tokens: int = 0
    seconds: float = 0.0
    seconds_waiting: float = 0.0
    """For the rate limit."""
    seconds_idle: float = 0.0
    """For new jobs, with nothing left to do."""
    ending: Ending | None = None
    reason: str | None = None

    @property
    def throughput(self) -> float:
        """Jobs completed per second of the time in which there was something to do."""
        busy = self.seconds - self.seconds_idle
        return self.completed / busy if busy > 0 else 0.0

    @property
    def cost_usd(self) -> float | None:
        """What the provider charges for the tokens; None where its price is not known."""
        return cost_of(self.model, self.tokens)

    @property
    def fault(self) -> str | None:
        """One sentence for a drain that somebody must look after; None for any other."""
        if self.ending not in FAULTS:
            return None
        reason = f" ({self.reason})" if self.reason else ""
        return f"The drain gave up, {self.ending}{reason}; its jobs are given back"

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
