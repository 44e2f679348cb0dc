"""The one place where a name from the settings gets into a statement."""

from functools import cache
from typing import LiteralString, cast

from embed_pipeline.domain.entity import EntityShape


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
