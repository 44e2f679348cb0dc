"""Adds to the queue's counters what only the worker sees."""

import logging
import time
from typing import Final

from embed_pipeline.domain.ports import Counters
from embed_pipeline.worker.report import DrainReport

logger = logging.getLogger(__name__)

COUNTED: Final = (
    *("completed", "requests", "requests_limited", "tokens", "cache_hits"),
    "heartbeats_failed",
)
SECONDS_BETWEEN: Final = 15.0
"""So much is missing in the counters when a drain is killed."""


class Counting:
    """Sends what has come since the last time; its errors never end a drain."""

    def __init__(self, counters: Counters, report: DrainReport) -> None:
        self._counters = counters
        self._report = report
        self._sent = dict.fromkeys(COUNTED, 0)
        self._due_at = time.monotonic() + SECONDS_BETWEEN

    async def if_due(self) -> None:
        """Send now and then during a drain."""
        if time.monotonic() >= self._due_at:
            await self.send()

    async def send(self) -> None:
        """Send what has not been sent yet."""
        self._due_at = time.monotonic() + SECONDS_BETWEEN
        now = {name: getattr(self._report, name) for name in COUNTED}
        news = {
            name: now[name] - self._sent[name] for name in COUNTED if now[name] > self._sent[name]
        }
        if not news:
            return
        try:
            await self._counters.count(news)
        except Exception as error:
            logger.warning("owner=%s cannot count: %s", self._report.owner, type(error).__name__)
        else:
            self._sent = now
