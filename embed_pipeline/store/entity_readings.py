"""From the entities of a page to what the scan judges: one rule for keys, versions and marks."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.judging import EntityReading
from embed_pipeline.domain.keys import (
    FIRST_VERSION,
    KeyValue,
    Unfit,
    other_values_of,
    uid_of,
    version_of,
    whole_number,
)
from embed_pipeline.domain.text import LONGEST_TEXT
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import reconcile as cypher
from embed_pipeline.store.database import Transaction, fetch_one
from embed_pipeline.store.load import is_ours
from embed_pipeline.store.records import Properties
from embed_pipeline.store.scan_page import PageOfEntities, keys_in_use


async def readings_of(
    tx: Transaction, config: QueueConfig, model: str, found: PageOfEntities
) -> list[tuple[EntityReading, str]]:
    """The entities of a page with what the scan judges, and their hashes."""
    uids = [uid_of(record["key"]) for record in found.records]
    versions = [version_of(record["version"]) for record in found.records]
    keys = {
        (uid, version)
        for uid, version in zip(uids, versions, strict=True)
        if not isinstance(uid, Unfit) and version is not None
    }
    rows = await fetch_one(tx, cypher.JOBS_OF_ENTITIES, keys=sorted(keys), model=model)
    jobs = {(uid, version): job for uid, version, job in rows["jobs"]}
    duplicates = await _duplicates(tx, config, found.records, uids)
    readings = []
    for record, uid, version in zip(found.records, uids, versions, strict=True):
        unfit = uid if isinstance(uid, Unfit) else None
        if unfit is None and version is None:
            unfit = Unfit.VERSION
        elif unfit is None and uid in duplicates:
            unfit = Unfit.DUPLICATE
        job = jobs.get((str(uid), version or 0)) if unfit is None else None
        readings.append((_reading(config, record, version, unfit, job), record["hash"]))
    return readings


async def _duplicates(
    tx: Transaction, config: QueueConfig, records: Sequence[Properties], uids: Iterable[str]
) -> set[str]:
    """Keys shared by several different entities: a job could not say which one it means."""
    texts: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    others: dict[KeyValue, str] = {}
    for record, uid in zip(records, uids, strict=True):
        if not isinstance(uid, Unfit):
            texts[uid].add((repr(version_of(record["version"])), record["hash"]))
            others |= dict.fromkeys(other_values_of(record["key"], uid), uid)
    used = await keys_in_use(tx, config, list(others))
    ambiguous = {uid for uid, different in texts.items() if len(different) > 1}
    return ambiguous | {others[key] for key in used}


def _reading(
    config: QueueConfig,
    record: Properties,
    version: int | None,
    unfit: Unfit | None,
    job: Properties | None,
) -> EntityReading:
    known, type_ = job or {}, record["type"]
    return EntityReading(
        uid=str(uid_of(record["key"])) if unfit is None else str(record["key"]),
        version=FIRST_VERSION if version is None else version,
        has_vector=record["has_vector"],
        dimensions=record["dimensions"],
        vector_model=record["vector_model"],
        vector_hash=record["vector_hash"],
        vector_version=record["vector_version"],
        job_status=JobStatus(known["status"]) if known else None,
        unfit=unfit,
        is_ours=is_ours(record["vector_hash"], record["vector_print"], record["sample"]),
        is_blank=record["hash"] == config.hash_of_nothing,
        is_wanted_anew=_is_wanted_anew(known),
        embedded_at=whole_number(record["vector_at"]),
        entity_type="" if type_ is None else str(type_),
        pieces=whole_number(record["vector_pieces"]) or 1,
        found_pieces=record["piece_count"],
        is_cut=record["size"] > LONGEST_TEXT,
    )


def _is_wanted_anew(job: Properties) -> bool:
    """Whether a job was completed under the fence under which another vector was asked for.

    It is not known then whether its worker had asked the provider or copied a vector.
    """
    fence = job.get("forced_fence")
    return fence is not None and job["status"] == JobStatus.COMPLETED and fence >= job["fence"]
