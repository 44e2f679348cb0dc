"""The scan of all entities, started by hand."""

from datetime import timedelta

import dagster as dg
from pydantic import Field

from embed_pipeline.defs.border import job, op
from embed_pipeline.defs.config import RunConfig
from embed_pipeline.defs.job_filters import LINE, WORD
from embed_pipeline.defs.metadata import of_coverage
from embed_pipeline.defs.operators import operator_of
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import EMBEDDINGS
from embed_pipeline.domain.errors import CostError
from embed_pipeline.domain.figures import coverage_in_words
from embed_pipeline.domain.judging import Forced
from embed_pipeline.domain.misfits import Misfit
from embed_pipeline.history.keys import asset_key
from embed_pipeline.operations.fit import find_misfits
from embed_pipeline.operations.planning import question_about_force
from embed_pipeline.operations.scan import Scan
from embed_pipeline.settings import Settings
from embed_pipeline.store.queue import Queue


class ReconcileConfig(RunConfig):
    """How the scan works."""

    dry_run: bool = Field(default=False, description="Count; enqueue nothing.")
    page_size: int = Field(
        default=500, ge=1, le=10_000, description="Entities per transaction, 1 to 10000."
    )
    force: bool = Field(default=False, description="Embed again what fits, too: all, or these:")
    entity_type: str | None = Field(
        default=None, max_length=128, pattern=LINE, description="force: entities of this type."
    )
    model: str | None = Field(
        default=None, max_length=128, pattern=WORD, description="force: vectors of this model."
    )
    older_than_days: float | None = Field(
        default=None, ge=0, le=36_500, description="force: vectors older than so many days."
    )
    accept_cost: bool = Field(
        default=False, description="force: although it costs more than EMBED_CONFIRM_USD."
    )

    @property
    def forced(self) -> Forced | None:
        """Which entities are embedded again."""
        age = None if self.older_than_days is None else timedelta(days=self.older_than_days)
        which = Forced(entity_type=self.entity_type, model=self.model, older_than=age)
        if which != Forced() and not self.force:
            raise dg.Failure("entity_type, model and older_than_days say what force means; set it")
        return which if self.force else None


@op
def reconcile(
    context: dg.OpExecutionContext, config: ReconcileConfig, neo4j: Neo4jResource
) -> None:
    """Compare every entity with its vector, and enqueue what does not fit."""

    async def work(queue: Queue, settings: Settings) -> tuple[Scan, list[Misfit]]:
        forced = config.forced
        asked = None if config.dry_run or config.accept_cost else forced
        if question := await question_about_force(queue, settings, asked):
            raise CostError(f"{question} Set accept_cost to true; nothing was enqueued")
        scan = Scan.begin(queue.reconciler(settings.model), force=forced)
        await scan.go_on(page_size=config.page_size, dry_run=config.dry_run)
        return scan, await find_misfits(queue, settings, scan.report)

    scan, unmeant = neo4j.with_queue(work, operator=operator_of(context))
    for misfit in unmeant:
        context.log.warning(str(misfit))
    counts = {f"enqueued_{outcome}": number for outcome, number in scan.enqueued.items()}
    if config.force:
        counts["to_be_embedded_again"] = scan.forced
    report = scan.report
    context.log.info(f"{report.entities} entities, {coverage_in_words(report)}, {counts}")
    metadata = of_coverage(report)
    context.add_output_metadata({**metadata, **counts})
    if not config.dry_run:
        key = asset_key(EMBEDDINGS, neo4j.settings.queue)
        context.instance.report_runless_asset_event(dg.AssetMaterialization(key, metadata=metadata))


@job(reconcile)
def reconcile_embeddings() -> None:
    """Compare every entity with its vector, and enqueue what does not fit, from any writer.

    The sensor reconcile_entities does the same every EMBED_RECONCILE_INTERVAL, in small steps.
    """
