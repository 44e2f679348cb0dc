"""Looks at everything the project needs, and says what to do about what is missing."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum

from embed_pipeline import wiring
from embed_pipeline.domain.errors import (
    ConfigurationError,
    CredentialsError,
    CriticalError,
    EmbeddingError,
    EmbedPipelineError,
    SchemaError,
    UnreachableError,
)
from embed_pipeline.domain.models import Provider
from embed_pipeline.settings import Settings, warnings
from embed_pipeline.store import server_info
from embed_pipeline.store.connection import Driver, connected


class Mark(StrEnum):
    """How a finding is shown."""

    GOOD = "✓"
    WARNING = "!"
    BAD = "✗"
    SKIPPED = "–"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's table."""

    subject: str
    mark: Mark
    detail: str
    remedy: str = ""
    exit_code: int = 0


def _bad(subject: str, error: EmbedPipelineError) -> Finding:
    """Take what is wrong and what to do from the error: its message says both."""
    detail, _, remedy = str(error).partition("; ")
    return Finding(subject, Mark.BAD, detail, remedy, error.exit_code)


def examine_settings(settings: Settings) -> list[Finding]:
    """What the settings say, and what about them is hardly meant."""
    good = Finding(
        "Settings",
        Mark.GOOD,
        f"retention {settings.retention_days} days, lease {settings.lease.total_seconds():g} s, "
        f"heartbeat {settings.heartbeat.total_seconds():g} s, {settings.rate_limit_requests} "
        f"requests per {settings.rate_limit_interval_ms} ms, {settings.max_attempts} attempts",
    )
    return [good, *(Finding("Settings", Mark.WARNING, text) for text in warnings(settings))]


async def examine(settings: Settings, *, ask_provider: bool) -> AsyncIterator[Finding]:
    """Examine Neo4j and the provider; ``ask_provider`` also where an answer costs money."""
    try:
        async with connected(wiring.connection(settings)) as driver:
            async for finding in _examine_database(driver, settings):
                yield finding
    except CredentialsError as error:
        yield Finding("Neo4j", Mark.GOOD, f"answers at {settings.neo4j_uri}")
        yield _bad("Credentials", error)
    except EmbedPipelineError as error:
        yield _bad("Neo4j", error)
    yield await _examine_provider(settings, ask_provider=ask_provider)


async def _examine_database(driver: Driver, settings: Settings) -> AsyncIterator[Finding]:
    database = settings.neo4j_database
    info = await server_info.read(driver, database=database)
    yield Finding("Neo4j", Mark.GOOD, f"{info.version} {info.edition} at {settings.neo4j_uri}")
    if not info.is_supported:
        yield Finding(
            "Neo4j",
            Mark.WARNING,
            f"version {info.version} is older than {server_info.OLDEST}",
            "Use a newer server; nothing is tested on this one.",
        )
    yield Finding("Credentials", Mark.GOOD, f"user {settings.neo4j_username}, database {database}")
    yield _apoc(info)
    async for finding in _examine_schema(driver, settings):
        yield finding


def _apoc(info: server_info.ServerInfo) -> Finding:
    remedy = "Install APOC Core of the server's version, or do without triggers and APOC clean-up."
    if info.apoc is None:
        return Finding("APOC", Mark.WARNING, "not installed", remedy)
    if not info.apoc_fits:
        return Finding(
            "APOC", Mark.WARNING, f"{info.apoc} does not fit to Neo4j {info.version}", remedy
        )
    return Finding("APOC", Mark.GOOD, info.apoc)


async def _examine_schema(driver: Driver, settings: Settings) -> AsyncIterator[Finding]:
    state = await wiring.inspect_schema(driver, settings)
    if state.problem:
        yield _bad("Schema", SchemaError(state.problem))
    else:
        detail = f"version {state.version}, queue {settings.queue!r}, all online"
        yield Finding("Schema", Mark.GOOD, detail)
    index = state.vector_index
    if index is None:
        yield Finding("Vector index", Mark.SKIPPED, "there is none yet")
    elif misfit := index.misfit(settings.dimensions):
        yield _bad("Vector index", SchemaError(misfit))
    else:
        yield Finding(
            "Vector index", Mark.GOOD, f"{index.name}, {index.dimensions} dimensions as the model"
        )


async def _examine_provider(settings: Settings, *, ask_provider: bool) -> Finding:
    name = f"{settings.provider}, {settings.model}, {settings.dimensions} dimensions"
    if settings.provider is Provider.MOCK:
        return Finding("Provider", Mark.WARNING, f"{name}: vectors without meaning")
    if settings.provider is Provider.OPENAI and not ask_provider:
        return Finding(
            "Provider", Mark.SKIPPED, f"{name}: not asked", "doctor --probe embeds one word."
        )
    try:
        embedder = wiring.open_embedder(settings)
        try:
            [vector] = (await embedder.embed([embedder.prepare("probe")])).vectors
        finally:
            await embedder.close()
    except EmbeddingError as error:
        kind = CredentialsError if isinstance(error, CriticalError) else UnreachableError
        return Finding(
            "Provider",
            Mark.BAD,
            f"{name}: {error}",
            "Check OPENAI_API_KEY, OPENAI_BASE_URL and EMBEDDING_MODEL.",
            kind.exit_code,
        )
    except EmbedPipelineError as error:
        return _bad("Provider", error)
    if len(vector) != settings.dimensions:
        return Finding(
            "Provider",
            Mark.BAD,
            f"{settings.model} answered with {len(vector)} dimensions instead of "
            f"{settings.dimensions}",
            f"Set EMBEDDING_DIMENSIONS={len(vector)}.",
            ConfigurationError.exit_code,
        )
    return Finding("Provider", Mark.GOOD, f"{name}: answers")
