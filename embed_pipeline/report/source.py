"""What a report is drawn from, and the sums that more than one part of it needs."""

from dataclasses import dataclass
from datetime import datetime

import pandas as pd

from embed_pipeline.domain.health import Objectives


@dataclass(frozen=True, slots=True)
class History:
    """The tables of a time, and the deployment's settings and objectives."""

    since: datetime
    now: datetime
    model: str
    objectives: Objectives
    metrics: pd.DataFrame
    drains: pd.DataFrame
    failures: pd.DataFrame


def rise(metrics: pd.DataFrame, total: str) -> float:
    """The increase of a total; it restarts at 0 with a new installation."""
    return float(_steps(metrics, total).sum())


def completed(metrics: pd.DataFrame) -> float:
    """How many jobs were completed between the first reading and the last, at least.

    A changed text takes its job out of the completed ones, so their number alone says too little;
    what was counted within each reading's window makes up for it.
    """
    steps = _steps(metrics, "completed_total")
    if not {"completed_in_window", "window_seconds"} <= set(metrics):
        return float(steps.sum())
    passed = metrics.index.to_series().diff().dt.total_seconds()
    # Readings that follow each other faster than the window would count a job twice.
    share = (passed / metrics["window_seconds"]).clip(upper=1)
    counted = (metrics["completed_in_window"] * share).fillna(0)
    return float(steps.combine(counted, max, fill_value=0).sum())


def arrived(metrics: pd.DataFrame) -> float:
    """How many jobs were made or opened again between the first reading and the last."""
    names = ("jobs", "deleted_completed_total", "deleted_failed_total", "deleted_cancelled_total")
    known = [name for name in names if name in metrics]
    made = metrics[known].sum(axis=1).to_frame("made")
    return rise(made, "made") + rise(metrics, "revived_total") + rise(metrics, "reopened_total")


def latest(frame: pd.DataFrame, column: str) -> float:
    """The last known value of a figure; 0 if there is none."""
    known = frame[column].dropna() if column in frame else pd.Series(dtype=float)
    return float(known.iloc[-1]) if len(known) else 0.0


def left_out(metrics: pd.DataFrame) -> str:
    """What the coverage leaves out, as the end of a sentence; empty if nothing."""
    words = {"entities_empty_text": "without text", "entities_unembeddable": "not embeddable"}
    found = {word: latest(metrics, column) for column, word in words.items()}
    said = ", ".join(f"{number:,.0f} {word}" for word, number in found.items() if number)
    return f" (besides {said})" if said else ""


def has_nothing_to_embed(metrics: pd.DataFrame) -> bool:
    """Whether no entity can have a vector, so that a percentage has no meaning."""
    without = latest(metrics, "entities_empty_text") + latest(metrics, "entities_unembeddable")
    return "entities" in metrics and latest(metrics, "entities") <= without


def worst(frame: pd.DataFrame, column: str) -> float:
    """The highest value of a figure; 0 if there is none."""
    known = frame[column].dropna() if column in frame else pd.Series(dtype=float)
    return float(known.max()) if len(known) else 0.0


def total(frame: pd.DataFrame, column: str) -> float:
    """The sum of a figure; 0 if there is none."""
    return float(frame[column].sum()) if column in frame else 0.0


def _steps(metrics: pd.DataFrame, column: str) -> pd.Series:
    if column not in metrics:
        return pd.Series(dtype=float)
    return metrics[column].astype(float).diff().clip(lower=0).fillna(0)
