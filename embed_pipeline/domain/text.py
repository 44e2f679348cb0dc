"""From an entity to the text that is embedded, and to its hash.

A change is seen by the hash of the text, never by the vector: providers give slightly different
vectors for the same text.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import mul
from typing import Any, Final, TypeVar

from embed_pipeline.domain.entity import (
    TEMPLATE_BRACES,
    TEMPLATE_PART,
    EntityShape,
    template_names,
)
from embed_pipeline.domain.keys import whole_number
from embed_pipeline.domain.pieces import parse_recipe, prefixed_recipe, typed_recipe
from embed_pipeline.domain.relations import (
    READ_AS,
    RECIPE as NEIGHBOURS,
    RELATIONS,
    relation_lines,
)
from embed_pipeline.domain.vector import Vector, numbers_of

MOST_SENTENCES: Final = 30
"""Of one text; the rest of a long one is not looked at."""
LONGEST_SENTENCE: Final = 300
_HEADING: Final = re.compile(r"^(Name|Type): |^Observations:$")
_END: Final = re.compile(r"(?<=[.!?])\s+|\n+")
_WORD: Final = re.compile(r"\w{3,}")


def sentences_of(text: str) -> list[str]:
    """Sentences and lines of a text, without the headings that the default text has."""
    lines = (line for line in text[: MOST_SENTENCES * LONGEST_SENTENCE].split("\n"))
    facts = "\n".join(line.removeprefix("- ") for line in lines if not _HEADING.match(line))
    found = (part.strip()[:LONGEST_SENTENCE] for part in _END.split(facts))
    return [part for part in found if part][:MOST_SENTENCES]


def nearest_sentence(
    question: Vector, sentences: Sequence[str], vectors: Sequence[Vector]
) -> str | None:
    """The sentence whose vector is nearest to that of the question."""
    asked = numbers_of(question)
    near = [sum(map(mul, asked, numbers_of(vector))) for vector in vectors]
    return sentences[near.index(max(near))] if near else None


def sentence_by_words(question: str, sentences: Sequence[str]) -> str | None:
    """The sentence that shares most words with the question; the first if none shares any.

    Where a vector costs money, the display of a hit costs none.
    """
    asked = set(_WORD.findall(question.casefold()))
    return max(
        sentences,
        key=lambda sentence: len(asked & set(_WORD.findall(sentence.casefold()))),
        default=None,
    )


RECIPE: Final = "memento-1"
"""Part of the hash: a new recipe makes every vector stale."""
HALF: Final = 16
"""Characters of the hash that are for the text without neighbours, and for the text with them."""
DEEPEST: Final = 100
"""Levels of JSON that are read. How deep Python itself can go depends on who calls, and the worker
and the store must come to the same text."""

LONGEST_TEXT: Final = 2**20
"""Characters of one property that are read; what is behind them is as good as not there, for the
hash too. It bounds the pieces of a text: some hundred of 8,191 tokens."""
CHARACTERS_AT_ONCE: Final = 2**23
"""Characters of all the texts that are read in one go. Texts are of any size, so neither the scan
nor a drain may count on so many entities being small."""

Owner = TypeVar("Owner")

Render = Callable[[Mapping[str, Any]], str]
"""Properties of an entity in, text out; pure."""

Hasher = Callable[[Mapping[str, Any]], str]
"""Properties of an entity in, hash of its text out; pure."""


def memento_text(properties: Mapping[str, Any], shape: EntityShape | None = None) -> str:
    """Name, type and observations, one per line, as the Memento memory server writes them."""
    shape = shape or EntityShape()
    key = properties.get(shape.key)
    lines = [f"Name: {'' if key is None else _written(key)}"]
    if kind := properties.get(shape.type):
        lines.append(f"Type: {kind}")
    if observations := read_observations(properties.get(shape.observations)):
        lines += ["Observations:", *(f"- {observation}" for observation in observations)]
    return unicodedata.normalize("NFC", "\n".join(lines))


def template_text(properties: Mapping[str, Any], template: str) -> str:
    """Fill a template with properties; what is missing is empty, a list has one entry per line."""
    values = TEMPLATE_BRACES | {
        f"{{{name}}}": "\n".join(
            relation_lines(properties.get(READ_AS) or ())
            if name == RELATIONS
            else read_observations(properties.get(name))
        )
        for name in template_names(template)
    }
    return unicodedata.normalize("NFC", TEMPLATE_PART.sub(lambda part: values[part[0]], template))


def render_for(shape: EntityShape) -> Render:
    """The text of entities of this shape."""
    template = shape.template
    if template is None:
        return lambda properties: memento_text(properties, shape)
    return lambda properties: template_text(properties, template)


def recipe_of(shape: EntityShape) -> str:
    """The name of the recipe of this shape; it changes whenever the text does."""
    if shape.template is None:
        whole = RECIPE
    elif shape.has_relations:
        whole = shape.relations.recipe(shape.template)
    else:
        whole = f"template-1:{shape.template}"
    whole = typed_recipe(shape.sent_as, prefixed_recipe(shape.prefix, whole))
    return shape.pieces.recipe(whole) if shape.pieces else whole


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
    return [_written(item) for item in items]


def _written(value: Any) -> str:
    """Format a value: a whole number without the ``.0`` that JavaScript gives it."""
    if isinstance(value, str):
        return value
    whole = whole_number(value)
    # Dates, points and bytes have no JSON.
    return json.dumps(value if whole is None else whole, default=str)


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


def share_of(entities: int) -> int:
    """The characters that each of so many texts may have to be read in one transaction."""
    return CHARACTERS_AT_ONCE // max(1, entities)


def pages_by_size(sized: Iterable[tuple[Owner, int]]) -> Iterator[list[Owner]]:
    """Group, in order, what fits into one read; what is too long for that comes alone."""
    page: list[Owner] = []
    room = CHARACTERS_AT_ONCE
    for owner, size in sized:
        if page and size > room:
            yield page
            page, room = [], CHARACTERS_AT_ONCE
        page.append(owner)
        room -= size
    if page:
        yield page


def text_hash(text: str, *, recipe: str = RECIPE) -> str:
    """Hash of recipe and text: 128 bits of SHA-256, which Neo4j stores inside the node's record.

    All blank texts have the same: there is nothing to embed in any of them.
    """
    text = text if text.strip() else ""
    digest = hashlib.sha256(f"{recipe}\0{text}".encode(errors="surrogatepass"))
    return digest.hexdigest()[:32]


def hasher(render: Render, *, recipe: str = RECIPE) -> Hasher:
    """Make a function from the properties of an entity to the hash of its text."""
    return lambda properties: hash_of_entity(
        properties, render(properties), render=render, recipe=recipe
    )


def hash_of_entity(properties: Mapping[str, Any], text: str, *, render: Render, recipe: str) -> str:
    """The hash of an entity whose text is rendered already.

    Where neighbours are in it, the first half is that of the text without them: whoever compares
    two hashes sees whether the entity has changed, or only its neighbourhood.
    """
    whole = text_hash(text, recipe=recipe)
    if not _has_neighbours(recipe) or not text.strip():
        return whole
    alone = {name: value for name, value in properties.items() if name != READ_AS}
    return text_hash(render(alone), recipe=recipe)[:HALF] + whole[:HALF]


def only_neighbours_differ(one: str | None, other: str | None, *, recipe: str) -> bool:
    """Whether two hashes are those of one entity with other neighbours."""
    if not _has_neighbours(recipe) or not one or not other:
        return False
    return one != other and one[:HALF] == other[:HALF]


def _has_neighbours(recipe: str) -> bool:
    return parse_recipe(recipe).text.startswith(NEIGHBOURS)
