"""How a worker gets at the entities of its jobs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from embed_pipeline.domain.job import Lease
from embed_pipeline.domain.keys import KeyValue, Unfit, values_of, version_of
from embed_pipeline.domain.results import EntityFate, LoadedEntity
from embed_pipeline.domain.text import LONGEST_TEXT, pages_by_size, share_of
from embed_pipeline.domain.vector import (
    BYTES_PER_NUMBER,
    SAMPLED,
    Vector,
    print_of,
    print_of_sample,
    vector_of,
)
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import entity as cypher
from embed_pipeline.store.cypher.worker import COUNT_HELD, FIND_FORCED
from embed_pipeline.store.database import Database, Transaction, fetch, fetch_one
from embed_pipeline.store.moves import BY_QUEUE, cancelled
from embed_pipeline.store.naming import for_shape
from embed_pipeline.store.records import Properties, is_held, lease_rows
from embed_pipeline.store.steps import Steps, ask, ask_one, run
from embed_pipeline.store.transactions import change_jobs, count, lock_jobs, new_token, write_once

BYTES_PER_STATEMENT: Final = 2**20
"""Vectors in one statement. The driver takes and makes lists of floats, eight times as large."""
ANY_LENGTH: Final = 2**62
"""Each property of a text is cut to ``LONGEST_TEXT`` all the same."""
_NOTHING_LEFT: Final = (EntityFate.GONE, EntityFate.SUPERSEDED)


class CurrentEntity(NamedTuple):
    """What decides whether a vector still fits, as ``READ_ENTITIES`` returns it for each key."""

    exists: bool
    version: int | None
    """Missing where it cannot be that of a job."""
    text: Properties | None
    """Missing where it is longer than was asked for."""
    size: int
    is_ambiguous: bool = False
    """Several current entities have the key, and they differ."""
    is_foreign: bool = False
    """Another program's vector is on it, and is to stay."""
    text_hash: str | None = None
    has_outdated: bool = False
    """Outdated versions of it have vectors."""

    @property
    def can_be_meant(self) -> bool:
        """Whether exactly one entity matches a job with this key."""
        return self.exists and not self.is_ambiguous and not self.is_foreign

    @property
    def is_long(self) -> bool:
        """Whether its text was left out and is still to be read."""
        return self.exists and self.text is None and self.text_hash is None


NO_ENTITY: Final = CurrentEntity(exists=False, version=None, text=None, size=0)


async def load(
    database: Database, config: QueueConfig, leases: Sequence[Lease], *, longest: int
) -> list[LoadedEntity]:
    """Read what is to be embedded, and cancel the jobs that have nothing left to embed.

    Raises:
        TooMuchAtOnceError: the server has no time or memory for so many.
    """
    uids = sorted({lease.entity_uid for lease in leases})
    ids = sorted(lease.job_id for lease in leases)
    token = new_token()

    async def look(tx: Transaction) -> list[LoadedEntity] | None:
        held = await fetch_one(tx, COUNT_HELD, leases=lease_rows(leases))
        if held["jobs"] < len(leases):
            return None
        entities = await read_entities(tx, config, uids, longest=longest)
        return [_fate(lease, entities) for lease in leases]

    async def cancel(tx: Transaction) -> list[LoadedEntity]:
        jobs, now = await lock_jobs(tx, ids, token=token, now=database.now_ms)
        entities = await read_entities(tx, config, uids, longest=longest)
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

    loaded = await database.read_latest(look, is_divisible=True)
    if loaded and not any(x.fate in _NOTHING_LEFT for x in loaded):
        return loaded
    return await write_once(database, config.queue, token, cancel, is_divisible=True)


