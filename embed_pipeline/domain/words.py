"""Numbers and durations as people say them."""

from datetime import timedelta


def number_of(count: float, noun: str = "job") -> str:
    """Pluralize."""
    return f"{count:,.0f} {noun}" if round(count) == 1 else f"{count:,.0f} {noun}s"


def span(length: timedelta | float) -> str:
    """Format a duration in at most two units."""
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    if seconds < 60 or 60 < seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def exactly(length: timedelta) -> str:
    """Format a duration that was set: as ``span`` where that rounds nothing."""
    seconds = length.total_seconds()
    return span(length) if seconds % 60 == 0 else f"{seconds:g} s"
