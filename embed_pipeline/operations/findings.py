"""What the doctor says: one line each, and what to do. Needs neither the driver nor a provider."""

from dataclasses import dataclass
from enum import StrEnum

from embed_pipeline.domain.words import exactly
from embed_pipeline.settings import Settings, warnings
from embed_pipeline.settings.types import written


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
