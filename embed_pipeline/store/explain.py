"""Reads one entity as the scan does, and what is around it."""

from collections.abc import Sequence
from typing import NamedTuple

from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.explanation import DEPENDANTS
from embed_pipeline.domain.judging import EntityReading, classify
from embed_pipeline.domain.keys import Unfit, uid_of
from embed_pipeline.domain.relations import relation_sentences, without_neighbour
from embed_pipeline.domain.text import render_for
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import explain as cypher
from embed_pipeline.store.database import Transaction, fetch, fetch_one
from embed_pipeline.store.entity_readings import readings_of
from embed_pipeline.store.load import ANY_LENGTH, keys_of, read_entities
from embed_pipeline.store.naming import for_shape
from embed_pipeline.store.queue import Queue
from embed_pipeline.store.scan_page import PageOfEntities, read_keys


class Looked(NamedTuple):
    """An entity as the scan sees it, and the entities that name it in their text."""

    reading: EntityReading
    coverage: Coverage
    text_hash: str
    text: str
    dependants: list[str]
    has_more: bool
    """More relationships than were looked at."""


async def look_at(queue: Queue, model: str, uid: str) -> Looked | None:
    """Read one entity; ``None`` if no current one has the key. Changes nothing."""
    config = queue.config

    async def work(tx: Transaction) -> Looked | None:
        keys = list(keys_of([uid]))
        records = await read_keys(tx, config, keys)
        if not records:
            return None
        page = PageOfEntities(records, [], None)
        reading, hash_ = (await readings_of(tx, config, model, page))[0]
        coverage = classify(reading, model=model, text_hash=hash_, dimensions=config.dimensions)
        entity = (await read_entities(tx, config, [uid], longest=ANY_LENGTH))[uid]
        text = render_for(config.shape)(entity.text or {})
        dependants: list[str] = []
        has_more = False
        if config.shape.has_relations:
            statement = for_shape(cypher.DEPENDANTS, config.shape)
            for key in keys:
                found = await fetch_one(tx, statement, key=key, most=DEPENDANTS)
                uids = (uid_of(other) for other in found["keys"])
                others = [other for other in uids if not isinstance(other, Unfit)]
                dependants += await _naming(tx, config, others, found["name"])
                has_more = has_more or found["looked"] == DEPENDANTS
        return Looked(reading, coverage, hash_, text, dependants, has_more)

    return await queue.database.read(work)


async def _naming(
    tx: Transaction, config: QueueConfig, uids: Sequence[str], name: str
) -> list[str]:
    """Those in whose texts this name stands: only so many neighbours have room there."""
    keys = keys_of(uids)
    records = await fetch(tx, for_shape(cypher.RELATIONS, config.shape), keys=list(keys))
    naming = {
        keys[record["key"]]
        for record in records
        if len(without_neighbour(record["relations"], name)) < len(record["relations"])
    }
    return [uid for uid in uids if uid in naming]


async def relations_of(queue: Queue, uids: Sequence[str]) -> dict[str, list[str]]:
    """The relations of current entities in words, by uid; as many as the settings let be named."""
    statement = for_shape(cypher.RELATIONS, queue.config.shape)
    keys = keys_of(uids)
    records = await queue.database.read(lambda tx: fetch(tx, statement, keys=list(keys)))
    return {
        uid: relation_sentences(uid, record["relations"])
        for record in records
        for uid in [keys[record["key"]]]
    }
