"""The shape of the nodes that get a vector.

Labels and property names cannot be parameters of a statement that uses an index, so they are
written into the text of the statement. That is safe because an ``EntityShape`` cannot exist with a
name outside ``IDENTIFIER``.
"""

import re
from dataclasses import Field, dataclass, fields
from string import Formatter
from typing import Any, Final

from embed_pipeline.domain.errors import ConfigurationError

IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
MAX_KEY_LENGTH: Final = 512
"""Characters; Neo4j's indexes refuse keys of more than about 8,000 bytes."""
FIRST_VERSION: Final = 1
"""The version of an entity that has none."""


def template_names(template: str) -> tuple[str, ...]:
    """The names of properties in a template; none if it is not a plain one."""
    try:
        parts = [part for part in Formatter().parse(template) if part[1] is not None]
    except ValueError:
        return ()
    is_plain = all(
        name and IDENTIFIER.fullmatch(name) and not spec and conversion is None
        for _, name, spec, conversion in parts
    )
    return tuple(dict.fromkeys(str(name) for _, name, _, _ in parts)) if is_plain else ()


@dataclass(frozen=True, slots=True)
class EntityShape:
    """Label and property names of an entity; the default is that of the Memento memory server."""

    label: str = "Entity"
    key: str = "name"
    version: str = "version"
    valid_to: str = "validTo"
    vector: str = "embedding"
    type: str = "entityType"
    observations: str = "observations"
    template: str | None = None
    """Another text than that of Memento: names of properties in braces, ``{title}: {abstract}``."""

    def __post_init__(self) -> None:
        for field in self._names():
            name = getattr(self, field.name)
            if not isinstance(name, str) or not IDENTIFIER.fullmatch(name):
                raise ConfigurationError(
                    f"entity {field.name} is {name!r}; allowed are letters, digits and _, "
                    "not starting with a digit, at most 63"
                )
        properties = [getattr(self, f.name) for f in self._names() if f.name != "label"]
        if len({*properties, *self.provenance}) != len(properties) + len(self.provenance):
            raise ConfigurationError("two properties of the entity have the same name")
        if self.template is not None and not template_names(self.template):
            raise ConfigurationError(
                f"the text template is {self.template!r}; it must hold at least one name of a "
                "property in braces, and braces for nothing else"
            )

    @classmethod
    def _names(cls) -> list["Field[Any]"]:
        return [field for field in fields(cls) if field.name != "template"]

    @property
    def text(self) -> tuple[str, ...]:
        """The properties whose change makes the vector stale."""
        if self.template is not None:
            return template_names(self.template)
        return (self.key, self.type, self.observations)

    @property
    def vector_model(self) -> str:
        """Property that names the model of the stored vector."""
        return f"{self.vector}_model"

    @property
    def vector_hash(self) -> str:
        """Property with the hash of the text that was embedded."""
        return f"{self.vector}_hash"

    @property
    def vector_version(self) -> str:
        """Property with the entity version that was embedded."""
        return f"{self.vector}_version"

    @property
    def vector_job(self) -> str:
        """Property with the id of the job that wrote the vector."""
        return f"{self.vector}_job"

    @property
    def provenance(self) -> tuple[str, str, str, str]:
        """What is written beside a vector, in the same transaction."""
        return (self.vector_model, self.vector_hash, self.vector_version, self.vector_job)
