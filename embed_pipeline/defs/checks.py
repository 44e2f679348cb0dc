"""The checks as Dagster shows them; what they look at stands in ``domain.health``."""

from collections.abc import Iterator
from typing import Any, Final

import dagster as dg

from embed_pipeline.defs.metadata import as_markdown
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.domain.checks import CHECKS, Check, Severity, Subject
from embed_pipeline.domain.health import Verdict
from embed_pipeline.reading import examine_everything

ASSETS: Final = {
    Subject.QUEUE: dg.AssetKey("embed_queue_metrics"),
    Subject.EMBEDDINGS: dg.AssetKey("entity_embeddings"),
    Subject.INDEX: dg.AssetKey("entity_vector_index"),
}
SEVERITIES: Final = {
    Severity.WARN: dg.AssetCheckSeverity.WARN,
    Severity.ERROR: dg.AssetCheckSeverity.ERROR,
}


def spec(check: Check) -> dg.AssetCheckSpec:
    """What Dagster is told of a check."""
    return dg.AssetCheckSpec(check.name, asset=ASSETS[check.subject], description=check.description)


@dg.multi_asset_check(specs=[spec(check) for check in CHECKS], can_subset=True)
def embed_health(
    context: dg.AssetCheckExecutionContext, neo4j: Neo4jResource
) -> Iterator[dg.AssetCheckResult]:
    """Look at everything now; the sensor queue_metrics reports the same without a run."""
    _, verdicts = neo4j.run(examine_everything)
    for verdict in verdicts:
        facts = _facts(verdict)
        key = dg.AssetCheckKey(facts["asset_key"], facts["check_name"])
        if key in context.selected_asset_check_keys:
            yield dg.AssetCheckResult(**facts)


def evaluation(verdict: Verdict) -> dg.AssetCheckEvaluation:
    """A verdict as an event that needs no run."""
    return dg.AssetCheckEvaluation(**_facts(verdict))


def _facts(verdict: Verdict) -> dict[str, Any]:
    return {
        "check_name": verdict.check.name,
        "asset_key": ASSETS[verdict.check.subject],
        "passed": bool(verdict.passed),
        "severity": SEVERITIES[verdict.severity],
        "description": as_markdown(verdict.message),
        "metadata": dict(verdict.figures),
    }
