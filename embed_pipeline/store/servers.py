"""What a server was found to take, on the node of the queue that asks it.

Beside the model, for which it was found out; drains, searches and people read it, and whoever asks
anew replaces it.
"""

from typing import Any

from embed_pipeline.domain.profiles import Learnt
from embed_pipeline.store.cypher.admin import READ_STATE, SET_QUEUE
from embed_pipeline.store.cypher.worker import LOCK_QUEUE
from embed_pipeline.store.database import Database, Transaction, fetch, moment
from embed_pipeline.store.transactions import new_token

_NAMES = ("server", "inputs", "tokens", "encoding", "sends_dimensions")


async def read_learnt(database: Database, queue: str) -> Learnt | None:
    """What was found out last; None before that."""

    async def look(tx: Transaction) -> dict[str, Any]:
        found = await fetch(tx, READ_STATE, queue=queue, now=None)
        return dict(found[0]["queue"]) if found else {}

    node = await database.read(look)
    if node.get("learnt_server") is None:
        return None
    values = {name: node[f"learnt_{name}"] for name in _NAMES}
    return Learnt(**values, at=moment(node["learnt_at"]))


async def write_learnt(database: Database, queue: str, learnt: Learnt) -> bool:
    """Remember it instead of what was known before; False where there is no such queue."""
    values = {f"learnt_{name}": getattr(learnt, name) for name in _NAMES}

    async def work(tx: Transaction) -> bool:
        if not await fetch(tx, LOCK_QUEUE, queue=queue, token=new_token()):
            return False
        at = {"learnt_at": round(learnt.at.timestamp() * 1000)}
        await fetch(tx, SET_QUEUE, queue=queue, properties=values | at)
        return True

    return await database.write(work)
