"""What an installation did and what an inspection found."""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from embed_pipeline.domain.identity import CHANGE_MODEL
from embed_pipeline.store.schema.objects import SCHEMA_VERSION, Kind, SchemaObject

SIMILARITY: Final = "cosine"


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """The vector index on the entities or their pieces, under any name."""

    name: str
    dimensions: int
    similarity: str
    state: str
    filters: tuple[str, ...] = ()
    """Further properties in the index, by which it filters itself."""

    def why_nothing(self, *, dimensions: int) -> str | None:
        """Why a search by it finds nothing of this length, or not all, or ``None``."""
        if self.state == "FAILED":
            return (
                f"vector index {self.name} has failed; DROP INDEX `{self.name}`, then run "
                "'embed-pipeline init'"
            )
        if self.state != "ONLINE":
            return f"vector index {self.name} is being filled ({self.state}); wait, then look again"
        return self.misfit(dimensions)

    def misfit(self, dimensions: int) -> str | None:
        """Why vectors of this length would not be found through the index, or ``None``."""
        if self.dimensions != dimensions:
            return (
                f"vector index {self.name} has {self.dimensions} dimensions, the embedding model "
                f"makes {dimensions}; set EMBEDDING_DIMENSIONS={self.dimensions} if the model can, "
                f"or replace the index: {CHANGE_MODEL}"
            )
        if self.similarity != SIMILARITY:
            return (
                f"vector index {self.name} compares by {self.similarity}, not by {SIMILARITY}; "
                f"DROP INDEX `{self.name}` and run 'embed-pipeline init', or, where another "
                "program needs it, give the vectors an EMBED_ENTITY_VECTOR of their own"
            )
        return None


class Stored(NamedTuple):
    """The content of the schema nodes."""

    version: int | None
    oldest: int
    """What a program must know at least to work on it."""
    rival: str | None
    """Another queue that writes its vectors to the same property of the same nodes."""
    server: tuple[int, ...]
    """The first two numbers of its version."""


@dataclass(frozen=True, slots=True)
class InstallReport:
    """What ``install`` did."""

    version: int
    vector_index: str
    created: tuple[str, ...]
    present: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SchemaState:
    """What ``inspect`` found."""

    version: int | None
    missing: tuple[str, ...]
    not_online: tuple[str, ...]
    vector_index: VectorIndex | None
    oldest: int = 0
    """What a program must know at least to work on it."""
    failed: tuple[str, ...] = ()
    """Those of ``not_online`` that never will be."""
    rival: str | None = None
    """Another queue that writes its vectors to the same property of the same nodes."""
    server: tuple[int, ...] = ()
    """The first two numbers of its version."""
    piece_index: VectorIndex | None = None
    """That on the pieces of the texts, where they are nodes."""

    @property
    def problem(self) -> str | None:
        """Why the queue must not be used yet, or ``None``."""
        if self.version is None or self.missing:
            lacking = ", ".join(self.missing) or "its version node"
            return f"the schema lacks {lacking}; run 'embed-pipeline init'"
        if self.oldest > SCHEMA_VERSION:
            return too_new(self.version)
        if self.rival:
            return taken(self.rival)
        if self.version < SCHEMA_VERSION:
            return f"the schema is of version {self.version}; run 'embed-pipeline init'"
        if self.failed:
            return (
                f"{', '.join(self.failed)} failed, most likely over a value that is too long for "
                "an index; mend the data, DROP INDEX it, then run 'embed-pipeline init'"
            )
        if self.not_online:
            return f"not online yet: {', '.join(self.not_online)}; wait, then look again"
        return None

    def misfit(self, dimensions: int) -> str | None:
        """Why vectors of this length would not be found, or ``None``."""
        indexes = (self.vector_index, self.piece_index)
        found = (index.misfit(dimensions) for index in indexes if index)
        return next((misfit for misfit in found if misfit), None)


@dataclass(frozen=True, slots=True)
class FoundIndex:
    """One row of ``SHOW INDEXES``; constraints appear through the index they own."""

    name: str
    type: str
    entity_type: str
    state: str
    label: str
    properties: tuple[str, ...]
    unique: bool
    options: dict[str, Any] = field(default_factory=dict)
    failure: str = ""

    def is_like(self, wanted: SchemaObject) -> bool:
        """Whether it can replace the wanted object, under any name."""
        return (
            self.entity_type == "NODE"
            and self.label == wanted.label
            # A vector index may have further properties, to filter by.
            and self.properties[: 1 if self.type == Kind.VECTOR else None] == wanted.properties
            and (
                self.type == Kind.RANGE if wanted.kind is Kind.UNIQUE else self.type == wanted.kind
            )
            and (self.unique or wanted.kind is not Kind.UNIQUE)
        )

    def as_vector_index(self) -> VectorIndex:
        """Read it as a vector index."""
        config = self.options.get("indexConfig", {})
        return VectorIndex(
            name=self.name,
            dimensions=int(config.get("vector.dimensions", 0)),
            similarity=str(config.get("vector.similarity_function", "")).lower(),
            state=self.state,
            filters=self.properties[1:],
        )


def too_new(version: int) -> str:
    """Why an older program must not touch the schema."""
    return (
        f"the schema is of version {version}, this program knows {SCHEMA_VERSION}; "
        "update embed-pipeline"
    )


def taken(rival: str) -> str:
    """Why two queues cannot write to one property."""
    return (
        f"queue {rival!r} writes its vectors to the same property of the same nodes; give this one "
        "its own EMBED_ENTITY_VECTOR or EMBED_ENTITY_LABEL"
    )
