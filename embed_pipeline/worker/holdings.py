"""Which leases this worker holds, and until when it may believe so."""

import threading
import time
from collections.abc import Callable, Iterable

from embed_pipeline.domain.job import Lease

Clock = Callable[[], float]
"""Seconds that never go back, also while the process is suspended."""


class Holdings:
    """Shared by the worker and its heartbeat, which runs in a thread of its own.

    A lease counts as held until the deadline that the database last confirmed. After that the
    worker writes nothing about the job, without asking anybody: it may have been suspended.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._deadlines: dict[Lease, float] = {}
        self._mutex = threading.Lock()

    def __len__(self) -> int:
        with self._mutex:
            return len(self._deadlines)

    def add(self, leases: Iterable[Lease], *, deadline: float) -> None:
        """Note new leases; the deadline counts from before they were asked for."""
        with self._mutex:
            self._deadlines.update(dict.fromkeys(leases, deadline))

    def extend(self, leases: Iterable[Lease], *, deadline: float) -> None:
        """Note a confirmed heartbeat; what was given up meanwhile stays given up."""
        with self._mutex:
            for lease in leases:
                if lease in self._deadlines:
                    self._deadlines[lease] = deadline

    def drop(self, leases: Iterable[Lease]) -> int:
        """Forget leases that have ended, however they did; return how many were known."""
        with self._mutex:
            return sum(self._deadlines.pop(lease, None) is not None for lease in leases)

    def all(self) -> list[Lease]:
        """Everything that has not ended, for the heartbeat and the final release."""
        with self._mutex:
            return list(self._deadlines)

    def is_held(self, lease: Lease) -> bool:
        """Say whether this worker may still write about the job."""
        with self._mutex:
            return self._deadlines.get(lease, 0.0) > self._clock()
