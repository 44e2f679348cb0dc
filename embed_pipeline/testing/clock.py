"""Time that a test moves."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta


@dataclass
class FakeClock:
    """A clock that only moves when it is told to."""

    now: datetime = field(default_factory=lambda: datetime(2030, 1, 1, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.now

    def monotonic(self) -> float:
        """The same for a worker, which counts seconds."""
        return self.now.timestamp()

    def advance(self, duration: timedelta) -> None:
        self.now += duration
