"""The one place where a name from the settings gets into a statement."""

import re
from functools import cache
from typing import Final, LiteralString, cast

from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.domain.queue_name import DEFAULT_QUEUE, checked_queue_name
from embed_pipeline.domain.relations import (
    FURTHEST,
    INCOMING,
    LONGEST_PART,
    LOOKED,
    OUTGOING,
    READ_AS,
)
from embed_pipeline.store.cypher.entity import (
    BEGINNING_OF_VALUE,
    CLOSED,
    NEIGHBOURS,
    NEWEST,
    NOT_CLOSED,
    NOT_NEWEST,
    READABLE_TEXT,
    SAMPLE_OF_VECTOR,
    SIZE_OF_VALUE,
)
from embed_pipeline.store.cypher.pieces import COUNT_PIECES

_OWN_LABEL: Final = re.compile(
    r"`(?:[^`]|``)*`|\bEmbed(?:Job|Pending|Processing|Completed|Failed|Cancelled|Audit|Batch|Piece"
    r"|PieceStaged)\b"
)
"""The labels of jobs, of what was done to them, of batches and of pieces; those of single nodes
(``EmbedQueue``) are shared, the nodes have names.

Names in backquotes, which are the user's, are found as a whole, so that nothing inside is.
"""
_NODES: Final[tuple[LiteralString, ...]] = ("entity", "successor", "node", "other")
"""What statements call the nodes whose currency they ask for, as in ``%current_entity%``."""
_PLACEHOLDER: Final = re.compile(r"%(\w+)%")


def quoted(name: str) -> LiteralString:
    """Quote a name for use in a statement.

    The cast is honest: a single backquote would end the name, and each is doubled; the other way to
    write one, ``\u0060``, which Neo4j decodes before it reads a statement, needs a backslash. No
    ``EntityShape`` has a name with one, and here it is refused again.
    """
    if "\\" in name:
        raise ConfigurationError(
            f"{name!r:.200} cannot be quoted in a statement: it has a backslash"
        )
    return cast("LiteralString", "`" + name.replace("`", "``") + "`")


@cache
def for_shape(statement: LiteralString, shape: EntityShape) -> LiteralString:
    """Write the names of ``shape`` into the ``%placeholders%`` of ``statement``.

    All at once: a name may look like a placeholder. Dynamic labels (``$($label)``) would need no
    text at all, but Neo4j 5.26 scans all nodes for them instead of using the index.
    """
    names = {
        "label": shape.label,
        "key": shape.key,
        "version": shape.version,
        "valid_to": shape.valid_to,
        "vector": shape.vector,
        "type": shape.type,
        "observations": shape.observations,
        "vector_model": shape.vector_model,
        "vector_hash": shape.vector_hash,
        "vector_version": shape.vector_version,
        "vector_job": shape.vector_job,
        "vector_print": shape.vector_print,
        "vector_at": shape.vector_at,
        "vector_pieces": shape.vector_pieces,
        **({} if shape.order is None else {"order": shape.order}),
    }
    written: dict[str, str] = {placeholder: quoted(name) for placeholder, name in names.items()}
    properties = [quoted(name) for name in shape.text]
    projected = [f".{name}" for name in properties]
    if shape.has_relations:
        properties.append(quoted(READ_AS))
        projected.append(f"{properties[-1]}: {_neighbours(shape)}")
    values = [f"text.{name}" for name in properties]
    cut = [BEGINNING_OF_VALUE.replace("%value%", value) for value in values]
    written |= {
        "sample": SAMPLE_OF_VECTOR,
        "piece_count": COUNT_PIECES if shape.pieces else "null",
        "dependants": _dependants(shape),
        "neighbours": _neighbours(shape),
        "named": f"left(coalesce({_names(shape, 'entity')}), {LONGEST_PART})",
        "mark": ", ".join(f"entity.{quoted(name)}" for name in shape.provenance),
        "text": ", ".join(projected),
        "size": " + ".join(SIZE_OF_VALUE.replace("%value%", value) for value in values),
        "cut": ", ".join(f"{name}: {part}" for name, part in zip(properties, cut, strict=True)),
    }
    text: str = _PLACEHOLDER.sub(
        lambda found: written.get(found[1], found[0]),
        _for_order(statement, is_ordered=shape.order is not None).replace(
            "%readable%", READABLE_TEXT
        ),
    )
    return cast("LiteralString", text)


def _dependants(shape: EntityShape) -> str:
    """The pattern from an entity to those whose text names it."""
    types = "|".join(map(quoted, shape.relations.types))
    start, end = {"both": ("-", "-"), "out": ("<-", "-"), "in": ("-", "->")}[
        shape.relations.direction
    ]
    return f"{start}[relation{f':{types}' if types else ''}]{end}"


def _names(shape: EntityShape, node: str) -> str:
    """The expressions for a neighbour's name, in order of preference."""
    names = shape.relations.names or (shape.key,)
    return ", ".join(f"toStringOrNull({node}.{quoted(name)})" for name in names)


def _neighbours(shape: EntityShape) -> LiteralString:
    """The neighbours of an entity, one list per direction, for ``{relations}``."""
    relations = shape.relations
    types = "|".join(map(quoted, relations.types))
    written = {
        "types": f":{types}" if types else "",
        "word": quoted(relations.word),
        "valid_to": quoted(shape.valid_to),
        "label": quoted(shape.label),
        "key": quoted(shape.key),
        "order": quoted(shape.order or ""),
        "names": _names(shape, "other"),
        "most": str(relations.most),
        "looked": str(LOOKED),
        "furthest": str(FURTHEST),
        "longest": str(LONGEST_PART),
    }
    ways = {"out": (OUTGOING, "-", "->"), "in": (INCOMING, "<-", "-")}
    statement = _for_order(NEIGHBOURS, is_ordered=shape.order is not None)
    lists = [
        _PLACEHOLDER.sub(
            lambda found, ends=ends: {**written, **ends}[found[1]],
            statement,
        )
        for way, (sign, start, end) in ways.items()
        if relations.direction in (way, "both")
        for ends in [{"sign": sign, "start": start, "end": end}]
    ]
    return cast("LiteralString", " + ".join(lists))


def _for_order(statement: LiteralString, *, is_ordered: bool) -> LiteralString:
    """Expand the condition for current nodes, before any name is inserted."""
    current, outdated = (NEWEST, NOT_NEWEST) if is_ordered else (NOT_CLOSED, CLOSED)
    for node in _NODES:
        statement = statement.replace(f"%current_{node}%", current.replace("%node%", node))
        statement = statement.replace(f"%outdated_{node}%", outdated.replace("%node%", node))
    return statement


@cache
def for_queue(statement: LiteralString, queue: str) -> LiteralString:
    """Write the labels of a queue into ``statement``, which has those of the first queue.

    Each queue has labels of its own, and with them its own indexes, counts and unique keys: what is
    in one costs the others nothing, and no statement of one can find a job of another. A property
    ``queue`` on the jobs would stand in every index and every condition instead, and be forgotten
    in one of them some day.
    """
    if queue == DEFAULT_QUEUE:
        return statement
    ending = f"_{checked_queue_name(queue)}"
    text: str = _OWN_LABEL.sub(
        lambda found: found[0] if found[0].startswith("`") else found[0] + ending, statement
    )
    return cast("LiteralString", text)


def name_for(name: str, queue: str) -> str:
    """The name of an object that every queue has separately: an index, a trigger."""
    return name if queue == DEFAULT_QUEUE else f"{name}_{checked_queue_name(queue)}"
