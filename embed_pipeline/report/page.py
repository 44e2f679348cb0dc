"""Puts the page together."""

from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any, Final

import pandas as pd
from jinja2 import Environment, StrictUndefined

from embed_pipeline.report.answers import answers
from embed_pipeline.report.charts import bars, line_chart
from embed_pipeline.report.source import History, completed, latest, rise
from embed_pipeline.report.words import at, plain

MOST_ROWS: Final = 15
MINUTES_PER_HOUR: Final = 60
QUALITY: Final = "quality_auc"
CHARTS: Final = (
    ("Jobs waiting and in work", {"waiting": "pending", "in work": "processing"}, 1.0),
    ("Age of the oldest waiting job, minutes", {"minutes": "oldest_pending_seconds"}, 1 / 60),
    ("Completed jobs per hour", {"per hour": "throughput_per_minute"}, MINUTES_PER_HOUR),
    ("Failed jobs", {"failed": "failed"}, 1.0),
    ("Coverage, percent of the entities", {"current": "coverage_percent"}, 1.0),
    (
        "Quality of the vectors, percent of the edges that are nearer than other pairs",
        {"measured": QUALITY, "at least": "quality_auc_low", "at most": "quality_auc_high"},
        100.0,
    ),
)
"""Title, figures by their names in the legend, and what they are multiplied with."""
FAILURE: Final = ("category", "count", "example_error", "example_job", "last_seen")
DRAIN: Final = ("at", "completed", "seconds", "seconds_waiting", "ending", "reason")
EVENTS: Final = ("retried", "released", "recovered", "fenced", "exhausted", "cancelled", "revived")


def render(history: History) -> str:
    """Render the page as one self-contained file."""
    template = files("embed_pipeline.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    return environment.from_string(template).render(
        now=f"{at(history.now)} UTC",
        since=f"{at(history.since)} UTC",
        model=plain(history.model),
        answers=answers(history),
        charts=list(_charts(history.metrics)),
        failures=[_failure(row) for row in _rows(history.failures, FAILURE)],
        drains=[_drain(row) for row in _rows(_latest_first(history.drains), DRAIN)],
        totals=_totals(history.metrics),
    )


def _charts(metrics: pd.DataFrame) -> Iterator[dict[str, str]]:
    if metrics.empty:
        return
    for title, columns, factor in CHARTS:
        if QUALITY in columns.values() and not latest(metrics, QUALITY):
            continue  # Not measured: there is nothing to show, and nothing wrong.
        series = {
            name: metrics[column] * factor for name, column in columns.items() if column in metrics
        }
        yield {"title": title, "svg": line_chart(series, label=title)}


def _totals(metrics: pd.DataFrame) -> str:
    found = [("completed", completed(metrics))] if len(metrics) else []
    found += [(name, rise(metrics, f"{name}_total")) for name in EVENTS]
    happened = [(name, number) for name, number in found if number]
    return bars(happened) if happened else ""


def _latest_first(drains: pd.DataFrame) -> pd.DataFrame:
    return drains.sort_index(ascending=False).rename_axis(index="at").reset_index()


def _rows(frame: pd.DataFrame, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The first rows, without missing values."""
    known = [name for name in columns if name in frame]
    records = frame[known].head(MOST_ROWS).to_dict("records")
    return [{str(name): v for name, v in row.items() if pd.notna(v)} for row in records]


def _failure(row: dict[str, Any]) -> dict[str, str]:
    return {
        "category": plain(str(row["category"])),
        "count": f"{row['count']:,}",
        "error": plain(str(row.get("example_error", ""))),
        "job": plain(str(row.get("example_job", ""))),
        "last": at(row["last_seen"]) if "last_seen" in row else "",
    }


def _drain(row: dict[str, Any]) -> dict[str, str]:
    words = [str(row[name]) for name in ("ending", "reason") if name in row]
    return {
        "at": at(row["at"]),
        **{
            name: f"{row[name]:,.0f}" if name in row else ""
            for name in ("completed", "seconds", "seconds_waiting")
        },
        "ending": plain(": ".join(words)),
    }
