"""Databases that are not ready: each is explained before a job is touched."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, LiteralString

import pytest
from neo4j import exceptions as neo4j_errors

from embed_pipeline.domain.errors import (
    ApocMissingError,
    CredentialsError,
    EmbedPipelineError,
    SchemaError,
    UnreachableError,
)
from embed_pipeline.operations import doctor, wiring
from embed_pipeline.settings import Settings, load_settings
from embed_pipeline.store import server_info
from embed_pipeline.store.connection import connected, explain_connection_error
from embed_pipeline.store.database import Database, Transaction, fetch
from embed_pipeline.store.schema.objects import SCHEMA_VERSION
from embed_pipeline.store.schema.state import SchemaState
from tests.conftest import TestServer
from tests.support.bolt_proxy import BoltProxy
from tests.support.queue_harness import DIMENSIONS, Neo4jUnderTest

LONG = "k" * 40_000
"""Longer than an index takes."""

POPULATING: LiteralString = "SHOW INDEXES YIELD state WHERE state = 'POPULATING'"

Break = tuple[LiteralString, ...]

SCHEMAS: dict[str, tuple[Break, str]] = {
    "no version": (("MATCH (s:EmbedSchema) DELETE s",), "lacks its version node; run 'embed-pip"),
    "older": (("MATCH (s:EmbedSchema) SET s.version = 0",), "of version 0; run 'embed-pipeline in"),
    "newer": (
        ("MATCH (s:EmbedSchema) SET s.version = 99, s.oldest = 99",),
        "of version 99, this program knows",
    ),
    "no number": (("MATCH (s:EmbedSchema) SET s.version = 'one'",), "of version 0; run 'embed-pip"),
    "a constraint missing": (("DROP CONSTRAINT embed_job_key",), "lacks embed_job_key; run"),
    "an index missing": (("DROP INDEX embed_pending_age",), "lacks embed_pending_age; run"),
    "no vector index": (("DROP INDEX entity_embeddings",), "lacks entity_embeddings; run"),
    "an index failed": (
        (
            "DROP INDEX embed_entity_key",
            "CREATE (:Entity {name: $long})",
            "CREATE INDEX embed_entity_key FOR (e:Entity) ON (e.name)",
        ),
        "embed_entity_key failed, most likely over a value that is too long",
    ),
    "a vector index of another length": (
        (
            "DROP INDEX entity_embeddings",
            """
            CREATE VECTOR INDEX entity_embeddings FOR (e:Entity) ON (e.embedding) OPTIONS
            {indexConfig: {`vector.dimensions`: 7, `vector.similarity_function`: 'cosine'}}
            """,
        ),
        "entity_embeddings has 7 dimensions, the embedding model makes 4",
    ),
}


@pytest.fixture
def settings(neo4j_server: TestServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name, value in neo4j_server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    monkeypatch.setenv("EMBEDDING_DIMENSIONS", str(DIMENSIONS))
    return load_settings()


@pytest.fixture
async def breakable(queue: Neo4jUnderTest) -> AsyncIterator[Neo4jUnderTest]:
    """A queue with a job in it, whose schema a test may spoil."""
    await queue.given_jobs("ada")
    yield queue
    await queue.run(
        "MATCH (s:EmbedSchema) SET s.version = $version, s.oldest = $version",
        version=SCHEMA_VERSION,
    )
    await queue.run("MATCH (e:Entity) DETACH DELETE e")
    for name in ("embed_entity_key", "entity_embeddings"):
        await queue.run("DROP INDEX $name IF EXISTS", name=name)


@pytest.mark.parametrize(("statements", "words"), SCHEMAS.values(), ids=list(SCHEMAS))
async def test_no_worker_starts_on_a_schema_that_is_not_whole(
    breakable: Neo4jUnderTest, settings: Settings, statements: Break, words: str
) -> None:
    before = await breakable.nodes()
    for statement in statements:
        await breakable.run(statement, long=LONG)
    await until_populated(breakable)

    with pytest.raises(SchemaError) as refusal:
        async with wiring.opened_queue(settings, for_drain=True):
            pass
    findings = [finding async for finding in doctor.examine(settings, ask_provider=False)]

    assert words in str(refusal.value)
    assert refusal.value.exit_code == 5
    [bad] = [finding for finding in findings if finding.exit_code]
    assert (bad.exit_code, bool(bad.remedy)) == (5, True)
    assert await breakable.nodes() == before


async def test_m72_doctor_says_since_when_the_provider_is_down(
    breakable: Neo4jUnderTest, settings: Settings
) -> None:
    breaker = await breakable.switch.open_breaker("503", is_outage=True)

    findings = [finding async for finding in doctor.examine(settings, ask_provider=False)]
    await breakable.switch.close_breaker()

    [found] = [finding for finding in findings if finding.subject == "Queue"]
    assert found.mark is doctor.Mark.WARNING
    assert found.detail == str(breaker)
    assert "provider down since 20" in found.detail


async def test_m76_doctor_counts_jobs_that_others_have_edited(
    breakable: Neo4jUnderTest, settings: Settings
) -> None:
    await breakable.run("CREATE (:EmbedJob {id: 'x', entity_uid: 'x', status: 'pending'})")

    findings = [finding async for finding in doctor.examine(settings, ask_provider=False)]

    [found] = [finding for finding in findings if finding.subject == "Jobs"]
    assert (found.mark, found.detail[:2]) == (doctor.Mark.WARNING, "1 ")


async def until_populated(queue: Neo4jUnderTest) -> None:
    async with asyncio.timeout(300):
        while await queue.run(POPULATING):  # noqa: ASYNC110 - the server has no event
            await asyncio.sleep(0.05)


def test_an_index_that_is_being_filled_is_waited_for() -> None:
    state = SchemaState(SCHEMA_VERSION, (), ("entity_embeddings",), None)

    assert state.problem == "not online yet: entity_embeddings; wait, then look again"


class CountingProxy(BoltProxy):
    """Counts connections: each one authenticates once."""

    connections = 0

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        super()._accept(reader, writer)


async def test_a_wrong_password_is_tried_exactly_once_and_locks_nobody_out(
    neo4j_server: TestServer,
) -> None:
    right = neo4j_server.connection

    async with CountingProxy(right.uri) as proxy:
        for scheme in ("bolt", "neo4j"):
            uri = proxy.uri.replace("bolt", scheme)
            with pytest.raises(CredentialsError, match="check NEO4J_USERNAME and NEO4J_PASSWORD"):
                async with connected(replace(right, uri=uri, password="hunter2")):
                    pass
        attempts = proxy.connections
        async with connected(replace(right, uri=proxy.uri)) as driver:
            await driver.verify_connectivity()

    assert attempts == 2


async def test_a_transaction_that_the_server_gives_up_is_explained(
    queue: Neo4jUnderTest, neo4j_server: TestServer
) -> None:
    # The server looks for such transactions every two seconds; the client waits twice this time.
    seconds = timedelta(seconds=4)

    async def touch(tx: Transaction) -> None:
        await fetch(tx, "MATCH (q:EmbedQueue) SET q._lock = 1")

    async with queue.driver.session() as session, await session.begin_transaction() as rival:
        await touch(rival)
        with pytest.raises(UnreachableError) as explained:
            async with connected(neo4j_server.connection) as driver:
                await Database(driver, timeout=seconds, patience=timedelta(0)).write(touch)

    assert "ended the transaction before it was done" in str(explained.value)


def of_code(code: str) -> Exception:
    return neo4j_errors.Neo4jError._hydrate_neo4j(code=code, message="{password: 'hunter2'}")


ANSWERS: dict[str, tuple[Callable[[], Exception], type[EmbedPipelineError], str]] = {
    "deadlock": (
        lambda: of_code("Neo.TransientError.Transaction.DeadlockDetected"),
        UnreachableError,
        "is busy and could not do this now (DeadlockDetected); try again",
    ),
    "out of memory": (
        lambda: of_code("Neo.TransientError.General.MemoryPoolOutOfMemoryError"),
        UnreachableError,
        "it is overloaded",
    ),
    "timed out": (
        lambda: of_code("Neo.ClientError.Transaction.TransactionTimedOutClientConfiguration"),
        UnreachableError,
        "it is overloaded, or a lock is held for long: try again",
    ),
    "no answer": (TimeoutError, UnreachableError, "is it overloaded or still starting?"),
    "no procedure": (
        lambda: of_code("Neo.ClientError.Procedure.ProcedureNotFound"),
        ApocMissingError,
        "is APOC core installed?",
    ),
    "no rights": (
        lambda: of_code("Neo.ClientError.Security.Forbidden"),
        CredentialsError,
        "grant it the rights",
    ),
    "too many wrong passwords": (
        lambda: of_code("Neo.ClientError.Security.AuthenticationRateLimit"),
        CredentialsError,
        "wait a few seconds, correct NEO4J_PASSWORD, then try once",
    ),
    "initial password": (
        lambda: of_code("Neo.ClientError.Security.CredentialsExpired"),
        CredentialsError,
        "ALTER CURRENT USER SET PASSWORD",
    ),
    "schema": (
        lambda: of_code("Neo.ClientError.Schema.ConstraintValidationFailed"),
        SchemaError,
        "run 'embed-pipeline doctor'",
    ),
    "anything else": (
        lambda: of_code("Neo.DatabaseError.General.UnknownError"),
        EmbedPipelineError,
        "'embed-pipeline doctor' looks at everything",
    ),
    "half a character": (
        lambda: UnicodeEncodeError("utf-8", "hunter2\ud800", 7, 8, "surrogates not allowed"),
        EmbedPipelineError,
        "half a character (a lone surrogate)",
    ),
}


@pytest.mark.parametrize(("error", "kind", "words"), ANSWERS.values(), ids=list(ANSWERS))
def test_an_error_of_the_database_says_what_to_do_and_quotes_nothing(
    error: Callable[[], Exception], kind: type[EmbedPipelineError], words: str
) -> None:
    explained = explain_connection_error(error(), "bolt://db.example:7687")

    assert isinstance(explained, kind)
    assert words in str(explained)
    assert "hunter2" not in str(explained)


@pytest.mark.parametrize(
    ("server", "apoc", "mark", "detail"),
    [
        ("5.26.30", "5.26.19", doctor.Mark.GOOD, "5.26.19"),
        ("5.26.30", "5.26.30+extended", doctor.Mark.GOOD, "5.26.30+extended"),
        ("5.26.30", "5.25.1", doctor.Mark.WARNING, "5.25.1 does not fit to Neo4j 5.26.30"),
        ("5.26.30", "2026.8.0", doctor.Mark.WARNING, "2026.8.0 does not fit to Neo4j 5.26.30"),
        ("2026.08.1", "2026.08.0", doctor.Mark.GOOD, "2026.08.0"),
        ("2026.08.1", "2026.07.0", doctor.Mark.WARNING, "2026.07.0 does not fit"),
        ("5.26.30", "unknown", doctor.Mark.WARNING, "unknown does not fit"),
        ("5.26.30", None, doctor.Mark.WARNING, "not installed"),
    ],
)
async def test_doctor_says_whether_apoc_is_of_the_servers_release(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    server: str,
    apoc: str | None,
    mark: doctor.Mark,
    detail: str,
) -> None:
    async def read(*_: Any, **__: Any) -> server_info.ServerInfo:
        return server_info.ServerInfo(version=server, edition="community", apoc=apoc)

    monkeypatch.setattr(server_info, "read", read)

    findings = [finding async for finding in doctor.examine(settings, ask_provider=False)]

    [found] = [finding for finding in findings if finding.subject == "APOC"]
    assert found.mark is mark
    assert detail in found.detail
    assert bool(found.remedy) == (mark is doctor.Mark.WARNING)
