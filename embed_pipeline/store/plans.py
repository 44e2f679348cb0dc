"""Keeps the last plan, to compare it with what was charged."""

from embed_pipeline.domain.plan import Plan, Planned
from embed_pipeline.domain.prices import NANO
from embed_pipeline.store.cypher import plan as cypher
from embed_pipeline.store.database import fetch, moment
from embed_pipeline.store.queue import Queue
from embed_pipeline.store.transactions import new_token


async def save_plan(queue: Queue, plan: Plan) -> None:
    """Store the plan that later charges are compared with."""
    token = new_token()
    nano_usd = None if plan.usd is None else plan.price.nano_usd(plan.tokens)
    await queue.database.write(
        lambda tx: fetch(
            tx,
            cypher.SAVE_PLAN,
            queue=queue.config.queue,
            model=plan.model,
            tokens=plan.tokens,
            nano_usd=nano_usd,
            token=token,
            now=queue.database.now_ms,
        )
    )


async def last_plan(queue: Queue, model: str) -> Planned | None:
    """The last plan for a model, and what has been charged since."""
    records = await queue.database.read(
        lambda tx: fetch(tx, cypher.READ_PLAN, queue=queue.config.queue, model=model)
    )
    if not records:
        return None
    [found] = records
    planned = found["nano_usd"]
    return Planned(
        at=moment(found["at"]),
        tokens=found["tokens"],
        usd=None if planned is None else planned / NANO,
        charged_tokens=found["charged_tokens"],
        charged_usd=found["charged_nano_usd"] / NANO,
    )
