"""The checks as Dagster shows them; what they look at stands in ``domain.health``."""

from collections.abc import Iterator
from typing import Any, Final

import dagster as dg

from embed_pipeline.defs.assets import INDEX, METRICS
from embed_pipeline.defs.border import checks
from embed_pipeline.defs.metadata import as_markdown
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import EMBEDDINGS
from embed_pipeline.defs.site import Site
from embed_pipeline.domain.checks import CHECKS, Check, Severity, Subject
from embed_pipeline.domain.health import Verdict
from embed_pipeline.history.keys import asset_key
from embed_pipeline.operations.reading import examine_everything
from embed_pipeline.settings import Settings

ASSETS: Final = {
    Subject.QUEUE: METRICS,
    Subject.EMBEDDINGS: EMBEDDINGS,
    Subject.INDEX: INDEX,
}
SEVERITIES: Final = {
    Severity.WARN: dg.AssetCheckSeverity.WARN,
    Severity.ERROR: dg.AssetCheckSeverity.ERROR,
}


def health_checks(site: Site, settings: Settings) -> dg.AssetChecksDefinition:
    """All checks of a queue."""
    queue = settings.queue
    specs = [
        dg.AssetCheckSpec(check.name, asset=_asset_of(check, queue), description=check.description)
        for check in CHECKS
    ]

    @checks(site, settings, specs)
    def embed_health(
        context: dg.AssetCheckExecutionContext, neo4j: Neo4jResource
    ) -> Iterator[dg.AssetCheckResult]:
        """Look at everything now; the sensor queue_metrics reports the same without a run."""
        _, verdicts = neo4j.run_as_set(examine_everything)
        for verdict in verdicts:
            if key_of(verdict.check, queue) in context.selected_asset_check_keys:
                yield dg.AssetCheckResult(**_facts(verdict, queue))

    return embed_health


def evaluation(verdict: Verdict, queue: str) -> dg.AssetCheckEvaluation:
    """A verdict as an event that needs no run."""
    return dg.AssetCheckEvaluation(**_facts(verdict, queue))


def key_of(check: Check, queue: str) -> dg.AssetCheckKey:
    """The key of a check of a queue."""
    return dg.AssetCheckKey(_asset_of(check, queue), check.name)


def _asset_of(check: Check, queue: str) -> dg.AssetKey:
    return asset_key(ASSETS[check.subject], queue)


def _facts(verdict: Verdict, queue: str) -> dict[str, Any]:
    return {
        "check_name": verdict.check.name,
        "asset_key": _asset_of(verdict.check, queue),
        # What could not be looked at yet passes: its message says so.
        "passed": verdict.passed is not False,
        "severity": SEVERITIES[verdict.severity],
        "description": as_markdown(verdict.message),
        "metadata": dict(verdict.figures),
    }
