"""Ends the pending jobs of a model that the queue belonged to before."""

from typing import Final

from embed_pipeline.domain.job import JobStatus
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher.former import PICK_FORMER
from embed_pipeline.store.database import Database, Transaction, fetch
from embed_pipeline.store.identity import refuse_other_in
from embed_pipeline.store.moves import BY_QUEUE, cancelled
from embed_pipeline.store.transactions import change_jobs, count, lock_jobs, new_token, write_once

PAGE: Final = 500


async def supersede_former(database: Database, config: QueueConfig) -> int:
    """Cancel them page by page with the reason; switching back to that model revives them."""
    total = 0
    while config.identity is not None and (page := await _page(database, config)):
        total += page
    return total


async def _page(database: Database, config: QueueConfig) -> int:
    token = new_token()
    model = config.identity.model if config.identity else ""

    async def work(tx: Transaction) -> int:
        await refuse_other_in(tx, config)
        found = await fetch(tx, PICK_FORMER, model=model, limit=PAGE)
        jobs, now = await lock_jobs(
            tx, (record["id"] for record in found[:PAGE]), token=token, now=database.now_ms
        )
        reason = f"superseded: the queue belongs to {model} now"
        changes = [
            cancelled(job, now=now, by=BY_QUEUE, reason=reason)
            for job in jobs.values()
            if job["status"] == JobStatus.PENDING and job["model"] != model
        ]
        await change_jobs(tx, changes)
        await count(tx, config.queue, {"superseded": len(changes)}, token=token)
        return len(changes)

    return await write_once(database, config.queue, token, work)
