"""Reads a page of the scan: entities in order of their keys, and the hashes of their texts.

First come the keys that are texts, then those that are numbers; Neo4j's index has both, but no
condition spans them. Entities with other keys, or without, are on no page: ``read_unkeyed``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, LiteralString

from embed_pipeline.domain.contents import present_in
from embed_pipeline.domain.coverage import MOST_EXAMPLES
from embed_pipeline.domain.embedding import TextSize
from embed_pipeline.domain.keys import KeyValue, Unfit, is_negative_zero
from embed_pipeline.domain.text import LONGEST_TEXT, pages_by_size, share_of
from embed_pipeline.domain.vector import SAMPLED
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import reconcile as cypher
from embed_pipeline.store.database import Database, Transaction, fetch
from embed_pipeline.store.load import ANY_LENGTH
from embed_pipeline.store.naming import for_shape

SMALLEST: Final = float("-inf")
"""All numbers that can be keys are greater."""
PER_KEY: Final = 10
"""Entities of one key that are read: more than one are duplicates already."""
NOTHING: Final = TextSize()
UNKEYED_TIMEOUT: Final = timedelta(minutes=10)
"""It looks at every node of the label, and holds no lock meanwhile."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A range of keys of one type; without ``until`` it extends to the last one."""

    after: KeyValue
    until: KeyValue | None = None


@dataclass(frozen=True, slots=True)
class PageOfEntities:
    """A page and its end; ``cursor`` is ``None`` after the last one."""

    records: list[dict[str, Any]]
    stretches: list[Stretch]
    cursor: KeyValue | None
    unread: int = 0
    """Entities with the key of the whole page, beyond those that were read."""


async def read_page(
    tx: Transaction, config: QueueConfig, *, after: KeyValue, limit: int
) -> PageOfEntities:
    """Read about ``limit`` entities; those with the same key are never separated."""
    found: list[dict[str, Any]] = []
    for stretch in stretches(after):
        # One more than the page: it may have the key of the last one.
        found += await _read(tx, config, stretch.after, limit + 1 - len(found))
        if len(found) > limit:
            break
    else:
        return PageOfEntities(found, stretches(after), None)
    beyond, end, unread = found[limit]["key"], limit, 0
    while end and _is_same(found[end - 1]["key"], beyond):
        end -= 1
    if end == 0:
        # The page is too small for all entities with this key.
        end = limit
        unread = (await keys_in_use(tx, config, [beyond]))[beyond] - limit
    cursor = found[end - 1]["key"]
    return PageOfEntities(found[:end], stretches(after, cursor), cursor, unread)


def _is_same(one: KeyValue, other: KeyValue) -> bool:
    return one == other and is_negative_zero(one) is is_negative_zero(other)


def stretches(after: KeyValue, until: KeyValue | None = None) -> list[Stretch]:
    """The ranges of a page, which may begin among texts and end among numbers."""
    parts = [Stretch(after), Stretch(SMALLEST)] if isinstance(after, str) else [Stretch(after)]
    if isinstance(until, str):
        parts = parts[:1]
    return [*parts[:-1], replace(parts[-1], until=until)]


async def keys_in_use(
    tx: Transaction, config: QueueConfig, keys: Sequence[KeyValue]
) -> dict[KeyValue, int]:
    """How many current entities have each of these keys; unused keys are missing."""
    if not keys:
        return {}
    statement = for_shape(cypher.KEYS_IN_USE, config.shape)
    return {row["key"]: row["entities"] for row in await fetch(tx, statement, keys=list(keys))}


async def next_key(tx: Transaction, config: QueueConfig, after: KeyValue) -> KeyValue | None:
    """The key at which the page behind ``after`` begins."""
    statement = for_shape(cypher.NEXT_KEY, config.shape)
    for stretch in stretches(after):
        if found := await fetch(tx, statement, after=stretch.after):
            return found[0]["key"]
    return None


async def read_unkeyed(
    database: Database, config: QueueConfig
) -> list[tuple[Unfit, int, list[str]]]:
    """Why entities are on no page, how many there are, and some node ids."""
    patient = replace(database, timeout=UNKEYED_TIMEOUT)
    statement = for_shape(cypher.UNKEYED, config.shape)
    rows = await patient.read(
        lambda tx: fetch(tx, statement, smallest=SMALLEST, examples=MOST_EXAMPLES)
    )
    return [(_unfit(row["kind"]), row["entities"], row["ids"]) for row in rows]


def _unfit(kind: str) -> Unfit:
    if kind == "NULL":
        return Unfit.KEY_MISSING
    reasons = {"STRING": Unfit.KEY_EMPTY, "FLOAT": Unfit.KEY_NUMBER}
    return reasons.get(kind.split()[0], Unfit.KEY_TYPE)


async def read_keys(
    tx: Transaction, config: QueueConfig, keys: Sequence[KeyValue]
) -> list[dict[str, Any]]:
    """The current entities with these keys, in the form of a page."""
    statement = cypher.SCAN_ENTITIES.replace(cypher.BEHIND_CURSOR, "entity.%key% IN $keys")
    return await _records(tx, config, statement, keys=list(keys), limit=PER_KEY)


async def _read(
    tx: Transaction, config: QueueConfig, after: KeyValue, limit: int
) -> list[dict[str, Any]]:
    return await _records(tx, config, cypher.SCAN_ENTITIES, after=after, limit=limit)


async def _records(
    tx: Transaction, config: QueueConfig, statement: LiteralString, *, limit: int, **where: Any
) -> list[dict[str, Any]]:
    """The entities with text hashes; texts are read in portions of bounded size."""
    parameters = {"longest": share_of(limit), "most": LONGEST_TEXT, "last": SAMPLED - 1}
    found = await fetch(tx, for_shape(statement, config.shape), limit=limit, **where, **parameters)
    records = [
        {**record["found"], **record.data("text", "size", "unread", "type")} for record in found
    ]
    hashes: dict[str, str] = {}
    present: dict[str, frozenset[str]] = {}
    sizes: dict[str, TextSize] = {}
    unread = [(r["unread"], r["size"]) for r in records if r["unread"] is not None]
    for page in pages_by_size(unread):
        texts = await fetch(
            tx,
            for_shape(cypher.READ_TEXTS, config.shape),
            ids=page,
            longest=ANY_LENGTH,
            most=LONGEST_TEXT,
        )
        hashes |= {record["id"]: config.hash_of(record["text"]) for record in texts}
        present |= {record["id"]: present_in(record["text"]) for record in texts}
        sizes |= {record["id"]: _measured(config, record["text"]) for record in texts}
    for record in records:
        text, unread_id = record.pop("text"), record["unread"]
        # One that is gone by now has a text of its own that nothing fits.
        record["hash"] = hashes.get(unread_id, "") if unread_id else config.hash_of(text)
        record["present"] = present.get(unread_id, ()) if unread_id else present_in(text)
        record["measured"] = sizes.get(unread_id, NOTHING) if unread_id else _measured(config, text)
    return records


def _measured(config: QueueConfig, text: dict[str, Any]) -> TextSize:
    return config.measure(text) if config.measure else NOTHING
