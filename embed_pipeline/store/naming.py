"""The one place where a name from the settings gets into a statement."""

import re
from functools import cache
from typing import Final, LiteralString, cast

from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.queue_name import DEFAULT_QUEUE, checked_queue_name

_JOB_LABEL: Final = re.compile(r"\bEmbed(?:Job|Pending|Processing|Completed|Failed|Cancelled)\b")
"""The labels of jobs; those of single nodes (``EmbedQueue``) are shared, the nodes have names."""


@cache
def for_shape(statement: LiteralString, shape: EntityShape) -> LiteralString:
    """Write the names of ``shape`` into the ``%placeholders%`` of ``statement``.

    The cast is honest: an ``EntityShape`` refuses every name that is not letters, digits and
    underscores, so nothing can close the backquotes. Dynamic labels (``$($label)``) would need no
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
    }
    text: str = statement.replace("%text%", ", ".join(f".`{name}`" for name in shape.text))
    for placeholder, name in names.items():
        text = text.replace(f"%{placeholder}%", f"`{name}`")
    return cast("LiteralString", text)


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
    text: str = _JOB_LABEL.sub(rf"\g<0>_{checked_queue_name(queue)}", statement)
    return cast("LiteralString", text)


def name_for(name: LiteralString, queue: str) -> LiteralString:
    """The name of something that every queue has for itself: an index, a trigger."""
    if queue == DEFAULT_QUEUE:
        return name
    return cast("LiteralString", f"{name}_{checked_queue_name(queue)}")
