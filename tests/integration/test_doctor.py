"""What the doctor says about the database and about the data in it."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from embed_pipeline.cli.app import app
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.pieces import Pieces
from embed_pipeline.operations import doctor, support, wiring
from embed_pipeline.operations.doctor import Finding, Mark
from embed_pipeline.settings import load_settings
from embed_pipeline.store.connection import connected
from embed_pipeline.store.graph_names import read_names
from embed_pipeline.store.search import search_entities
from tests.conftest import TestServer
from tests.support.project import Project
from tests.support.queue_harness import DIMENSIONS, MODEL, VECTOR, Neo4jUnderTest


@pytest.fixture
def environment(neo4j_server: TestServer, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in neo4j_server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    monkeypatch.setenv("EMBEDDING_DIMENSIONS", str(DIMENSIONS))
    return monkeypatch


async def findings(subject: str) -> list[Finding]:
    found = [finding async for finding in doctor.examine(load_settings(), ask_provider=False)]
    return [finding for finding in found if finding.subject == subject]


@pytest.fixture
async def index_of_another_program(queue: Neo4jUnderTest) -> AsyncIterator[Neo4jUnderTest]:
    await queue.run("DROP INDEX entity_embeddings IF EXISTS")
    await queue.run(
        """
        CREATE VECTOR INDEX theirs FOR (e:Entity) ON (e.embedding) OPTIONS
        {indexConfig: {`vector.dimensions`: 4, `vector.similarity_function`: 'cosine'}}
        """
    )
    yield queue
    await queue.run("DROP INDEX theirs")


async def test_m135_an_index_that_another_program_made_is_used_by_init_search_and_doctor(
    index_of_another_program: Neo4jUnderTest, environment: pytest.MonkeyPatch
) -> None:
    queue = index_of_another_program
    environment.setenv("EMBED_VECTOR_INDEX", "ours")
    await queue.install()
    [ada] = await queue.leased("ada")
    await queue.complete(ada.lease)
    await queue.run("CALL db.awaitIndexes(60)")

    hits = await search_entities(
        queue.queue.database, queue.config, vector=VECTOR, model=MODEL, limit=1
    )
    [said] = await findings("Vector index")

    assert [hit.uid for hit in hits or []] == ["ada"]
    assert (said.mark, said.detail) == (
        Mark.GOOD,
        "theirs, 4 dimensions as the model; it was there before one named ours; it is used",
    )
    on_entities = """
    SHOW VECTOR INDEXES YIELD name, labelsOrTypes, properties
    WHERE labelsOrTypes = ['Entity'] AND properties = ['embedding']
    """
    assert [row["name"] for row in await queue.run(on_entities)] == ["theirs"]


CREATE_MOVIES: Final = """
UNWIND range(1, 12) AS n
CREATE (movie:Movie {title: 'Movie ' + n, released: 1990 + n})
FOREACH (_ IN CASE WHEN n <= 3 THEN [1] ELSE [] END | SET movie.tagline = 'Tagline ' + n)
WITH collect(movie) AS movies
WITH movies[0] AS first, movies[1] AS second
CREATE (second)-[:SEQUEL_OF]->(first)
"""
MOVIES: Final = {
    "EMBED_ENTITY_LABEL": "Movie",
    "EMBED_ENTITY_KEY": "title",
    "EMBED_ENTITY_VECTOR": "movie_embedding",
    "EMBED_ENTITY_TEMPLATE": "{title}, {released}",
    "EMBED_QUEUE": "films",
}


@pytest.fixture
async def movies(
    queue: Neo4jUnderTest, environment: pytest.MonkeyPatch
) -> AsyncIterator[Neo4jUnderTest]:
    """A graph of movies beside the entities, with a queue of its own that fits it."""
    for name, value in MOVIES.items():
        environment.setenv(name, value)
    await queue.run(CREATE_MOVIES)
    yield queue
    await queue.run("MATCH (m:Movie) DETACH DELETE m")
    await queue.run("MATCH (s:EmbedSchema {name: 'embed_pipeline/films'}) DELETE s")
    for name in ("entity_embeddings_films", "embed_entity_key_films", "embed_entity_hash_films"):
        await queue.run("DROP INDEX $name IF EXISTS", name=name)


async def entities() -> list[Finding]:
    """What the doctor says about them, after ``init``."""
    settings = load_settings()
    async with connected(wiring.connection(settings)) as driver:
        await wiring.install_schema(driver, settings)
    return await findings("Entities")


@pytest.mark.parametrize("text", [{}, {"EMBED_ENTITY_TEMPLATE": "{title} {relations}"}])
async def test_m139_settings_that_fit_the_data_get_no_warning(
    movies: Neo4jUnderTest, environment: pytest.MonkeyPatch, text: dict[str, str]
) -> None:
    for name, value in text.items():
        environment.setenv(name, value)

    assert await entities() == [Finding("Entities", Mark.GOOD, "Movie, 12 looked at, all fit")]


NEIGHBOURS: Final = {"EMBED_ENTITY_TEMPLATE": "{title}\n{relations}"}
MISSES: Final = {
    "label": (
        {"EMBED_ENTITY_LABEL": "Movies"},
        "no node has the label Movies",
        "set EMBED_ENTITY_LABEL; did you mean Movie? There are Movie (12)",
    ),
    "key": (
        {"EMBED_ENTITY_KEY": "titel"},
        "12 of 12 Movie nodes cannot be embedded, the key is missing",
        "mend titel, or set EMBED_ENTITY_KEY; did you mean title? There are released (12), title",
    ),
    "template": (
        {"EMBED_ENTITY_TEMPLATE": "{title}{plot}"},
        "no Movie node has the property plot, of which EMBED_ENTITY_TEMPLATE makes the text",
        "set EMBED_ENTITY_TEMPLATE; there are released (12), title (12), tagline (3)",
    ),
    "most texts": (
        {"EMBED_ENTITY_TEMPLATE": "{tagline}"},
        "the property tagline is missing on 9 of 12 nodes, of which EMBED_ENTITY_TEMPLATE makes t",
        "set EMBED_ENTITY_TEMPLATE; there are ",
    ),
    "type of relationships": (
        NEIGHBOURS | {"EMBED_ENTITY_RELATIONS_TYPES": "SEQUEL_OF, PREQUEL_OF"},
        "no relationship has the type PREQUEL_OF, for which {relations} stands",
        "set EMBED_ENTITY_RELATIONS_TYPES; did you mean SEQUEL_OF? There are SEQUEL_OF (1)",
    ),
    "names of neighbours": (
        NEIGHBOURS | {"EMBED_ENTITY_RELATIONS_NAMES": "nickname"},
        "none of 12 Movie nodes has a neighbour that {relations} could name",
        "set EMBED_ENTITY_RELATIONS_TYPES, EMBED_ENTITY_RELATIONS_DIRECTION or EMBED_ENTITY_RELA",
    ),
}


@pytest.mark.parametrize(("settings", "what", "remedy"), MISSES.values(), ids=list(MISSES))
async def test_m139_settings_that_miss_the_data_are_a_warning_with_a_suggestion(
    movies: Neo4jUnderTest,
    environment: pytest.MonkeyPatch,
    settings: dict[str, str],
    what: str,
    remedy: str,
) -> None:
    for name, value in settings.items():
        environment.setenv(name, value)

    first, *_ = await entities()

    assert (first.mark, first.exit_code) == (Mark.WARNING, 0)
    assert first.detail.startswith(what)
    assert first.remedy.startswith(remedy)


async def test_m139_the_names_of_a_graph_with_pieces_are_read(movies: Neo4jUnderTest) -> None:
    """Their label cannot be that of entities, and is one of the labels that are counted."""
    await movies.run("MATCH (m:Movie {title: 'Movie 1'}) SET m:Chunk")
    await movies.run("CREATE (:Movie:EmbedChunk:Chunk {title: 'a piece, which is ours'})")

    names = await read_names(
        movies.queue.database, EntityShape(label="Movies", key="title", pieces=Pieces())
    )

    assert names.labels == {"Movie": 13, "Chunk": 1}


async def test_m139_one_text_for_all_is_a_warning(
    movies: Neo4jUnderTest, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("EMBED_ENTITY_TEMPLATE", "A movie {plot}")

    said = [finding.detail for finding in await entities()]

    assert said[1:] == [
        "at least 12 of 12 Movie nodes have one and the same text, and so the same vector"
    ]


async def test_m139_empty_texts_are_a_warning(
    movies: Neo4jUnderTest, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("EMBED_ENTITY_TEMPLATE", "{tagline}")

    said = [finding.detail for finding in await entities()]

    assert "the text of 9 of 12 Movie nodes is empty: they get no vector" in said


async def test_m139_unembeddable_nodes_and_shared_keys_are_named_but_not_in_a_bug_report(
    movies: Neo4jUnderTest,
) -> None:
    await movies.run("CREATE (:Movie {title: 'Movie 1', released: 2000})")
    await movies.run("CREATE (:Movie {title: true, released: 2000})")
    [node] = await movies.run("MATCH (m:Movie {title: true}) RETURN elementId(m) AS id")

    unfit, shared = await entities()

    assert unfit.detail == (
        "1 of 14 Movie nodes cannot be embedded, the key is neither text nor a number"
    )
    assert (unfit.examples, shared.examples) == ((node["id"],), ("Movie 1",))
    assert shared.detail == "2 current Movie nodes share their title with another one"
    report = await support._doctor(load_settings())
    assert shared.detail in report
    assert "Movie 1" not in report


async def test_m139_reconcile_and_status_say_it_too(
    movies: Neo4jUnderTest, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("EMBED_ENTITY_LABEL", "Movies")
    await entities()
    runner = CliRunner(env={"COLUMNS": "300"})

    scanned = await asyncio.to_thread(runner.invoke, app, ["reconcile"])
    shown = await asyncio.to_thread(runner.invoke, app, ["status"])
    read = await asyncio.to_thread(runner.invoke, app, ["status", "--json"])

    assert "! no node has the label Movies" in scanned.output
    assert "→ set EMBED_ENTITY_LABEL; did you mean Movie?" in scanned.output
    words = " ".join(shown.output.split())
    assert "Does not fit no node has the label Movies; set EMBED_ENTITY_LABEL" in words
    [misfit] = json.loads(read.stdout)["coverage"]["misfits"]
    assert misfit.startswith("no node has the label Movies; set EMBED_ENTITY_LABEL")


async def test_m141_status_says_that_a_deployment_with_these_settings_is_refused(
    movies: Neo4jUnderTest, environment: pytest.MonkeyPatch
) -> None:
    await entities()
    environment.setenv("EMBED_ENTITY_TEMPLATE", "{released}")

    runner = CliRunner(env={"COLUMNS": "300"})
    shown = await asyncio.to_thread(runner.invoke, app, ["status"])

    assert "Settings differ queue 'films' holds vectors of" in " ".join(shown.output.split())


async def test_reconcile_and_status_count_texts_of_which_only_neighbours_have_changed(
    queue: Neo4jUnderTest, neo4j_server: TestServer, tmp_path: Path
) -> None:
    own = {"EMBED_ENTITY_TEMPLATE": "{name}\n{relations}", "EMBEDDING_PROVIDER": "mock"}
    fixed = {"EMBED_JOB_RETENTION_DAYS": "14", "EMBEDDING_DIMENSIONS": str(DIMENSIONS)}
    project = Project(tmp_path, {**neo4j_server.environment, **own, **fixed, "COLUMNS": "300"})
    await queue.run("CREATE (:Entity {name: 'ada'})-[:KNOWS]->(:Entity {name: 'bob'})")
    assert project.run("reconcile").returncode == project.run("drain").returncode == 0

    await queue.run("MATCH ()-[r:KNOWS]->() SET r.relationType = 'likes'")

    scanned = project.run("reconcile", "--dry-run").stdout
    assert "only by their neighbours 2" in " ".join(scanned.split())
    shown = project.run("status", "--coverage").stdout
    assert "Neighbours changed of 2 entities, nothing else" in " ".join(shown.split())


async def test_m118_the_command_explains_an_entity(
    queue: Neo4jUnderTest, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("EMBEDDING_PROVIDER", "mock")
    await queue.put_entity("ada")

    shown = await asyncio.to_thread(CliRunner().invoke, app, ["explain", "ada"])
    plain = await asyncio.to_thread(CliRunner().invoke, app, ["explain", "ada", "--json"])

    assert (shown.exit_code, plain.exit_code) == (1, 1)
    assert "it has no vector yet; it has no job" in shown.output
    found = json.loads(plain.stdout)
    assert (found["text"], found["is_found"]) == (
        "Name: ada\nType: test\nObservations:\n- text",
        False,
    )
