"""Every constraint and index of the queue, as data.

A job carries its status twice: as a property, which people and filters read, and as a label, which
makes every index below a partial one and every count a read of the count store. Measured with
1,000 and with 1,000,000 jobs the database hits of lease, heartbeat, recover and counts are equal.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, LiteralString

from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.queue_name import DEFAULT_QUEUE
from embed_pipeline.store.naming import for_queue, name_for, quoted

SCHEMA_NAME: Final = "embed_pipeline"
SCHEMA_VERSION: Final = 3
OLDEST_BESIDE: Final = 1
"""The oldest schema that a program may know to work on one of ``SCHEMA_VERSION``.

A migration that only adds leaves it as it is: programs of both versions work side by side while
machines are updated one after the other. One that old statements cannot live with raises it.
"""


class Kind(StrEnum):
    """The type, as in ``SHOW INDEXES`` and ``SHOW CONSTRAINTS``."""

    UNIQUE = "UNIQUENESS"
    RANGE = "RANGE"
    VECTOR = "VECTOR"


@dataclass(frozen=True, slots=True)
class SchemaObject:
    """A constraint or index; ``statement`` creates it and does nothing when it exists."""

    name: str
    kind: Kind
    label: str
    properties: tuple[str, ...]
    setting: str = ""
    """The variable that gives it another name."""

    @property
    def statement(self) -> LiteralString:
        """How it is created; a vector index takes ``$dimensions`` and ``$quantized``."""
        name, label = quoted(self.name), quoted(self.label)
        columns = ", ".join([f"n.{quoted(prop)}" for prop in self.properties])
        match self.kind:
            case Kind.UNIQUE:
                return (
                    f"CREATE CONSTRAINT {name} IF NOT EXISTS"
                    f" FOR (n:{label}) REQUIRE ({columns}) IS UNIQUE"
                )
            case Kind.RANGE:
                return f"CREATE INDEX {name} IF NOT EXISTS FOR (n:{label}) ON ({columns})"
            case Kind.VECTOR:
                return (
                    f"CREATE VECTOR INDEX {name} IF NOT EXISTS"
                    f" FOR (n:{label}) ON ({columns})"
                    " OPTIONS {indexConfig: {`vector.dimensions`: $dimensions,"
                    " `vector.similarity_function`: 'cosine',"
                    " `vector.quantization.enabled`: $quantized}}"
                )

    def of(self, queue: str) -> "SchemaObject":
        """The same object for a queue; shared objects stay as they are."""
        label = for_queue(self.label, queue)
        if label == self.label:
            return self
        return replace(self, name=name_for(self.name, queue), label=label)


@dataclass(frozen=True, slots=True)
class Migration:
    """What a version adds; ``statements`` change data and must be safe to repeat."""

    version: int
    objects: tuple[SchemaObject, ...]
    statements: tuple[LiteralString, ...] = ()


def _unique(name: LiteralString, label: LiteralString, *properties: LiteralString) -> SchemaObject:
    return SchemaObject(name, Kind.UNIQUE, label, properties)


def _index(name: LiteralString, label: LiteralString, *properties: LiteralString) -> SchemaObject:
    return SchemaObject(name, Kind.RANGE, label, properties)


MIGRATIONS: Final = (
    Migration(
        version=1,
        objects=(
            _unique("embed_schema_name", "EmbedSchema", "name"),
            _unique("embed_queue_name", "EmbedQueue", "name"),
            _unique("embed_counters_name", "EmbedCounters", "name"),
            _unique("embed_limiter_name", "EmbedLimiter", "name"),
            _unique("embed_coverage_name", "EmbedCoverage", "name", "model"),
            _unique("embed_job_id", "EmbedJob", "id"),
            _unique("embed_job_key", "EmbedJob", "entity_uid", "model", "version"),
            # Only terminal jobs have processed_at: retention and throughput.
            _index("embed_job_processed", "EmbedJob", "processed_at"),
            # The lanes of pending jobs; a job has the properties of one lane only.
            _index("embed_pending_urgency", "EmbedPending", "model", "urgency", "ready_at"),
            _index("embed_pending_age", "EmbedPending", "model", "ready_at"),
            _index("embed_pending_delayed", "EmbedPending", "run_after"),
            _index("embed_pending_retry", "EmbedPending", "model", "run_after"),
            _index("embed_pending_suspect", "EmbedPending", "model", "suspect_at"),
            _index("embed_processing_expiry", "EmbedProcessing", "lock_until"),
            # People look for the few that failed, among all that did not.
            _index("embed_failed_id", "EmbedFailed", "id"),
        ),
    ),
    Migration(
        version=2,
        objects=(
            _unique("embed_audit_id", "EmbedAudit", "id"),
            # Read from its end, and deleted from its beginning.
            _index("embed_audit_at", "EmbedAudit", "at"),
        ),
    ),
    Migration(
        version=3,
        objects=(
            # Leases that somebody else has ended: all but one value of it. Measured with leases and
            # releases of 2,048 jobs, writing it costs less than one run differs from the next.
            _index("embed_processing_status", "EmbedProcessing", "status"),
        ),
    ),
)

ENTITY_VECTOR_INDEX_NAME: Final = "entity_embeddings"
PIECE_VECTOR_INDEX_NAME: Final = "chunk_embeddings"


def count_nodes(shape: EntityShape) -> LiteralString:
    """The number of entities, from Neo4j's count store."""
    return f"MATCH (n:{quoted(shape.label)}) RETURN count(n) AS nodes"


