"""How a worker gets at the entities of its jobs."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from embed_pipeline.domain.job import Lease
from embed_pipeline.domain.results import EntityFate, LoadedEntity
from embed_pipeline.store import cypher_entity as cypher
from embed_pipeline.store.changes import BY_QUEUE, cancelled
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher_worker import COUNT_HELD
from embed_pipeline.store.database import Database, Transaction, fetch, fetch_one
from embed_pipeline.store.naming import for_shape
from embed_pipeline.store.records import Properties, is_held, lease_rows
from embed_pipeline.store.transactions import change_jobs, count, lock_jobs, new_token, write_once

_NOTHING_LEFT: Final = (EntityFate.GONE, EntityFate.SUPERSEDED)


class CurrentEntity(NamedTuple):
    """What decides whether a vector still fits; ``READ_ENTITIES`` says it of each key."""

    exists: bool
    version: Any
    """A whole number, unless somebody wrote something else."""
    text: Properties
    is_ambiguous: bool = False
    """Several current entities have the key, and they differ."""

    @property
    def can_be_meant(self) -> bool:
        """Whether there is one entity that a job with this key means."""
        return self.exists and not self.is_ambiguous


async def load(
    database: Database, config: QueueConfig, leases: Sequence[Lease]
) -> list[LoadedEntity]:
    """Read what is to be embedded, and cancel the jobs that have nothing left to embed."""
    uids = sorted({lease.entity_uid for lease in leases})
    ids = sorted(lease.job_id for lease in leases)
    token = new_token()

    async def look(tx: Transaction) -> list[LoadedEntity] | None:
        held = await fetch_one(tx, COUNT_HELD, leases=lease_rows(leases))
        if held["jobs"] < len(leases):
            return None
        entities = await read_entities(tx, config, uids)
        return [_fate(lease, entities) for lease in leases]

    async def cancel(tx: Transaction) -> list[LoadedEntity]:
        jobs, now = await lock_jobs(tx, ids, token=token, now=database.now_ms)
        entities = await read_entities(tx, config, uids)
        loaded = [
            _fate(lease, entities)
            if is_held(jobs.get(lease.job_id), lease)
            else LoadedEntity(lease, EntityFate.FENCED)
            for lease in leases
        ]
        over = [jobs[x.lease.job_id] for x in loaded if x.fate in _NOTHING_LEFT]
        changes = [
            cancelled(job, now=now, by=BY_QUEUE, reason=ending_reason(job, entities))
            for job in over
        ]
        await change_jobs(tx, changes)
        fenced = sum(x.fate is EntityFate.FENCED for x in loaded)
        counts = {"superseded": len(changes), "fenced": fenced}
        await count(tx, config.queue, counts, token=token)
        return loaded

    loaded = await database.read_latest(look)
    if loaded and all(x.fate is EntityFate.CURRENT for x in loaded):
        return loaded
    return await write_once(database, config.queue, token, cancel)


async def find_vectors(
    database: Database, config: QueueConfig, hashes: Sequence[str], model: str, dimensions: int
) -> Mapping[str, list[float]]:
    """Look up vectors of texts that were embedded before."""
    if not hashes:
        return {}
    statement = for_shape(cypher.FIND_VECTORS, config.shape)
    wanted = sorted(set(hashes))
    records = await database.read(
        lambda tx: fetch(tx, statement, hashes=wanted, model=model, dimensions=dimensions)
    )
    return {record["hash"]: record["vector"] for record in records}


async def read_entities(
    tx: Transaction, config: QueueConfig, uids: list[str]
) -> dict[str, CurrentEntity]:
    """Read the current entities, by uid."""
    record = await fetch_one(tx, for_shape(cypher.READ_ENTITIES, config.shape), uids=uids)
    entities: dict[str, CurrentEntity] = {}
    for uid, *values in record["entities"]:
        entity = CurrentEntity(*values)
        # The vector of one of them would stand on the other too.
        is_ambiguous = uid in entities and entities[uid] != entity
        entities[uid] = entity._replace(is_ambiguous=True) if is_ambiguous else entity
    return entities


def ending_reason(job: Properties, entities: Mapping[str, CurrentEntity]) -> str:
    """Why a job with nothing left to embed ends."""
    entity = entities[job["entity_uid"]]
    if not entity.exists:
        return "entity deleted"
    if entity.is_ambiguous:
        return "several current entities have this key, with different texts; make it unique"
    version = entity.version
    if type(version) is not int:
        return f"the version of the entity is {version!r:.50}, not a whole number"
    return f"superseded by version {version}"


def _fate(lease: Lease, entities: Mapping[str, CurrentEntity]) -> LoadedEntity:
    entity = entities[lease.entity_uid]
    if not entity.can_be_meant:
        return LoadedEntity(lease, EntityFate.GONE)
    if entity.version != lease.version:
        return LoadedEntity(lease, EntityFate.SUPERSEDED)
    return LoadedEntity(lease, EntityFate.CURRENT, entity.text)
