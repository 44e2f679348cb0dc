"""What the doctor says: one line each, and what to do. Needs neither the driver nor a provider."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from embed_pipeline.domain.words import exactly
from embed_pipeline.settings import Settings, warnings
from embed_pipeline.settings.types import written

PLACES: Final = 8
"""Drains that run at once by the limit of their tag, in each ``dagster.yaml`` of the project."""


class Mark(StrEnum):
    """The mark in front of a finding."""

    GOOD = "✓"
    WARNING = "!"
    BAD = "✗"
    SKIPPED = "–"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's table."""

    subject: str
    mark: Mark
    detail: str
    remedy: str = ""
    exit_code: int = 0
    examples: tuple[str, ...] = ()
    """Contents of the graph, which do not belong into a bug report."""


def examine_settings(settings: Settings) -> list[Finding]:
    """Findings about the settings, and warnings about unlikely ones."""
    limit = "no rate limit"
    if settings.is_rate_limited:
        interval = written(settings.rate_limit_interval)
        limit = f"{settings.rate_limit_requests} requests per {interval} ms"
    if settings.tokens_per_minute is not None:
        limit += f", {settings.tokens_per_minute} tokens per minute"
    good = Finding(
        "Settings",
        Mark.GOOD,
        f"retention {settings.retention_days} days, lease {exactly(settings.lease)}, "
        f"heartbeat {exactly(settings.heartbeat)}, {limit}, "
        f"{settings.max_attempts} attempts",
    )
    return [good, *(Finding("Settings", Mark.WARNING, text) for text in warnings(settings))]


def examine_places(embeddings: Sequence[Settings]) -> list[Finding]:
    """Whether all that are on standby find a place, and one more: the successor of each in turn."""
    standing = sum(one.standby == "true" for one in embeddings)
    if standing + 1 <= PLACES:
        return []
    return [
        Finding(
            "Standby",
            Mark.WARNING,
            f"{standing} embeddings on standby need {standing + 1} drains at once, and "
            f"dagster.yaml lets {PLACES} run",
            "Raise the limit of embed_pipeline/drain in tag_concurrency_limits, and "
            "max_concurrent_runs (with Celery the sum of worker_concurrency, too), or take some "
            "off EMBED_STANDBY.",
        )
    ]
