"""How long a job waits before it is tried again."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Doubles from ``base`` up to ``cap``, then takes off up to ``jitter`` of it.

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
