"""The settings that say how the user's entities look."""

from typing import Final

from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.settings.fields import QueueSettings
from embed_pipeline.settings.types import Identifier, Template, setting

ALLOWED_NAME: Final = "a name of letters, digits and _, not starting with a digit"


class EntitySettings(QueueSettings):
    """Those of the queue, and label and properties of the nodes that get a vector."""

    entity_label: Identifier = setting(
        "EMBED_ENTITY_LABEL", "Label of the nodes to embed.", ALLOWED_NAME, "Entity"
    )
    entity_key: Identifier = setting(
        "EMBED_ENTITY_KEY", "Property that identifies an entity.", ALLOWED_NAME, "name"
    )
    entity_version: Identifier = setting(
        "EMBED_ENTITY_VERSION", "Property with the version of an entity.", ALLOWED_NAME, "version"
    )
    entity_valid_to: Identifier = setting(
        "EMBED_ENTITY_VALID_TO",
        "Property that is set on outdated versions of an entity.",
        ALLOWED_NAME,
        "validTo",
    )
    entity_vector: Identifier = setting(
        "EMBED_ENTITY_VECTOR", "Property that holds the vector.", ALLOWED_NAME, "embedding"
    )

    entity_type: Identifier = setting(
        "EMBED_ENTITY_TYPE", "Property with the type of an entity.", ALLOWED_NAME, "entityType"
    )
    entity_observations: Identifier = setting(
        "EMBED_ENTITY_OBSERVATIONS",
        "Property with the facts: a list, or a JSON list in a string.",
        ALLOWED_NAME,
        "observations",
    )

    entity_template: Template | None = setting(
        "EMBED_ENTITY_TEMPLATE",
        "Another text than name, type and observations, e.g. {title}: {abstract}.",
        "a text with names of properties in braces, and braces for nothing else",
    )

    @property
    def entity_shape(self) -> EntityShape:
        """How the user's entities look."""
        return EntityShape(
            label=self.entity_label,
            key=self.entity_key,
            version=self.entity_version,
            valid_to=self.entity_valid_to,
            vector=self.entity_vector,
            type=self.entity_type,
            observations=self.entity_observations,
            template=self.entity_template,
        )
