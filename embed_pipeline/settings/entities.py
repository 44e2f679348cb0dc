"""The settings that say how the user's entities look."""

from datetime import timedelta
from typing import Any, Literal

from embed_pipeline.domain.entity import ALLOWED_NAME, EntityShape
from embed_pipeline.domain.pieces import FEWEST_TOKENS, MOST_PIECES, MOST_TOKENS, Pieces
from embed_pipeline.domain.relations import MOST_NEIGHBOURS, RELATIONS_DELAY, Direction, Relations
from embed_pipeline.settings.profiles import ProfileSettings
from embed_pipeline.settings.types import (
    ALLOWED_NAMES,
    DAY,
    MILLISECOND,
    Milliseconds,
    Name,
    Names,
    Template,
    WholeNumber,
    names_in,
    setting,
)


def relations_settings(relations: Relations) -> dict[str, Any]:
    """The settings of neighbours, by the last part of their names."""
    return {
        "types": ", ".join(relations.types) or None,
        "direction": relations.direction,
        "most": relations.most,
        "word": relations.word,
        "names": ", ".join(relations.names) or None,
    }


def pieces_settings(pieces: Pieces | None) -> dict[str, Any]:
    """The settings of pieces, by their variables."""
    if pieces is None:
        return {"EMBED_PIECES": "mean"}
    return {
        "EMBED_PIECES": "nodes",
        "EMBED_PIECES_TOKENS": pieces.tokens,
        "EMBED_PIECES_MOST": pieces.most,
    }