def entity_objects(shape: EntityShape, queue: str) -> tuple[SchemaObject, ...]:
    """The indexes on the entities; the last one is the vector index.

    Completion, reconcile and the trigger find an entity by its key; a text that was embedded before
    is found by its hash, and not paid for again.
    """

    def index(name: str, prop: str) -> SchemaObject:
        return SchemaObject(name_for(name, queue), Kind.RANGE, shape.label, (prop,))

    return (
        *(piece_objects(queue) if shape.pieces else ()),
        index("embed_entity_key", shape.key),
        index("embed_entity_hash", shape.vector_hash),
        SchemaObject(
            shape.index or name_for(ENTITY_VECTOR_INDEX_NAME, queue),
            Kind.VECTOR,
            shape.label,
            (shape.vector,),
            setting="EMBED_VECTOR_INDEX",
        ),
    )


def piece_objects(queue: str) -> tuple[SchemaObject, ...]:
    """The indexes on the pieces of texts, where they are nodes; the last one is the vector index.

    What is staged has none of its vectors in an index.
    """
    objects = (
        _unique("embed_piece_uid", "EmbedPiece", "uid"),
        _index("embed_piece_hash", "EmbedPiece", "text_hash"),
        _unique("embed_staged_uid", "EmbedPieceStaged", "uid"),
        _index("embed_staged_job", "EmbedPieceStaged", "job"),
        SchemaObject(PIECE_VECTOR_INDEX_NAME, Kind.VECTOR, "EmbedPiece", ("embedding",)),
    )
    return tuple(obj.of(queue) for obj in objects)


def schema_name(queue: str) -> str:
    """The name of the node that holds the version of a queue's schema."""
    return SCHEMA_NAME if queue == DEFAULT_QUEUE else f"{SCHEMA_NAME}/{queue}"


def queue_of(schema_name: str) -> str:
    """The queue whose schema has this name."""
    return schema_name.partition("/")[2] or DEFAULT_QUEUE


DROP_INDEX: Final[LiteralString] = "DROP INDEX $name IF EXISTS"
DROP_CONSTRAINT: Final[LiteralString] = "DROP CONSTRAINT $name IF EXISTS"

SHOW_INDEXES: Final[LiteralString] = """
SHOW INDEXES
YIELD name, type, entityType, state, labelsOrTypes, properties, options, owningConstraint,
  failureMessage
RETURN name, type, entityType, state, labelsOrTypes, properties, options, owningConstraint,
  failureMessage
"""

STORED_VERSION: Final[LiteralString] = """
OPTIONAL MATCH (schema:EmbedSchema {name: $name})
RETURN schema.version AS version, coalesce(schema.oldest, schema.version) AS oldest,
  COLLECT {
    MATCH (other:EmbedSchema {label: $label, vector: $vector}) WHERE other.name <> $name
    RETURN other.name ORDER BY other.name
  } AS rivals
"""
"""The version of a queue's schema, and the other queues that write to the same property."""

COUNT_COMPLETED: Final[LiteralString] = """
MATCH (counters:EmbedCounters {name: $queue}) WHERE counters.completed IS NULL
SET counters._lock = 0
WITH counters WHERE counters.completed IS NULL
SET counters.completed = COUNT { (:EmbedCompleted) } + coalesce(counters.deleted_completed, 0)
"""
"""An older version has counted completions on the jobs; from here on a counter does."""

NAME_PROPERTIES: Final[LiteralString] = """
CREATE (names:EmbedSchema) SET names += $names DELETE names
"""
"""Makes the names known to the database: else Neo4j hints at the unknown ones, such as ``validTo``,
with every statement in a transaction of the user's own."""

RECORD_VERSION: Final[LiteralString] = """
MERGE (schema:EmbedSchema {name: $name})
ON CREATE SET schema.installed_at = datetime.realtime().epochMillis
SET schema.version = $version, schema.oldest = $oldest, schema.label = $label,
    schema.vector = $vector, schema.dimensions = $dimensions
MERGE (queue:EmbedQueue {name: $queue})
ON CREATE SET queue.slots = 0, queue.turns = 0, queue.paused = false, queue.breaker = 'closed'
MERGE (counters:EmbedCounters {name: $queue})
"""
"""Runs last: a stored version says that everything before it is there."""
