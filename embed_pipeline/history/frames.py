"""From records to tidy frames, in bounded memory."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import pandas as pd
from pandas.tseries.frequencies import to_offset

from embed_pipeline.history.records import Record

CHUNK: Final = 1_000
INDEX: Final = "at"
WORST: Final = (
    "expired_leases",
    "without_lock",
    "unadopted",
    "seconds_since_recovery",
    "hold_seconds",
)


def frame_of(records: Iterable[Record]) -> pd.DataFrame:
    """One row per record, one column per value, indexed by time in UTC, oldest first."""
    return joined(_chunks(records))


def joined(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate frames in order of time; missing columns are empty."""
    parts = [frame for frame in frames if len(frame)]
    if not parts:
        return empty()
    frame = pd.concat(parts) if len(parts) > 1 else parts[0]
    if frame.index.is_monotonic_increasing:
        return frame
    return frame.sort_index(kind="stable")


def empty() -> pd.DataFrame:
    """A frame without rows and columns, but with an index in UTC."""
    return pd.DataFrame(index=_index([]))


def resampled(frame: pd.DataFrame, rule: str) -> pd.DataFrame:
    """One row per interval, each figure summarized by its kind; empty intervals stay empty.

    Raises:
        ValueError: pandas does not know the rule.
    """
    try:
        offset = to_offset(rule)
    except ValueError:
        raise ValueError(
            f"resample is {rule!r}; it must be an interval of pandas, such as 5min, 1h, 1D or 1W"
        ) from None
    if frame.empty:
        return frame
    numbers = frame.select_dtypes("number")
    intervals = numbers.resample(offset)
    figures = {
        "last": intervals.last(),
        "max": intervals.max(),
        "mean": intervals.mean(),
        # Otherwise an interval without readings would have the sum 0.
        "sum": intervals.sum(min_count=1),
    }
    return pd.DataFrame({name: figures[how(name)][name] for name in numbers.columns})


def how(figure: str) -> str:
    """How to summarize a figure: the last value of totals, the worst value of alarms."""
    if figure.endswith("_total"):
        return "last"
    if figure.endswith("_in_window"):
        return "sum"
    if figure.startswith(("oldest_", "is_")) or figure in WORST:
        return "max"
    return "mean"


def _chunks(records: Iterable[Record]) -> Iterator[pd.DataFrame]:
    rest = iter(records)
    while rows := list(islice(rest, CHUNK)):
        index = _index([row.at for row in rows])
        yield pd.DataFrame.from_records([row.values for row in rows], index=index)


def _index(times: list) -> pd.DatetimeIndex:
    return pd.DatetimeIndex(times, tz="UTC", name=INDEX).as_unit("us")
