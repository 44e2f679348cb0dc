"""How a drain works, and how much of it."""

from dataclasses import dataclass
from datetime import timedelta


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
    max_jobs: int | None = None
    max_time: timedelta | None = None
    until_empty: bool = True
    """End when nothing is due; otherwise wait for more until the budget is used."""
    linger: timedelta = timedelta(0)
    """Before it ends with nothing due, a drain looks for more until its last jobs (or its first
    look) are so long ago: a job that comes meanwhile needs no new drain."""
    jobs_per_lease: int = 2_048
    jobs_per_request: int | None = None
    """At most so many texts per request; the provider's own limit if not set."""
    requests_at_once: int = 4
    idle_pause: timedelta = timedelta(seconds=1)
    """Time between two looks at a queue that has nothing due."""
