"""Sensors and schedules: one for all embeddings of a site, each of which says why not.

With the docstring as description, and guarded like everything else.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from inspect import getdoc
from typing import Any, Final, TypeAlias

import dagster as dg

from embed_pipeline.defs.border import guarded
from embed_pipeline.defs.pruning import repository_of
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.site import Site
from embed_pipeline.domain.redact import described
from embed_pipeline.history.keys import asset_key
from embed_pipeline.settings.secrets import without_secrets

CURSORS: Final = "embeddings"
"""What a sensor of several embeddings remembers: the cursor of each."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One evaluation for one embedding."""

    context: dg.SensorEvaluationContext | dg.ScheduleEvaluationContext
    cursor: str | None = None

    @property
    def instance(self) -> dg.DagsterInstance:
        return self.context.instance

    @property
    def log(self) -> logging.Logger:
        """The log shown on the page of the tick."""
        return self.context.log

    @property
    def repository(self) -> str | None:
        """The code location; unknown when no daemon evaluates."""
        context = self.context
        if isinstance(context, dg.ScheduleEvaluationContext):
            return repository_of(context.instance, context.log_key)
        origin = context.code_location_origin
        return f"{context.repository_name}@{origin.location_name}" if origin else None

    @property
    def day(self) -> date:
        """The day that the schedule is evaluated for."""
        context = self.context
        is_schedule = isinstance(context, dg.ScheduleEvaluationContext)
        at = context.scheduled_execution_time if is_schedule else datetime.now(UTC)
        return at.astimezone(UTC).date()


Found: TypeAlias = dg.SensorResult | dg.SkipReason | dg.RunRequest | Sequence[dg.RunRequest]
Look: TypeAlias = Callable[[Tick, Neo4jResource], Found]
Watch: TypeAlias = Callable[[dg.SensorEvaluationContext, Neo4jResource], None]


def sensor(
    site: Site, *, watch: Watch | None = None, **options: Any
) -> Callable[[Look], dg.SensorDefinition]:
    """Make a sensor of a function that looks at one embedding.

    ``watch`` is called before the look, and may take its time until there is something to see.
    """

    def decorate(look: Look) -> dg.SensorDefinition:
        @guarded
        def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
            if watch is not None:
                watch(context, getattr(context.resources, site.neo4j))
            return _evaluated(site, look, context, _cursors(site, context.cursor))

        made = dg.sensor(
            name=site.name(look.__name__),
            description=getdoc(look),
            required_resource_keys={site.neo4j},
            default_status=options.pop("default_status", dg.DefaultSensorStatus.RUNNING),
            **options,
        )
        return made(evaluate)

    return decorate


def schedule(site: Site, **options: Any) -> Callable[[Look], dg.ScheduleDefinition]:
    """Make a schedule of a function that looks at one embedding."""

    def decorate(look: Look) -> dg.ScheduleDefinition:
        @guarded
        def evaluate(
            context: dg.ScheduleEvaluationContext,
        ) -> list[dg.RunRequest] | dg.SkipReason:
            result = _evaluated(site, look, context, {})
            at = context.scheduled_execution_time.isoformat()
            # Dagster refuses several without; those of another tick are others.
            requests = [
                request.with_replaced_attrs(run_key=f"{at} {number}")
                for number, request in enumerate(result.run_requests or ())
            ]
            return requests or dg.SkipReason(_reason(result))

        made = dg.schedule(
            name=site.name(look.__name__),
            description=getdoc(look),
            required_resource_keys={site.neo4j},
            default_status=options.pop("default_status", dg.DefaultScheduleStatus.RUNNING),
            **options,
        )
        return made(evaluate)

    return decorate


def assets_of(site: Site, name: str) -> dg.AssetSelection:
    """The assets of this name, of all embeddings."""
    return dg.AssetSelection.assets(*(asset_key(name, queue) for queue in site.queues))


def _evaluated(
    site: Site,
    look: Look,
    context: dg.SensorEvaluationContext | dg.ScheduleEvaluationContext,
    cursors: Mapping[str, str],
) -> dg.SensorResult:
    """Evaluate every embedding with its own cursor."""
    neo4j: Neo4jResource = getattr(context.resources, site.neo4j)
    results: dict[str, dg.SensorResult | Exception] = {}
    for queue in site.queues:
        cursor = cursors.get(queue)
        results[queue] = _as_result(_looked(look, Tick(context, cursor), neo4j, queue), cursor)
    return _together(site, results)


def _looked(look: Look, tick: Tick, neo4j: Neo4jResource, queue: str) -> Found | Exception:
    """Evaluate one embedding; its errors must not block the others."""
    try:
        return look(tick, neo4j.of(queue))
    except Exception as error:
        if len(neo4j.embeddings) == 1:
            raise
        tick.log.error(f"embedding {queue}: {without_secrets(described(error))}")
        return error


def _as_result(found: Found | Exception, cursor: str | None) -> dg.SensorResult | Exception:
    match found:
        case dg.SensorResult() | Exception():
            return found
        case dg.SkipReason():
            return dg.SensorResult(skip_reason=found.skip_message, cursor=cursor)
        case dg.RunRequest():
            return dg.SensorResult(run_requests=[found], cursor=cursor)
    return dg.SensorResult(run_requests=list(found), cursor=cursor)


def _together(site: Site, results: dict[str, dg.SensorResult | Exception]) -> dg.SensorResult:
    """One result of those of all embeddings; fails only where nothing could be looked at.

    Raises:
        Exception: what was wrong with the first one, if it was so with all.
    """
    if not site.is_shared:
        [result] = results.values()
        if isinstance(result, Exception):
            raise result
        return result
    wrong = {queue: error for queue, error in results.items() if isinstance(error, Exception)}
    if len(wrong) == len(results):
        raise next(iter(wrong.values()))
    good = {queue: r for queue, r in results.items() if isinstance(r, dg.SensorResult)}
    requests = [request for result in good.values() for request in result.run_requests or ()]
    reasons = [
        *(f"{queue}: {_reason(result)}" for queue, result in good.items()),
        *(f"{q}: FAILED, {without_secrets(described(error))}" for q, error in wrong.items()),
    ]
    cursors = {queue: result.cursor for queue, result in good.items() if result.cursor}
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else "; ".join(reasons),
        cursor=json.dumps({CURSORS: cursors}),
        asset_events=[event for result in good.values() for event in result.asset_events],
    )


def _reason(result: dg.SensorResult) -> str:
    if result.run_requests:
        return f"{len(result.run_requests)} runs requested"
    return getattr(result.skip_reason, "skip_message", None) or str(result.skip_reason)


def _cursors(site: Site, cursor: str | None) -> dict[str, str]:
    """The cursor of each embedding; a single one owns the whole cursor."""
    if not site.is_shared:
        return {site.first.queue: cursor} if cursor else {}
    try:
        return dict(json.loads(cursor or "{}").get(CURSORS, {}))
    except (ValueError, AttributeError, TypeError):
        return {}
