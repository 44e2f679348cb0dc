"""Which checks are reported with a reading, so that each shows what it would say today.

Dagster shows a check as not evaluated once its asset was materialized, or checks were executed, by
a run that came later; and it keeps every report, so one that would say the same again is left out.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import dagster as dg

from embed_pipeline.defs.checks import key_of
from embed_pipeline.domain.health import Verdict

KNOWN: Final = "checks"
LATEST: Final = 10
"""Materializations among which that of a run is looked for: readings come a minute apart."""
NEWS_EVERY: Final = timedelta(hours=1)
"""Unchanged findings are reported again after this time, as a reminder."""


def is_fresh(at: int, now: int) -> bool:
    """Whether a report need not be repeated; one in the future means the clock was set back."""
    return now - NEWS_EVERY // timedelta(milliseconds=1) < at <= now


def renewed(
    instance: dg.DagsterInstance,
    verdicts: list[Verdict],
    memory: dict[str, Any],
    *,
    queue: str,
    now: int,
) -> tuple[dict[str, Any], list[Verdict]]:
    """What to remember, and the verdicts that Dagster does not show in their current state."""
    before = memory.get(KNOWN, {})
    hidden = _hidden(instance, verdicts, before, queue)
    known: dict[str, Any] = {}
    news: list[Verdict] = []
    for verdict in verdicts:
        name = verdict.check.name
        said = [verdict.passed, verdict.severity.value, verdict.message]
        old = before.get(name, {})
        if old.get("said") == said and name not in hidden and is_fresh(old["at"], now):
            known[name] = old
        else:
            known[name] = {"said": said, "at": now}
            news.append(verdict)
    return {KNOWN: known}, news


def _hidden(
    instance: dg.DagsterInstance,
    verdicts: list[Verdict],
    before: Mapping[str, Any],
    queue: str,
) -> set[str]:
    """The checks whose last report was superseded by a run."""
    keys = {verdict.check.name: key_of(verdict.check, queue) for verdict in verdicts}
    latest = instance.event_log_storage.get_latest_asset_check_execution_by_key([*keys.values()])
    made = {
        asset: _made_by_a_run(instance, asset) for asset in {k.asset_key for k in keys.values()}
    }
    hidden = set()
    for name, key in keys.items():
        record = latest.get(key)
        told = before.get(name, {}).get("at", 0)
        if record is None or record.run_id or made[key.asset_key] * 1000 > told:
            hidden.add(name)
    return hidden


def _made_by_a_run(instance: dg.DagsterInstance, asset: dg.AssetKey) -> float:
    """When a run has materialized an asset lately; 0 if none has.

    A sensor may have done so since: the reports of before the run are covered up all the same.
    """
    latest = instance.fetch_materializations(asset, limit=LATEST).records
    return next((record.timestamp for record in latest if record.run_id), 0.0)
