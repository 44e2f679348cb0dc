"""The shape of the nodes that get a vector.

Labels and property names cannot be parameters of a statement that uses an index, so they are
written into the text of the statement, in backquotes. That is safe because an ``EntityShape``
cannot exist with a name that ``is_name`` refuses, and ``store.naming`` doubles every backquote.
"""

import re
from dataclasses import Field, dataclass, field, fields
from typing import Any, Final

from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.domain.pieces import PIECE_LABEL, Pieces
from embed_pipeline.domain.relations import READ_AS, RELATIONS, Relations

LONGEST_NAME: Final = 128
ALLOWED_NAME: Final = (
    f"a name of at most {LONGEST_NAME} printable characters, blanks inside it included, without a "
    "backslash"
)
_JOINERS: Final = str.maketrans("", "", "\u200c\u200d")
"""Invisible, but part of how words are written in Persian or Hindi."""
_OPTIONAL: Final = ("template", "index", "order", "relations", "pieces", "prefix", "sent_as")
LONGEST_PREFIX: Final = 1_000
TYPE_NAME: Final = r"[A-Za-z][A-Za-z0-9_.:-]{0,63}"
"""A field that tells documents from questions, and its values."""
SENT_AS: Final = re.compile(f"({TYPE_NAME})=({TYPE_NAME})")
TEMPLATE_PART: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
TEMPLATE_BRACES: Final = {"{{": "{", "}}": "}"}
"""Braces that are meant."""


def is_name(name: str) -> bool:
    """Whether a label or property of the user may have this name.

    Neo4j takes nearly everything. Refused are: a backslash, because Neo4j reads ``\u0060`` as a
    backquote before anything else, so that no quoting would hold; characters that nobody sees or
    that control a terminal; blanks at either end, which are hardly meant.
    """
    # A joiner joins: at either end it would be invisible and mean nothing.
    inside = name[:1] + name[1:-1].translate(_JOINERS) + name[1:][-1:]
    return (
        0 < len(name) <= LONGEST_NAME
        and inside.isprintable()
        and "\\" not in name
        and name == name.strip()
    )


def template_names(template: str) -> tuple[str, ...]:
    """The names of properties in a template; none if it is not a plain one.

    A name may hold everything but braces; braces that are meant are doubled.
    """
    parts = [part for part in TEMPLATE_PART.finditer(template) if part[0] not in TEMPLATE_BRACES]
    if not all(part[1] and is_name(part[1]) for part in parts):
        return ()
    return tuple(dict.fromkeys(part[1] for part in parts))


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
    """Another text than that of Memento: names of properties in braces, ``{title}: {abstract}``;
    ``{relations}`` stands for the names of the neighbours."""
    index: str | None = None
    """Name of the vector index that is made where there is none; else the queue gives it one."""
    order: str | None = None
    """Of several nodes without ``valid_to`` that share a key, the one with the greatest value here
    is current and the others are its outdated versions; without it they are duplicates."""
    relations: Relations = field(default_factory=Relations)
    """Which neighbours ``{relations}`` stands for."""
    pieces: Pieces | None = None
    """Each piece of a text is a node of its own, too; without it there is the vector of the entity,
    the mean of the pieces where its text is too long for the model."""
    prefix: str = ""
    """What the model wants before every text and piece, as in ``search_document: ``."""
    sent_as: str = ""
    """The field of a request that says that it has documents, as in ``input_type=passage``."""

    def __post_init__(self) -> None:
        names = {field.name: getattr(self, field.name) for field in self._names()}
        names |= {f: x for f in ("index", "order") if (x := getattr(self, f)) is not None}
        neighbours = self.relations
        said = [*names.items(), *(("relations types", name) for name in neighbours.types)]
        said += [("relations names", name) for name in neighbours.names]
        for what, name in [*said, ("relations word", neighbours.word)]:
            if not isinstance(name, str) or not is_name(name):
                raise ConfigurationError(
                    f"entity {what} is {name!r:.200}; allowed is {ALLOWED_NAME}"
                )
        properties = [getattr(self, f.name) for f in self._names() if f.name != "label"]
        if len({*properties, *self.provenance}) != len(properties) + len(self.provenance):
            raise ConfigurationError("two properties of the entity have the same name")
        if self.order in (self.key, self.valid_to, self.vector, *self.provenance):
            raise ConfigurationError(
                f"entity order is {self.order!r:.200}, which orders no versions; name a property "
                "that grows with each of them, as createdAt or the version itself"
            )
        if not isinstance(self.prefix, str) or len(self.prefix) > LONGEST_PREFIX:
            raise ConfigurationError(
                f"entity prefix is {self.prefix!r:.200}; allowed is a text of at most "
                f"{LONGEST_PREFIX} characters"
            )
        if self.sent_as and not SENT_AS.fullmatch(self.sent_as):
            raise ConfigurationError(
                f"entity sent_as is {self.sent_as!r:.200}; allowed is a field and its value, as in "
                "input_type=passage"
            )
        if self.pieces is not None and self.label == PIECE_LABEL:
            raise ConfigurationError(
                f"entity label is {PIECE_LABEL!r}, and the pieces of its texts would be entities "
                "themselves; give the entities another label, or leave out the pieces"
            )
        if self.template is not None and not self.text:
            raise ConfigurationError(
                f"the text template is {self.template!r}; it must hold at least one name of a "
                "property in braces, and braces for nothing else; {relations} is none"
            )

    @classmethod
    def _names(cls) -> list["Field[Any]"]:
        return [field for field in fields(cls) if field.name not in _OPTIONAL]

    @property
    def text(self) -> tuple[str, ...]:
        """The properties whose change makes the vector stale."""
        if self.template is not None:
            return tuple(name for name in template_names(self.template) if name != RELATIONS)
        return (self.key, self.type, self.observations)

    @property
    def has_relations(self) -> bool:
        """Whether the names of neighbours are in the text."""
        return self.template is not None and RELATIONS in template_names(self.template)

    @property
    def read(self) -> tuple[str, ...]:
        """All that the text is made of, under the names under which it is read."""
        return (*self.text, READ_AS) if self.has_relations else self.text

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
    def vector_print(self) -> str:
        """Property with the print of our vector; one that was replaced does not fit it."""
        return f"{self.vector}_print"

    @property
    def vector_at(self) -> str:
        """Property with the time at which the vector was written, in epoch milliseconds."""
        return f"{self.vector}_at"

    @property
    def vector_pieces(self) -> str:
        """Property with the number of pieces of the text that was embedded; missing for one."""
        return f"{self.vector}_pieces"

    @property
    def provenance(self) -> tuple[str, ...]:
        """The properties written beside a vector, in the same transaction."""
        return (
            self.vector_model,
            self.vector_hash,
            self.vector_version,
            self.vector_job,
            self.vector_print,
            self.vector_at,
            self.vector_pieces,
        )
