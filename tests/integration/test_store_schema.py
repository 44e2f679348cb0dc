"""The schema: what it refuses, and what it finds under other names."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from embed_pipeline.domain.audit import Operator
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.errors import SchemaError
from embed_pipeline.store import schema
from embed_pipeline.store.schema.objects import MIGRATIONS, SCHEMA_VERSION, Kind
from tests.support.queue_harness import DIMENSIONS, SHAPE, Neo4jUnderTest

OTHER = EntityShape(label="Paper", key="doi", vector="vec")


@pytest.fixture
async def bare(queue: Neo4jUnderTest) -> AsyncIterator[Neo4jUnderTest]:
    """A database without any constraint or index."""
    await drop_everything(queue)
    yield queue
    await queue.run("MATCH (p:Paper) DETACH DELETE p")
    await queue.run("MATCH (s:EmbedSchema) DELETE s")
    await drop_everything(queue)


async def drop_everything(queue: Neo4jUnderTest) -> None:
    for row in await queue.run("SHOW CONSTRAINTS YIELD name"):
        await queue.run("DROP CONSTRAINT $name", name=row["name"])
    for row in await queue.run("SHOW INDEXES YIELD name, type WHERE type <> 'LOOKUP'"):
        await queue.run("DROP INDEX $name", name=row["name"])


async def install(queue: Neo4jUnderTest, shape: EntityShape = SHAPE, dimensions: int = 4) -> object:
    return await schema.install(
        queue.driver, database=queue.database, shape=shape, dimensions=dimensions
    )


async def test_a_vector_index_of_other_dimensions_is_refused(queue: Neo4jUnderTest) -> None:
    with pytest.raises(SchemaError, match="4 dimensions"):
        await install(queue, dimensions=8)


@pytest.mark.parametrize(
    ("asked", "limit", "quantized"),
    [(None, 1, False), (None, 0, True), (True, 1, True), (False, 0, False)],
    ids=["small", "large", "wanted", "unwanted"],
)
async def test_an_index_is_quantized_in_a_large_graph_or_as_somebody_says(
    bare: Neo4jUnderTest,
    monkeypatch: pytest.MonkeyPatch,
    *,
    asked: bool | None,
    limit: int,
    quantized: bool,
) -> None:
    monkeypatch.setattr("embed_pipeline.store.schema.installation.MOST_EXACT", limit)
    await bare.run("CREATE (:Paper {doi: '1'})")

    await schema.install(
        bare.driver, database=bare.database, shape=OTHER, dimensions=4, quantized=asked
    )

    [row] = await bare.run("SHOW VECTOR INDEXES YIELD options")
    assert row["options"]["indexConfig"]["vector.quantization.enabled"] is quantized


async def test_a_vector_index_under_another_name_is_used(bare: Neo4jUnderTest) -> None:
    await bare.run(
        """
        CREATE VECTOR INDEX papers FOR (p:Paper) ON (p.vec) OPTIONS
        {indexConfig: {`vector.dimensions`: 4, `vector.similarity_function`: 'cosine'}}
        """
    )

    report = await schema.install(bare.driver, database=bare.database, shape=OTHER, dimensions=4)
    state = await schema.inspect(bare.driver, database=bare.database, shape=OTHER)

    assert report.vector_index == "papers"
    assert state.vector_index is not None
    assert (state.vector_index.name, state.problem) == ("papers", None)


async def test_an_index_of_another_similarity_is_refused_with_what_to_do(
    bare: Neo4jUnderTest,
) -> None:
    await bare.run(
        """
        CREATE VECTOR INDEX papers FOR (p:Paper) ON (p.vec) OPTIONS
        {indexConfig: {`vector.dimensions`: 4, `vector.similarity_function`: 'euclidean'}}
        """
    )

    with pytest.raises(SchemaError, match=r"by euclidean.*DROP INDEX `papers`.*EMBED_ENTITY_VECTO"):
        await install(bare, OTHER)


async def test_m135_the_vector_index_has_the_name_of_the_setting(bare: Neo4jUnderTest) -> None:
    named = replace(OTHER, index="papers by `meaning`")

    report = await schema.install(bare.driver, database=bare.database, shape=named, dimensions=4)

    [row] = await bare.run("SHOW VECTOR INDEXES YIELD name, labelsOrTypes, properties")
    assert row == {"name": named.index, "labelsOrTypes": ["Paper"], "properties": ["vec"]}
    assert report.vector_index == named.index


async def test_m135_an_index_of_another_program_is_used_although_another_name_is_set(
    bare: Neo4jUnderTest,
) -> None:
    await install(bare, replace(OTHER, index="theirs"))

    report = await schema.install(
        bare.driver, database=bare.database, shape=replace(OTHER, index="ours"), dimensions=4
    )

    assert (report.vector_index, report.created) == ("theirs", ())


async def test_m135_a_name_of_an_index_that_is_taken_leads_to_the_setting(
    bare: Neo4jUnderTest,
) -> None:
    await bare.run("CREATE INDEX entity_embeddings FOR (p:Paper) ON (p.year)")

    with pytest.raises(SchemaError, match=r"entity_embeddings is taken.*EMBED_VECTOR_INDEX"):
        await install(bare)


async def test_an_index_on_relationships_of_the_same_name_is_not_taken_for_ours(
    bare: Neo4jUnderTest,
) -> None:
    await bare.run(
        """
        CREATE VECTOR INDEX edges FOR ()-[r:Paper]-() ON (r.vec) OPTIONS
        {indexConfig: {`vector.dimensions`: 8, `vector.similarity_function`: 'cosine'}}
        """
    )

    report = await schema.install(bare.driver, database=bare.database, shape=OTHER, dimensions=4)

    assert report.vector_index == "entity_embeddings"


async def test_a_key_that_is_already_unique_needs_no_index(bare: Neo4jUnderTest) -> None:
    await bare.run("CREATE CONSTRAINT mine FOR (p:Paper) REQUIRE p.doi IS UNIQUE")

    await install(bare, OTHER)

    names = [row["name"] for row in await bare.run("SHOW INDEXES YIELD name")]
    assert "embed_entity_key" not in names


async def test_a_name_that_is_taken_is_refused(bare: Neo4jUnderTest) -> None:
    await bare.run("CREATE INDEX embed_job_processed FOR (p:Paper) ON (p.year)")

    with pytest.raises(SchemaError, match="embed_job_processed is taken"):
        await install(bare)


async def test_duplicates_in_the_data_are_named(bare: Neo4jUnderTest) -> None:
    await bare.run("UNWIND [1, 2] AS n CREATE (:EmbedJob {id: 'same'})")

    with pytest.raises(SchemaError, match=r"cannot make EmbedJob\(id\) unique"):
        await install(bare)


async def test_a_newer_schema_is_left_alone(queue: Neo4jUnderTest) -> None:
    await queue.run("MATCH (s:EmbedSchema) SET s.version = 99, s.oldest = 99")

    with pytest.raises(SchemaError, match="update embed-pipeline"):
        await install(queue)

    state = await schema.inspect(queue.driver, database=queue.database, shape=SHAPE)
    await queue.run(
        "MATCH (s:EmbedSchema) SET s.version = $version, s.oldest = $version",
        version=SCHEMA_VERSION,
    )
    assert state.problem is not None
    assert "99" in state.problem


async def test_a_newer_schema_that_only_adds_is_worked_on(queue: Neo4jUnderTest) -> None:
    await queue.run("MATCH (s:EmbedSchema) SET s.version = 99, s.oldest = $v", v=SCHEMA_VERSION)

    state = await schema.inspect(queue.driver, database=queue.database, shape=SHAPE)
    with pytest.raises(SchemaError, match="update embed-pipeline"):
        await install(queue)

    await queue.run("MATCH (s:EmbedSchema) SET s.version = $v", v=SCHEMA_VERSION)
    assert state.problem is None


async def test_a_missing_constraint_is_named(queue: Neo4jUnderTest) -> None:
    await queue.run("DROP CONSTRAINT embed_job_key")

    state = await schema.inspect(queue.driver, database=queue.database, shape=SHAPE)

    assert state.missing == ("embed_job_key",)
    assert state.problem is not None
    assert "embed-pipeline init" in state.problem


async def test_a_database_of_the_first_version_works_after_init_and_says_so_before(
    queue: Neo4jUnderTest,
) -> None:
    await queue.run("DROP CONSTRAINT embed_audit_id")
    await queue.run("DROP INDEX embed_audit_at")
    await queue.run("MATCH (s:EmbedSchema) SET s.version = 1, s.oldest = 1")

    before = await schema.inspect(queue.driver, database=queue.database, shape=SHAPE)
    await install(queue)
    after = await schema.inspect(queue.driver, database=queue.database, shape=SHAPE)

    assert before.problem == (
        "the schema lacks embed_audit_id, embed_audit_at; run 'embed-pipeline init'"
    )
    assert (after.problem, after.version, after.oldest) == (None, SCHEMA_VERSION, 1)


async def test_the_replacement_of_an_index_is_recorded(queue: Neo4jUnderTest) -> None:
    async def replace_with(dimensions: int) -> None:
        await schema.install(
            queue.driver,
            database=queue.database,
            shape=SHAPE,
            dimensions=dimensions,
            replace_vector_index=True,
            operator=Operator("alice"),
        )

    await replace_with(8)
    await replace_with(8)
    entries = await queue.queue.audit.recent()
    await replace_with(DIMENSIONS)

    [entry] = entries
    assert (entry.actor, entry.action, entry.is_complete) == ("alice", "replace_index", True)
    assert entry.filter == "entity_embeddings: 4 to 8 dimensions"


def test_versions_follow_each_other() -> None:
    assert [migration.version for migration in MIGRATIONS] == list(range(1, SCHEMA_VERSION + 1))
    names = [obj.name for obj in schema.schema_objects(SHAPE)]
    assert len(names) == len(set(names))
    assert {obj.kind for obj in schema.schema_objects(SHAPE)} == set(Kind)


async def test_an_index_that_was_dropped_comes_back(queue: Neo4jUnderTest) -> None:
    await queue.run("DROP INDEX embed_pending_age")

    report = await schema.install(
        queue.driver, database=queue.database, shape=SHAPE, dimensions=DIMENSIONS
    )

    assert report.created == ("embed_pending_age",)
