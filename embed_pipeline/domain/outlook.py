"""How far a drain has come, and when the rest will be done."""

from dataclasses import dataclass
from datetime import timedelta

from embed_pipeline.domain.words import span


@dataclass(frozen=True, slots=True)
class Outlook:
    """What only the database knows: the jobs left, and the seconds until the limit allows more."""

    left: int | None = None
    wait: float = 0.0
    closed: str | None = None
    """Why no jobs are given out."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The figures at one moment."""

    done: int
    failed: int
    left: int | None
    seconds: float
    wait: float = 0.0
    closed: str | None = None

    @property
    def rate(self) -> float:
        """Completed jobs per second since the start, so that waiting counts too."""
        return self.done / self.seconds if self.seconds > 0 else 0.0

    @property
    def eta(self) -> float | None:
        """Seconds that the rest takes at this rate."""
        if self.left is None or self.rate == 0:
            return None
        return self.left / self.rate

    @property
    def share(self) -> float:
        """How much of the work is done, from 0 to 1."""
        total = self.done + self.failed + (self.left or 0)
        return (self.done + self.failed) / total if total else 0.0

    def __str__(self) -> str:
        parts = [f"{self.done} done"]
        if self.left is not None:
            parts.append(f"{self.left} left")
        if self.done:
            parts.append(f"{self.rate:.1f}/s")
        if self.left and self.eta is not None:
            parts.append(f"ETA {span(self.eta)}")
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.wait >= 1:
            parts.append(f"rate limit: next request in {self.wait:.0f} s")
        if self.closed:
            parts.append(self.closed)
        return " · ".join(parts)


def progress_line(progress: Progress, *, waited: float) -> str:
    """The line that a run logs once a minute; ``waited`` are seconds spent on the rate limit."""
    left = "an unknown number" if progress.left is None else progress.left
    eta = "unknown" if progress.eta is None else span(progress.eta)
    now = f"for {progress.wait:.0f} s more" if progress.wait >= 1 else "no"
    return (
        f"{progress.done} done, {progress.failed} failed, {left} left; {progress.rate:.1f} a "
        f"second, ETA {eta}; waiting for the limit: {now}, {waited:.0f} s so far"
    )


def time_left(left: int, per_minute: float, *, hold: timedelta = timedelta(0)) -> timedelta | None:
    """When ``left`` jobs are done at the measured pace, after a pause of the provider.

    None where nothing is left, or nothing was completed lately, so that the pace is unknown.
    """
    if left <= 0 or per_minute <= 0:
        return None
    return hold + timedelta(minutes=left / per_minute)


def outlook(left: int, per_minute: float, *, hold: timedelta = timedelta(0)) -> str | None:
    """The ETA in words; None if unknown."""
    eta = time_left(left, per_minute, hold=hold)
    if eta is None:
        return None
    return f"ETA {span(eta)} for {left} jobs at {per_minute:.0f} a minute"
