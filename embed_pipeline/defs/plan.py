"""The plan as Dagster shows it: what embedding will take, and what the last plan has come to."""

from typing import Any, Final

import dagster as dg

from embed_pipeline.defs.assets import GROUP
from embed_pipeline.defs.border import asset
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import EMBEDDINGS
from embed_pipeline.defs.site import Site
from embed_pipeline.domain.plan import Plan, Planned
from embed_pipeline.history.keys import asset_key
from embed_pipeline.operations.planning import make_plan
from embed_pipeline.settings import Settings
from embed_pipeline.store.plans import last_plan, save_plan
from embed_pipeline.store.queue import Queue

PLAN: Final = "embedding_plan"


def plan_asset(site: Site, settings: Settings) -> dg.AssetsDefinition:
    """The asset of what is still to be embedded."""

    @asset(site, settings, PLAN, deps=[asset_key(EMBEDDINGS, settings.queue)], group_name=GROUP)
    def embedding_plan(
        context: dg.AssetExecutionContext,  # noqa: ARG001 - every asset is given one
        neo4j: Neo4jResource,
    ) -> dg.MaterializeResult:
        """What is to be embedded, and what that takes: tokens, requests, money, hours.

        Materialize reads every entity and changes none. Each plan says, too, what was charged since
        the one before, beside what that had planned.
        """

        async def work(queue: Queue, settings: Settings) -> tuple[Plan, Planned | None]:
            made = await make_plan(queue, settings)
            before = await last_plan(queue, made.model)
            await save_plan(queue, made)
            return made, before

        return dg.MaterializeResult(metadata=of_plan(*neo4j.with_queue(work)))

    return embedding_plan


def of_plan(plan: Plan, before: Planned | None) -> dict[str, Any]:
    """The figures of a plan, and of the one before it."""
    figures: dict[str, Any] = {
        "model": plan.model,
        "entities": plan.entities,
        **{f"to_embed_{kind}": number for kind, number in plan.kinds.items()},
        "planned_texts": plan.texts,
        "planned_pieces": plan.pieces,
        "planned_tokens": plan.tokens,
        "planned_requests": plan.requests,
        "assumptions": "; ".join(plan.assumptions),
    }
    if plan.usd is not None:
        figures["planned_usd"] = plan.usd
    if plan.time is not None:
        figures["planned_hours"] = round(plan.time.total_seconds() / 3_600, 3)
    if before is not None:
        figures |= {
            "last_planned_tokens": before.tokens,
            "charged_tokens_since": before.charged_tokens,
            "charged_usd_since": before.charged_usd,
            "charged_percent_of_plan": round(before.percent, 2),
        }
    return figures