class EntitySettings(ProfileSettings):
    """The queue's settings, and label and properties of the embedded nodes."""

    entity_label: Name = setting(
        "EMBED_ENTITY_LABEL", "Label of the nodes to embed.", ALLOWED_NAME, "Entity"
    )
    entity_key: Name = setting(
        "EMBED_ENTITY_KEY", "Property that identifies an entity.", ALLOWED_NAME, "name"
    )
    entity_version: Name = setting(
        "EMBED_ENTITY_VERSION", "Property with the version of an entity.", ALLOWED_NAME, "version"
    )
    entity_valid_to: Name = setting(
        "EMBED_ENTITY_VALID_TO",
        "Property that is set on outdated versions of an entity.",
        ALLOWED_NAME,
        "validTo",
    )
    entity_order: Name | None = setting(
        "EMBED_ENTITY_ORDER",
        "Property that orders the versions of an entity, e.g. createdAt: of several nodes with one "
        "key and without EMBED_ENTITY_VALID_TO the greatest is current. If not set they are "
        "duplicates.",
        ALLOWED_NAME,
    )
    entity_vector: Name = setting(
        "EMBED_ENTITY_VECTOR", "Property that holds the vector.", ALLOWED_NAME, "embedding"
    )

    entity_type: Name = setting(
        "EMBED_ENTITY_TYPE", "Property with the type of an entity.", ALLOWED_NAME, "entityType"
    )
    entity_observations: Name = setting(
        "EMBED_ENTITY_OBSERVATIONS",
        "Property with the facts: a list, or a JSON list in a string.",
        ALLOWED_NAME,
        "observations",
    )

    foreign_vectors: Literal["replace", "keep"] = setting(
        "EMBED_FOREIGN_VECTORS",
        "Vectors that others wrote: made anew, or left alone with their entities.",
        "replace or keep",
        "replace",
    )
    keep_old_vectors: Literal["true", "false"] = setting(
        "EMBED_KEEP_OLD_VECTORS",
        "Whether outdated versions of an entity keep their vectors.",
        "true or false",
        "false",
    )

    entity_template: Template | None = setting(
        "EMBED_ENTITY_TEMPLATE",
        "Another text than name, type and observations, e.g. {title}: {abstract}; {relations} "
        "stands for the names of the neighbours. In double quotes \\n begins a new line.",
        "a text with names of properties in braces; a brace that is meant is doubled",
    )
    relations_types: Names | None = setting(
        "EMBED_ENTITY_RELATIONS_TYPES",
        "Types of relationships that {relations} stands for. If not set all.",
        ALLOWED_NAMES,
    )
    relations_direction: Direction = setting(
        "EMBED_ENTITY_RELATIONS_DIRECTION",
        "Directions of these relationships.",
        "both, out or in",
        "both",
    )
    relations_most: WholeNumber = setting(
        "EMBED_ENTITY_RELATIONS_MOST",
        "Neighbours per direction that are in the text, the first in order of their names.",
        f"a whole number from 1 to {MOST_NEIGHBOURS}",
        10,
        ge=1,
        le=MOST_NEIGHBOURS,
    )
    relations_word: Name = setting(
        "EMBED_ENTITY_RELATIONS_WORD",
        "Property of a relationship that says what it means; where it is missing its type does.",
        ALLOWED_NAME,
        "relationType",
    )
    relations_names: Names | None = setting(
        "EMBED_ENTITY_RELATIONS_NAMES",
        "Properties that name a neighbour, e.g. name, title: the first that it has. If not set "
        "EMBED_ENTITY_KEY.",
        ALLOWED_NAMES,
    )
    relations_delay: Milliseconds = setting(
        "EMBED_RELATIONS_DELAY_MS",
        "How long an entity waits of which the scan finds only the neighbours changed, so that "
        "several edits cost one embedding.",
        f"milliseconds from 0 to {DAY // MILLISECOND}",
        RELATIONS_DELAY,
        ge=timedelta(0),
        le=DAY,
    )

    pieces: Literal["mean", "nodes"] = setting(
        "EMBED_PIECES",
        "Pieces of a text: only their mean on the entity, where the text is too long for the "
        "model; or nodes of their own, too, so that a search finds the passage.",
        "mean or nodes",
        "mean",
    )
    pieces_tokens: WholeNumber = setting(
        "EMBED_PIECES_TOKENS",
        "Tokens of a piece that is a node.",
        f"a whole number from {FEWEST_TOKENS} to {MOST_TOKENS}",
        256,
        ge=FEWEST_TOKENS,
        le=MOST_TOKENS,
    )
    pieces_most: WholeNumber = setting(
        "EMBED_PIECES_MOST",
        "Pieces of one entity: a text with more of them gets larger ones, and more only where they "
        "are as large as the model takes.",
        f"a whole number from 1 to {MOST_PIECES}",
        1_000,
        ge=1,
        le=MOST_PIECES,
    )

    vector_index: Name | None = setting(
        "EMBED_VECTOR_INDEX",
        "Name of the vector index that init makes; one that is there already on the same label and "
        "property is used, whatever its name. If not set entity_embeddings.",
        ALLOWED_NAME,
    )

    index_quantized: Literal["auto", "true", "false"] = setting(
        "EMBED_VECTOR_INDEX_QUANTIZED",
        "Whether a vector index that init makes is quantized: less memory, and 4 of 100 hits are "
        "missed. auto is false for up to 200000 entities.",
        "auto, true or false",
        "auto",
    )

    @property
    def entity_shape(self) -> EntityShape:
        """The shape of the user's entities."""
        return EntityShape(
            label=self.entity_label,
            key=self.entity_key,
            version=self.entity_version,
            valid_to=self.entity_valid_to,
            vector=self.entity_vector,
            type=self.entity_type,
            observations=self.entity_observations,
            template=self.entity_template,
            index=self.vector_index,
            order=self.entity_order,
            pieces=Pieces(tokens=self.pieces_tokens, most=self.pieces_most)
            if self.pieces == "nodes"
            else None,
            prefix=self.document_prefix,
            sent_as=self.sent_as,
            relations=Relations(
                types=names_in(self.relations_types),
                direction=self.relations_direction,
                most=self.relations_most,
                word=self.relations_word,
                names=names_in(self.relations_names),
            ),
        )