async def find_vectors(
    database: Database, config: QueueConfig, hashes: Sequence[str], model: str, dimensions: int
) -> Mapping[str, Vector]:
    """Look up vectors of texts that were embedded before, a few at a time."""
    if not hashes:
        return {}
    find = for_shape(cypher.FIND_KNOWN, config.shape)
    read = for_shape(cypher.FIND_VECTORS, config.shape)
    size = max(1, BYTES_PER_STATEMENT // (BYTES_PER_NUMBER * dimensions))
    wanted = sorted(set(hashes))

    async def look(tx: Transaction) -> dict[str, Vector]:
        known = await fetch_one(tx, find, hashes=wanted, model=model)
        vectors: dict[str, Vector] = {}
        for start in range(0, len(known["hashes"]), size):
            part = known["hashes"][start : start + size]
            records = await fetch(tx, read, hashes=part, model=model, dimensions=dimensions)
            for record in records:
                vector = vector_of(record["vector"])
                # Another program's vector may stand beside our mark.
                if print_of(vector) == record["print"]:
                    vectors[record["hash"]] = vector
        return vectors

    return await database.read(look)


async def find_forced(database: Database, leases: Sequence[Lease]) -> set[Lease]:
    """Leases of jobs that are to ask the provider again."""
    by_id = {lease.job_id: lease for lease in leases}
    found = await database.read_latest(lambda tx: fetch_one(tx, FIND_FORCED, ids=sorted(by_id)))
    return {by_id[id_] for id_ in found["ids"]}


async def read_hashes(
    tx: Transaction, config: QueueConfig, uids: list[str]
) -> dict[str, CurrentEntity]:
    """Read the current entities with the hashes of their texts instead of the texts."""
    return await run(tx, hashing(config, uids))


def hashing(config: QueueConfig, uids: list[str]) -> Steps[dict[str, CurrentEntity]]:
    """The steps of ``read_hashes``."""
    found = yield from reading(config, uids, longest=share_of(len(uids)))
    entities = {uid: _hashed(entity, config) for uid, entity in found.items()}
    long = [(uid, entity.size) for uid, entity in entities.items() if entity.is_long]
    for page in pages_by_size(long):
        again = yield from reading(config, page, longest=ANY_LENGTH)
        entities |= {uid: _hashed(entity, config) for uid, entity in again.items()}
    return entities


async def read_entities(
    tx: Transaction, config: QueueConfig, uids: list[str], *, longest: int
) -> dict[str, CurrentEntity]:
    """Read the current entities, by uid; texts only up to a length."""
    return await run(tx, reading(config, uids, longest=longest))


def reading(
    config: QueueConfig, uids: list[str], *, longest: int
) -> Steps[dict[str, CurrentEntity]]:
    """The steps of ``read_entities``."""
    statement = for_shape(cypher.READ_ENTITIES, config.shape)
    uid_of_key = keys_of(uids)
    record = yield from ask_one(
        statement, keys=list(uid_of_key), longest=longest, most=LONGEST_TEXT
    )
    entities: dict[str, CurrentEntity] = dict.fromkeys(uids, NO_ENTITY)
    for key, version, text, size in record["entities"]:
        uid = uid_of_key[key]
        known = entities[uid]
        entity = CurrentEntity(exists=True, version=version_of(version), text=text, size=size)
        # The vector of one of them would stand on the other too.
        is_ambiguous = known.exists and known != entity
        entities[uid] = entity._replace(is_ambiguous=True) if is_ambiguous else entity
    for key in record["outdated"]:
        uid = uid_of_key[key]
        entities[uid] = entities[uid]._replace(has_outdated=True)
    if config.keeps_foreign:
        for key in (yield from _foreign(config, list(uid_of_key))):
            uid = uid_of_key[key]
            entities[uid] = entities[uid]._replace(is_foreign=True)
    return entities


def _foreign(config: QueueConfig, keys: list[KeyValue]) -> Steps[list[KeyValue]]:
    statement = for_shape(cypher.READ_VECTORS, config.shape)
    rows = yield from ask(statement, keys=keys, last=SAMPLED - 1)
    return [row["key"] for row in rows if not is_ours(row["hash"], row["print"], row["sample"])]


def is_ours(hash_: object, print_: object, sample: Sequence[float] | None) -> bool:
    """Whether the mark beside a vector is complete and fits it."""
    return hash_ is not None and print_ is not None and print_ == print_of_sample(sample)


def keys_of(uids: Iterable[str]) -> dict[KeyValue, str]:
    """The keys that entities with these uids may have, in lock order."""
    return {key: uid for uid in uids for key in values_of(uid)}


def _hashed(entity: CurrentEntity, config: QueueConfig) -> CurrentEntity:
    if entity.text is None:
        return entity
    return entity._replace(text=None, text_hash=config.hash_of(entity.text))


def ending_reason(job: Properties, entities: Mapping[str, CurrentEntity]) -> str:
    """Why a job with nothing left to embed ends."""
    entity = entities[job["entity_uid"]]
    if not entity.exists:
        return "entity deleted"
    if entity.is_foreign:
        return "it has a vector that another program wrote, and EMBED_FOREIGN_VECTORS is 'keep'"
    if entity.is_ambiguous:
        return "several current entities have this key, with different texts; make it unique"
    if entity.version is None:
        return Unfit.VERSION.words
    return f"superseded by version {entity.version}"


def _fate(lease: Lease, entities: Mapping[str, CurrentEntity]) -> LoadedEntity:
    entity = entities[lease.entity_uid]
    if not entity.can_be_meant:
        return LoadedEntity(lease, EntityFate.GONE)
    if entity.version != lease.version:
        return LoadedEntity(lease, EntityFate.SUPERSEDED)
    if entity.text is None:
        return LoadedEntity(lease, EntityFate.LONG, size=entity.size)
    return LoadedEntity(lease, EntityFate.CURRENT, entity.text, size=entity.size)
