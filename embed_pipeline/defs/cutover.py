"""The steps of a cut-over as jobs, and its gates as checks with their figures."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import dagster as dg
from pydantic import Field

from embed_pipeline.defs.border import checks, job, op
from embed_pipeline.defs.config import RunConfig
from embed_pipeline.defs.job_filters import WORD
from embed_pipeline.defs.metadata import as_markdown
from embed_pipeline.defs.operators import operator_of
from embed_pipeline.defs.plan import of_plan
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.site import Site, group_in
from embed_pipeline.domain.cutover import GATES, GRACE, Alias, Gate
from embed_pipeline.domain.errors import CutoverError
from embed_pipeline.domain.vector import MOST_DIMENSIONS
from embed_pipeline.history.keys import asset_key
from embed_pipeline.operations import cutover
from embed_pipeline.operations.following import wanted_settings
from embed_pipeline.settings import Settings
from embed_pipeline.store.connection import Driver

CUTOVER: Final = "embed_cutover"
GROUP: Final = "embed_queue"

NO_CANDIDATE: Final = "no cut-over is under way"
NO_QUESTIONS: Final = "nothing is asked: the project has no questions.yaml"


class StartConfig(RunConfig):
    """Which model is to be filled beside the live one."""

    model: str | None = Field(
        default=None,
        max_length=128,
        pattern=WORD,
        description="The other model; empty is that of the settings (EMBEDDING_MODEL).",
    )
    provider: str | None = Field(
        default=None,
        max_length=16,
        pattern="^(openai|local|local-fast|mock)$",
        description="The provider of its vectors: openai, local, local-fast or mock; empty is the "
        "one that is known to have the model.",
    )
    dimensions: int | None = Field(
        default=None,
        ge=1,
        le=MOST_DIMENSIONS,
        description="Length of its vectors; empty is the model's own.",
    )
    preview: bool = Field(
        default=True, description="Only say how many entities it is. Set to false to start."
    )


class FinishConfig(RunConfig):
    """How long to wait before vectors are removed."""

    grace_minutes: int = Field(
        default=GRACE // timedelta(minutes=1),
        ge=0,
        le=525_600,
        description="Minutes for which the index must not have been searched, 0 to 525600.",
    )
    force: bool = Field(default=False, description="Even if it may still be searched.")
    keep_index_name: bool = Field(
        default=False,
        description="The index of the live model gets the name of the former one, for clients that "
        "know no other: it is made anew, and searches wait meanwhile. Without the grace.",
    )


@op
def start_candidate(
    context: dg.OpExecutionContext, config: StartConfig, neo4j: Neo4jResource
) -> None:
    """Fill another model beside the live one."""

    async def work(driver: Driver, settings: Settings) -> tuple[cutover.Plan, int]:
        wanted = wanted_settings(
            settings, model=config.model, provider=config.provider, dimensions=config.dimensions
        )
        plan = await cutover.plan(driver, settings, wanted)
        if config.preview:
            return plan, 0
        scan = await cutover.start(driver, settings, plan, operator=operator_of(context))
        return plan, scan.report.embeddable

    plan, _ = neo4j.run_as_set(work)
    did, cost = "would be" if config.preview else "is", plan.cost
    context.log.info(
        f"{plan.candidate} {did} filled beside {plan.live}: {cost.texts} texts, {cost.tokens} "
        f"tokens, {cost.requests} requests, cost {cost.cost}"
    )
    context.add_output_metadata(
        {
            "live": str(plan.live),
            "candidate": str(plan.candidate),
            "queue": plan.candidate.queue,
            **of_plan(cost, None),
        }
    )


@op
def show_gates(context: dg.OpExecutionContext, neo4j: Neo4jResource) -> None:
    """Look at the gates, and report each as a check."""
    alias, gates = neo4j.run_as_set(_look)
    _report(context, gates, neo4j.settings.queue)
    if alias is None:
        context.log.info("there has been no cut-over; the model of the settings is live")
        return
    context.log.info(
        f"live is {alias.live}; beside it {alias.other}; {alias.phase or 'no cut-over'}"
    )
    for gate in gates:
        context.log.info(f"{'green' if gate.passed else 'RED'} {gate}")
    context.add_output_metadata(_shown(alias))


@op
def make_candidate_live(context: dg.OpExecutionContext, neo4j: Neo4jResource) -> None:
    """Flip the alias, if every gate lets it."""
    by, queue = operator_of(context), neo4j.settings.queue
    alias, _ = neo4j.run_as_set(
        lambda driver, own: cutover.go(
            driver, own, operator=by, tell=lambda gates: _report(context, gates, queue)
        )
    )
    context.log.info(f"{alias.live} is live, epoch {alias.epoch}")
    context.add_output_metadata(_shown(alias))


@op
def make_former_live(context: dg.OpExecutionContext, neo4j: Neo4jResource) -> None:
    """Flip the alias back."""
    by = operator_of(context)
    alias = neo4j.run_as_set(lambda driver, own: cutover.rollback(driver, own, operator=by))
    context.log.info(f"{alias.live} is live again, epoch {alias.epoch}")
    context.add_output_metadata(_shown(alias))


@op
def remove_other(
    context: dg.OpExecutionContext, config: FinishConfig, neo4j: Neo4jResource
) -> None:
    """Remove the side that is not live."""
    by, grace = operator_of(context), timedelta(minutes=config.grace_minutes)
    removed, entities = neo4j.run_as_set(
        lambda driver, own: cutover.finish(
            driver,
            own,
            grace=grace,
            force=config.force,
            keep_index_name=config.keep_index_name,
            operator=by,
        )
    )
    context.log.info(f"{removed} is removed, with the vectors of {entities} entities")
    context.add_output_metadata({"removed": str(removed), "entities": entities})


@job(start_candidate)
def cutover_start() -> None:
    """Fill another model beside the live one; searches go on undisturbed.

    Set preview to false to do it. Its vectors get a property, an index and a queue of their own,
    and the sensors serve both. Then cutover_status shows the gates, and cutover_go makes it live.
    """


@job(show_gates)
def cutover_status() -> None:
    """Say which model is live, and whether the gates let the candidate go live."""


@job(make_candidate_live)
def cutover_go() -> None:
    """Make the candidate the live model, in one transaction; fails while a gate is red."""


@job(make_former_live)
def cutover_rollback() -> None:
    """Make the former model live again, in one transaction; it was kept fresh."""


@job(remove_other)
def cutover_finish() -> None:
    """Remove index, vectors and jobs of the model that is not live; safe to repeat."""


def cutover_asset(queue: str) -> dg.AssetSpec:
    """What the gates are about."""
    return dg.AssetSpec(
        asset_key(CUTOVER, queue),
        group_name=group_in(queue, GROUP),
        kinds={"neo4j"},
        description="The model that is filled beside the live one. Its checks are the gates of "
        "cutover_go: while one is red, the candidate does not go live.",
    )


def cutover_checks(site: Site, settings: Settings) -> dg.AssetChecksDefinition:
    """The gates of a queue."""
    queue = settings.queue
    specs = [
        dg.AssetCheckSpec(
            name, asset=asset_key(CUTOVER, queue), description=description, blocking=True
        )
        for name, description in GATES.items()
    ]

    @checks(site, settings, specs)
    def cutover_gates(
        context: dg.AssetCheckExecutionContext, neo4j: Neo4jResource
    ) -> Iterator[dg.AssetCheckResult]:
        """Look at the gates of the candidate now; without one nothing is red."""
        _, gates = neo4j.run_as_set(_look)
        found = {gate.name: gate for gate in _all(gates)}
        for key in context.selected_asset_check_keys:
            evaluation = _evaluation(found[key.name], queue)
            yield dg.AssetCheckResult(
                asset_key=evaluation.asset_key,
                check_name=evaluation.check_name,
                passed=evaluation.passed,
                description=evaluation.description,
                metadata=dict(evaluation.metadata),
            )

    return cutover_gates


async def _look(driver: Driver, settings: Settings) -> tuple[Alias | None, list[Gate]]:
    alias = await cutover.read(driver, settings)
    try:
        gates = await cutover.gates(driver, settings, alias) if alias else []
    except CutoverError:
        gates = []  # Nothing is a candidate.
    return alias, gates


def _all(gates: list[Gate]) -> list[Gate]:
    found, detail = {gate.name for gate in gates}, NO_QUESTIONS if gates else NO_CANDIDATE
    others = [Gate(name, passed=True, detail=detail) for name in GATES if name not in found]
    return [*gates, *others]


def _report(context: dg.OpExecutionContext, gates: list[Gate], queue: str) -> None:
    for gate in _all(gates):
        context.instance.report_runless_asset_event(_evaluation(gate, queue))


def _evaluation(gate: Gate, queue: str) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=asset_key(CUTOVER, queue),
        check_name=gate.name,
        passed=gate.passed,
        severity=dg.AssetCheckSeverity.ERROR,
        description=as_markdown(gate.detail),
        metadata=dict(gate.figures),
    )


def _shown(alias: Alias) -> dict[str, str | int]:
    return {
        "live": str(alias.live),
        "index": alias.live.index,
        "epoch": alias.epoch,
        "beside": str(alias.other or "none"),
        "phase": str(alias.phase or "none"),
    }
