"""From an entity to the text that is embedded, and to its hash.

A change is seen by the hash of the text, never by the vector: providers give slightly different
vectors for the same text.
"""

import hashlib
import json
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, Final

from embed_pipeline.domain.entity import EntityShape, template_names

RECIPE: Final = "memento-1"
"""Part of the hash: a new recipe makes every vector stale."""
DEEPEST: Final = 100
"""Levels of JSON that are read. How deep Python itself can go depends on who calls, and the worker
and the store must come to the same text."""

Render = Callable[[Mapping[str, Any]], str]
"""Properties of an entity in, text out; pure."""

Fingerprint = Callable[[Mapping[str, Any]], str]
"""Properties of an entity in, hash of its text out; pure."""


def memento_text(properties: Mapping[str, Any], shape: EntityShape | None = None) -> str:
    """Name, type and observations, one per line, as the Memento memory server writes them."""
    shape = shape or EntityShape()
    lines = [f"Name: {properties.get(shape.key) or ''}"]
    if kind := properties.get(shape.type):
        lines.append(f"Type: {kind}")
    if observations := read_observations(properties.get(shape.observations)):
        lines += ["Observations:", *(f"- {observation}" for observation in observations)]
    return unicodedata.normalize("NFC", "\n".join(lines))


def template_text(properties: Mapping[str, Any], template: str) -> str:
    """Fill a template with properties; what is missing is empty, a list has one entry per line."""
    values = {
        name: "\n".join(read_observations(properties.get(name)))
        for name in template_names(template)
    }
    return unicodedata.normalize("NFC", template.format_map(values))


def render_for(shape: EntityShape) -> Render:
    """The text of entities of this shape."""
    template = shape.template
    if template is None:
        return lambda properties: memento_text(properties, shape)
    return lambda properties: template_text(properties, template)


def recipe_of(shape: EntityShape) -> str:
    """The name of the recipe of this shape; it changes with everything that changes the text."""
    if shape.template is None:
        return RECIPE
    return f"template-1:{shape.template}"


def read_observations(value: Any) -> list[str]:
    """Read a list, or a list in JSON; any other text is one observation.

    Takes whatever a property can hold: one entity that cannot be read would stop all others.
    """
    if isinstance(value, str):
        parsed = _parsed(value)
        if parsed is _NOT_JSON:
            return [value] if value.strip() else []
        value = parsed
    if value is None:
        return []
    items = value if isinstance(value, (list, tuple)) else [value]
    # Dates, points and bytes have no JSON.
    return [item if isinstance(item, str) else json.dumps(item, default=str) for item in items]


_NOT_JSON: Final = object()


def _parsed(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _NOT_JSON
    return value if _is_shallow(value, DEEPEST) else _NOT_JSON


def _is_shallow(value: Any, levels: int) -> bool:
    match value:
        case dict():
            return levels > 0 and all(_is_shallow(item, levels - 1) for item in value.values())
        case list():
            return levels > 0 and all(_is_shallow(item, levels - 1) for item in value)
    return True


def text_hash(text: str, *, recipe: str = RECIPE) -> str:
    """Hash of recipe and text: 128 bits of SHA-256, which Neo4j stores inside the node's record."""
    digest = hashlib.sha256(f"{recipe}\0{text}".encode(errors="surrogatepass"))
    return digest.hexdigest()[:32]


def fingerprint(render: Render, *, recipe: str = RECIPE) -> Fingerprint:
    """Make a function from the properties of an entity to the hash of its text."""
    return lambda properties: text_hash(render(properties), recipe=recipe)
