"""Installs and inspects what the queue needs in the database."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from neo4j import AsyncDriver, exceptions as neo4j_errors

from embed_pipeline.domain.audit import Operator, OperatorAction
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.errors import SchemaError
from embed_pipeline.domain.queue_name import DEFAULT_QUEUE
from embed_pipeline.store.audit import AuditNote
from embed_pipeline.store.database import Database
from embed_pipeline.store.naming import for_queue
from embed_pipeline.store.schema.indexes import await_online, execute, run, show
from embed_pipeline.store.schema.objects import (
    COUNT_COMPLETED,
    DROP_INDEX,
    MIGRATIONS,
    NAME_PROPERTIES,
    OLDEST_BESIDE,
    RECORD_VERSION,
    SCHEMA_VERSION,
    STORED_VERSION,
    Kind,
    SchemaObject,
    count_nodes,
    entity_objects,
    piece_objects,
    queue_of,
    schema_name,
)
from embed_pipeline.store.schema.state import (
    FoundIndex,
    InstallReport,
    SchemaState,
    Stored,
    VectorIndex,
    taken,
    too_new,
)
from embed_pipeline.store.server_info import release_of

MOST_EXACT: Final = 200_000
"""Entities up to which an index is exact by default."""
_EXISTS: Final = ("EquivalentSchemaRuleAlreadyExists", "ConstraintAlreadyExists")


def schema_objects(shape: EntityShape, queue: str = DEFAULT_QUEUE) -> tuple[SchemaObject, ...]:
    """Everything a queue needs for entities of this shape."""
    own = (obj.of(queue) for migration in MIGRATIONS for obj in migration.objects)
    return (*own, *entity_objects(shape, queue))


async def install(
    driver: AsyncDriver,
    *,
    database: str,
    shape: EntityShape,
    dimensions: int,
    queue: str = DEFAULT_QUEUE,
    replace_vector_index: bool = False,
    quantized: bool | None = None,
    operator: Operator | None = None,
) -> InstallReport:
    """Create what is missing, wait until it is online, then record the version.

    May be repeated, and may run in several processes at once. ``replace_vector_index`` drops an
    index of other dimensions first, and records that ``operator`` did; the vectors themselves stay
    on their nodes. A vector index that is made is ``quantized``, or if ``None`` in a large graph.

    Raises:
        SchemaError: the database holds something that contradicts; nothing else was changed.
    """
    stored = await _stored(driver, database, shape, queue)
    version = stored.version
    if version is not None and version > SCHEMA_VERSION:
        raise SchemaError(too_new(version))
    if stored.rival:
        raise SchemaError(taken(stored.rival))
    found = await show(driver, database)
    wanted = schema_objects(shape, queue)
    if replace_vector_index:
        db = Database(driver, database, queue=queue, operator=operator)
        await _drop_other_vector_indexes(db, wanted, found, dimensions)
        found = await show(driver, database)
    _refuse_contradictions(wanted, found, dimensions)
    missing = [obj for obj in wanted if not any(f.is_like(obj) for f in found)]
    if quantized is None:
        [row] = await execute(driver, database, count_nodes(shape))
        quantized = row["nodes"] > MOST_EXACT
    options = {"dimensions": dimensions, "quantized": quantized}
    created = [o.name for o in missing if await _create(driver, database, o, options)]
    await await_online(driver, database, wanted)
    for migration in MIGRATIONS:
        for statement in migration.statements if migration.version > (version or 0) else ():
            await execute(driver, database, for_queue(statement, queue))
    await execute(
        driver,
        database,
        RECORD_VERSION,
        name=schema_name(queue),
        version=SCHEMA_VERSION,
        oldest=OLDEST_BESIDE,
        label=shape.label,
        vector=shape.vector,
        dimensions=dimensions,
        queue=queue,
    )
    await execute(driver, database, for_queue(COUNT_COMPLETED, queue), queue=queue)
    properties = (shape.key, shape.version, shape.valid_to, shape.vector, *shape.provenance)
    names = dict.fromkeys((*properties, *shape.text), True)
    await execute(driver, database, NAME_PROPERTIES, names=names)
    state = await inspect(driver, database=database, shape=shape, queue=queue)
    if state.problem or state.vector_index is None:
        raise SchemaError(f"after the installation {state.problem}")
    # Another installer may have won the race for the vector index with other dimensions.
    _check_vector_index(state.vector_index, dimensions)
    return InstallReport(
        version=SCHEMA_VERSION,
        vector_index=state.vector_index.name,
        created=tuple(created),
        present=tuple(obj.name for obj in wanted if obj.name not in created),
    )


async def inspect(
    driver: AsyncDriver, *, database: str, shape: EntityShape, queue: str = DEFAULT_QUEUE
) -> SchemaState:
    """Inspect the schema; changes nothing."""
    stored = await _stored(driver, database, shape, queue)
    found = await show(driver, database)
    wanted = schema_objects(shape, queue)
    vector = next((f for f in found if f.is_like(wanted[-1])), None)
    piece = next((f for f in found if shape.pieces and f.is_like(piece_objects(queue)[-1])), None)
    own = [f for f in found if any(f.is_like(obj) for obj in wanted)]
    return SchemaState(
        version=stored.version,
        oldest=stored.oldest,
        rival=stored.rival,
        server=stored.server,
        missing=tuple(o.name for o in wanted if not any(f.is_like(o) for f in found)),
        not_online=tuple(f.name for f in own if f.state != "ONLINE"),
        vector_index=vector.as_vector_index() if vector else None,
        piece_index=piece.as_vector_index() if piece else None,
        failed=tuple(f.name for f in own if f.state == "FAILED"),
    )


async def _drop_other_vector_indexes(
    database: Database, wanted: Iterable[SchemaObject], found: list[FoundIndex], dimensions: int
) -> None:
    """Drop them; no transaction can change schema and data, so the entry is made before.

    It is finished afterwards: one that is not says that the index may have been dropped or not.
    """
    vectors = [obj for obj in wanted if obj.kind is Kind.VECTOR]
    for index in found:
        was = index.as_vector_index().dimensions
        if any(index.is_like(vector) for vector in vectors) and was != dimensions:
            said = f"{index.name}: {was} to {dimensions} dimensions"
            note = AuditNote(database, OperatorAction.REPLACE_INDEX, said)
            await database.write(lambda tx, note=note: note.write(tx, 1, is_complete=False))
            await execute(database.driver, database.name, DROP_INDEX, name=index.name)
            await note.finish()


def _refuse_contradictions(
    wanted: Iterable[SchemaObject], found: list[FoundIndex], dimensions: int
) -> None:
    for obj in wanted:
        likes = [f for f in found if f.is_like(obj)]
        for like in likes:
            if obj.kind is Kind.VECTOR:
                _check_vector_index(like.as_vector_index(), dimensions)
        for other in found:
            same = (other.label, other.properties) == (obj.label, obj.properties)
            if other.name == obj.name and not same and not likes:
                instead = f", or set {obj.setting} to another name" if obj.setting else ""
                raise SchemaError(
                    f"the name {obj.name} is taken by another index on {other.label}"
                    f"({', '.join(other.properties)}); drop or rename it{instead}"
                )


def _check_vector_index(index: VectorIndex, dimensions: int) -> None:
    if misfit := index.misfit(dimensions):
        raise SchemaError(misfit)


async def _create(
    driver: AsyncDriver, database: str, obj: SchemaObject, options: Mapping[str, Any]
) -> bool:
    """Create the object; false if it was created meanwhile."""
    try:
        _, summary = await run(driver, database, obj.statement, **options)
    except neo4j_errors.Neo4jError as error:
        code = error.code or ""
        if any(code.endswith(exists) for exists in _EXISTS):
            return False
        columns = f"{obj.label}({', '.join(obj.properties)})"
        if "ConstraintCreationFailed" in code or "ConstraintValidationFailed" in code:
            raise SchemaError(
                f"cannot make {columns} unique: the database holds nodes with the same values; "
                "delete the duplicates, then run 'embed-pipeline init' again"
            ) from error
        raise SchemaError(f"cannot create {obj.name} on {columns}: {code}") from error
    return summary.counters.indexes_added + summary.counters.constraints_added > 0


async def _stored(driver: AsyncDriver, database: str, shape: EntityShape, queue: str) -> Stored:
    [record], summary = await run(
        driver,
        database,
        STORED_VERSION,
        name=schema_name(queue),
        label=shape.label,
        vector=shape.vector,
    )
    version, oldest = record["version"], record["oldest"]
    rival = next((queue_of(name) for name in record["rivals"]), None)
    server = release_of(summary.server.agent)
    if version is None:
        return Stored(None, 0, rival, server)
    if type(version) is not int or type(oldest) is not int:
        # What is no number was not written by any installation: install again.
        return Stored(0, 0, rival, server)
    return Stored(version, oldest, rival, server)
