"""A made-up week of a queue, the same every time: for tests of the report and for its picture."""

import math
import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd

from embed_pipeline.domain.health import Objectives
from embed_pipeline.domain.metrics import COUNTERS
from embed_pipeline.report.source import History

NOW = datetime(2030, 1, 8, 12, tzinfo=UTC)
WEEK = timedelta(days=7)
STEP = timedelta(minutes=5)
MODEL = "text-embedding-3-small"
OBJECTIVES = Objectives(
    reconcile_interval=timedelta(minutes=1),
    recovery_interval=timedelta(minutes=1),
    retention=timedelta(days=14),
    oldest_pending=timedelta(minutes=15),
    failed_percent=1,
    coverage_percent=95,
)
REFUSED = (
    "400 This model's maximum context length is 8192 tokens, however you requested 9120 tokens"
)


def index_of(moments: list[datetime]) -> pd.DatetimeIndex:
    return pd.DatetimeIndex(moments, name="at")


def readings(*rows: Mapping[str, float], step: timedelta = timedelta(minutes=1)) -> pd.DataFrame:
    """Readings at regular times, the last one now."""
    first = NOW - step * (len(rows) - 1)
    return pd.DataFrame(list(rows), index=index_of([first + step * n for n in range(len(rows))]))


def failure(**values: Any) -> dict[str, Any]:
    return {
        "category": "PERMANENT",
        "fingerprint": "f",
        "count": 1,
        "first_seen": NOW,
        "last_seen": NOW,
        "model": MODEL,
        "attempts": 1,
        "example_job": "1f0c8a52-7b53-4f7e-9f6f-2f5b7a3f9a11",
        "example_entity": "Ada Lovelace",
        "example_error": REFUSED,
        **values,
    }


def history(
    metrics: pd.DataFrame | None = None,
    drains: pd.DataFrame | None = None,
    failures: list[dict[str, Any]] | None = None,
    **values: Any,
) -> History:
    """A history of these tables; those that are not given are empty."""
    empty = pd.DataFrame(index=index_of([]).tz_localize("UTC"))
    return History(
        since=NOW - WEEK,
        now=values.pop("now", NOW),
        model=values.pop("model", MODEL),
        objectives=OBJECTIVES,
        metrics=empty if metrics is None else metrics,
        drains=empty if drains is None else drains,
        failures=pd.DataFrame(failures or [], columns=list(failure())),
        **values,
    )


def week() -> History:
    """Seven days with rushes, a dead worker, an hour of a refused key, and a night unobserved."""
    rng = random.Random(7)
    totals = dict.fromkeys((f"{name}_total" for name in COUNTERS), 0)
    rows, moments, pending, arrived = [], [], 0, 0
    for number in range(int(WEEK / STEP) + 1):
        is_open = not 1000 < number <= 1012
        new = max(0, int(40 * (1 + math.sin(number / 90)) + rng.gauss(0, 10)))
        done = min(pending + new, 58 + rng.randint(-5, 5)) if is_open else 0
        pending, arrived = pending + new - done, arrived + new
        _count(totals, done=done, is_crash=number in (600, 601))
        if 1300 < number < 1400:
            continue
        moments.append(NOW - WEEK + STEP * number)
        rows.append(_row(totals, pending=pending, jobs=arrived, done=done, failed=number // 220))
        rows[-1]["is_breaker_open"] = int(not is_open)
    failures = [
        failure(count=7),
        failure(category="TRANSIENT", count=2, example_error="503 The server is overloaded"),
    ]
    return history(pd.DataFrame(rows, index=index_of(moments)), _drains(rng), failures)


def _count(totals: dict[str, int], *, done: int, is_crash: bool) -> None:
    totals["completed_total"] += done
    totals["tokens_total"] += 120 * done
    totals["requests_total"] += 1 + done // 50
    totals["cache_hits_total"] += done // 30
    totals["recovered_total"] += 40 if is_crash else 0


def _row(totals: dict[str, int], **now: int) -> dict[str, float]:
    pending, done = now["pending"], now["done"]
    return {
        **totals,
        "pending": pending,
        "processing": min(pending, 50),
        "completed": totals["completed_total"],
        "failed": now["failed"],
        "jobs": now["jobs"],
        "oldest_pending_seconds": 4.0 * pending,
        "window_seconds": STEP.total_seconds(),
        "completed_in_window": done,
        "throughput_per_minute": done / (STEP / timedelta(minutes=1)),
        "coverage_percent": 100 - pending / 500,
        "entities_waiting": pending,
        "is_paused": 0,
    }


def _drains(rng: random.Random) -> pd.DataFrame:
    rows = [
        {
            "completed": rng.randint(10, 400),
            "seconds": rng.uniform(20, 300),
            "seconds_waiting": rng.uniform(0, 120),
            "ending": "nothing left to do",
            "model": MODEL,
        }
        for _ in range(30)
    ]
    rows[9] |= {
        "completed": 0,
        "ending": "nothing can work until somebody acts",
        "reason": "401 Incorrect API key provided",
    }
    return pd.DataFrame(rows, index=index_of([NOW - timedelta(hours=5 * n) for n in range(30)]))
