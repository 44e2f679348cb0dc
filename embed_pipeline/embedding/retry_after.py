"""How long a provider asks to wait: the headers of an answer, which may say anything."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from embed_pipeline.domain.holds import pause_of


def retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """Read ``retry-after-ms`` or ``retry-after``; ``None`` where they say nothing usable."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        pause = _seconds(headers.get(name), unit)
        if pause is not None:
            return pause
    until = _moment(headers.get("retry-after"))
    if until is None:
        return None
    # By the provider's clock, where it tells: this machine's may differ.
    now = _moment(headers.get("date")) or datetime.now(UTC)
    return pause_of((until - now).total_seconds())


def _seconds(said: str | None, unit: float) -> timedelta | None:
    try:
        return pause_of(float(said or "") * unit)
    except ValueError:
        return None


def _moment(said: str | None) -> datetime | None:
    """Parse an HTTP date; the standard library's parser raises several kinds of errors."""
    try:
        moment = parsedate_to_datetime(said or "")
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
