"""What makes the vectors of a queue comparable: who makes them, and of which text.

Vectors of two identities must never be in one index: no distance between them means anything.
"""

from dataclasses import dataclass
from typing import Final

from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.models import Provider
from embed_pipeline.domain.text import recipe_of

CHANGE_MODEL: Final = "embed-pipeline init --change-model"
CUTOVER: Final = "embed-pipeline cutover start"
LONGEST_RECIPE: Final = 200
"""Characters of a template in a message."""


@dataclass(frozen=True, slots=True)
class Embedding:
    """The node shape and the model of an embedding; nothing has a default."""

    provider: Provider | str
    """Also ``python:package.module:Class``."""
    model: str
    dimensions: int
    """The length of every vector."""
    shape: EntityShape
    """Which nodes get a vector, and of which properties their text is made."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Provider, model, length and recipe; an address is no part of it."""

    provider: str
    model: str
    dimensions: int
    recipe: str

    @classmethod
    def of(cls, shape: EntityShape, *, provider: str, model: str, dimensions: int) -> "Identity":
        """The identity of vectors of entities of this shape."""
        recipe = recipe_of(shape)
        if shape.template is None:
            # The same recipe makes another text of other properties.
            recipe = f"{recipe} of {', '.join(shape.text)}"
        return cls(provider, model, dimensions, recipe)

    def refusal(self, queue: str, stored: "Identity | None") -> str | None:
        """Why a deployment with this identity must not work on a queue, or ``None``."""
        if stored is None or stored == self:
            return None
        with_text = stored.recipe != self.recipe
        return (
            f"queue {queue!r} holds vectors of {stored.described(with_text=with_text)}, these "
            f"settings make those of {self.described(with_text=with_text)}; set the former values "
            "again (EMBEDDING_PROVIDER, EMBEDDING_MODEL, EMBEDDING_DIMENSIONS, "
            "EMBED_ENTITY_TEMPLATE, EMBED_ENTITY_RELATIONS_…, EMBED_PIECES, "
            "EMBEDDING_DOCUMENT_PREFIX, EMBEDDING_DOCUMENT_TYPE), or give this deployment an "
            "EMBED_QUEUE and an EMBED_ENTITY_VECTOR of its own, or change over "
            f"without a gap ({CUTOVER}), or adopt the new ones for everybody, which embeds "
            f"every entity again: {CHANGE_MODEL}"
        )

    def described(self, *, with_text: bool = False) -> str:
        """The identity in words."""
        recipe = self.recipe
        if len(recipe) > LONGEST_RECIPE:
            recipe = f"{recipe[:LONGEST_RECIPE]}…"
        text = f" of the text {recipe!r}" if with_text else ""
        return f"{self.provider} {self.model} with {self.dimensions} dimensions{text}"
