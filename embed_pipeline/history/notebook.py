"""What a notebook needs to go on where there is nothing to read yet."""

import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import pandas as pd

from embed_pipeline.domain.errors import ConfigurationError, EmbedPipelineError
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.history.embeddings import meaning
from embed_pipeline.history.frames import empty, resampled
from embed_pipeline.operations import wiring
from embed_pipeline.settings.embeddings import load_embeddings

INTERVALS: Final = (
    (timedelta(hours=3), "1min"),
    (timedelta(hours=12), "5min"),
    (timedelta(days=2), "15min"),
    (timedelta(days=14), "1h"),
    (timedelta(days=60), "6h"),
)
"""Up to so long a time is shown in such steps."""
LONGEST_INTERVAL: Final = "1D"


def say(text: str) -> None:
    """Write below the cell."""
    sys.stdout.write(f"{text}\n")


def read(
    table: Callable[..., pd.DataFrame],
    *,
    embedding: str | None = None,
    columns: Sequence[str] = (),
    **options: Any,
) -> pd.DataFrame:
    """Read a table and say how much there was; or why there is nothing, and go on without.

    Args:
        table: a function of ``history``.
        embedding: whose table; None is the only one there is.
        columns: those that later cells rely on, also where nothing can be read.
        options: for the function.
    """
    try:
        frame = table(**meaning(table, embedding), **options)
    except EmbedPipelineError as error:
        say(f"Nothing to read: {error}")
        return empty().reindex(columns=list(columns))
    say(f"{table.__name__}: {len(frame):,} rows." if len(frame) else f"{table.__name__}: none yet.")
    return frame


def by_span(frame: pd.DataFrame, every: str | None = None) -> pd.DataFrame:
    """One row per interval; without ``every`` the interval fits the time that was read.

    On the first day that is minutes, over weeks hours: a hundred points or so, never one.
    """
    if frame.empty:
        return frame
    if every is None:
        span = frame.index[-1] - frame.index[0]
        every = next((rule for longest, rule in INTERVALS if span <= longest), LONGEST_INTERVAL)
        say(f"One row per {every}.")
    return resampled(frame, every)


def rate_limits() -> RateLimits:
    """The rate limit of this project; the default one where its settings cannot be read."""
    try:
        return wiring.rate_limits(load_embeddings()[0])
    except ConfigurationError as error:
        say(f"The default rate limit is assumed: {error}")
        return RateLimits()


def plot(
    frame: pd.DataFrame, *columns: str, title: str, unit: str, scale: float = 1.0, **options: Any
) -> None:
    """Draw columns; or say that there is nothing to draw.

    Args:
        frame: the x axis is its index.
        columns: those that are not there are left out.
        title: what is seen.
        unit: of the y axis, after ``scale``.
        scale: times the values.
        options: for pandas' ``plot``, such as ``kind`` or ``style``.
    """
    # The name of a single column is in the title, and its unit may not be the one of the axis.
    options.setdefault("legend", len(columns) > 1)
    drawn = frame[[name for name in columns if name in frame]].dropna(how="all")
    if drawn.empty:
        say(f"{title}: nothing to draw yet.")
        return
    (drawn * scale).plot(title=title, ylabel=unit, figsize=(10, 3), grid=True, **options)
