"""Looks at everything the project needs, and says what to do about what is missing."""

from collections.abc import AsyncIterator
from functools import partial

from embed_pipeline.domain.breaker import Breaker, BreakerStatus
from embed_pipeline.domain.errors import (
    PROBE_WORD,
    ConfigurationError,
    CredentialsError,
    CriticalError,
    EmbeddingError,
    EmbedPipelineError,
    ModelMismatchError,
    PermanentError,
    SchemaError,
    UnreachableError,
)
from embed_pipeline.domain.holds import HOW_TO_END
from embed_pipeline.domain.metrics import WHO_ADOPTS
from embed_pipeline.domain.models import MODELS, Provider
from embed_pipeline.domain.vector import dimensions_of
from embed_pipeline.operations import wiring
from embed_pipeline.operations.findings import Finding, Mark
from embed_pipeline.operations.fit import find_misfits, look_at_entities
from embed_pipeline.operations.following import difference, read_live
from embed_pipeline.operations.learning import relearnt, remember_now
from embed_pipeline.operations.probing import provider_misfits
from embed_pipeline.operations.reading import how_jobs_appear
from embed_pipeline.settings import Settings
from embed_pipeline.settings.profiles import OF_REQUESTS
from embed_pipeline.store import server_info
from embed_pipeline.store.connection import Driver, connected


def _bad(subject: str, error: EmbedPipelineError) -> Finding:
    """A finding from an error, whose message says both what is wrong and what to do."""
    detail, _, remedy = str(error).partition("; ")
    return Finding(subject, Mark.BAD, detail, remedy, error.exit_code)


async def examine(settings: Settings, *, ask_provider: bool) -> AsyncIterator[Finding]:
    """Examine Neo4j and the provider; ``ask_provider`` also where an answer costs money."""
    as_set = settings
    try:
        async with connected(wiring.connection(settings)) as driver:
            following = await read_live(wiring.queue_on(driver, settings).database, settings)
            if differs := difference(settings, following.alias):
                detail, _, remedy = differs.partition("; ")
                yield Finding("Cut-over", Mark.WARNING, detail, remedy)
            settings = following.settings
            async for finding in _examine_database(driver, settings):
                yield finding
    except CredentialsError as error:
        yield Finding("Neo4j", Mark.GOOD, f"answers at {settings.neo4j_uri}")
        yield _bad("Credentials", error)
    except EmbedPipelineError as error:
        yield _bad("Neo4j", error)
    misfits: list[Finding] = []
    if ask_provider and settings.provider is Provider.OPENAI and settings.openai_base_url:
        # As it is set, whatever drains have found out: the server may take something else now.
        plain = settings.model_copy(update={name: getattr(as_set, name) for name in OF_REQUESTS})
        remember = partial(remember_now, settings) if settings.unknown_server else None
        misfits = [finding async for finding in provider_misfits(plain, remember)]
        settings = await relearnt(plain)
    yield await _examine_provider(settings, ask_provider=ask_provider)
    for finding in misfits:
        yield finding


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
    refusal = await wiring.queue_on(driver, settings).identity.refusal()
    if refusal:
        yield _bad("Model", ModelMismatchError(refusal))
    index = state.vector_index
    if index is None:
        yield Finding("Vector index", Mark.SKIPPED, "there is none yet")
    elif misfit := index.misfit(settings.dimensions):
        yield _bad("Vector index", SchemaError(misfit))
    else:
        said = f"{index.name}, {index.dimensions} dimensions as the model"
        if settings.vector_index not in (None, index.name):
            said += f"; it was there before one named {settings.vector_index}; it is used"
        yield Finding("Vector index", Mark.GOOD, said)
    if piece := state.piece_index:
        if misfit := piece.misfit(settings.dimensions):
            yield _bad("Index of pieces", SchemaError(misfit))
        else:
            said = f"{piece.name}, {piece.dimensions} dimensions as the model"
            yield Finding("Index of pieces", Mark.GOOD, said)
    if not state.problem:
        if not refusal:
            for finding in await _examine_entities(driver, settings):
                yield finding
        yield await _examine_arrival(driver, settings)
        yield await _examine_limiter(driver, settings)
        metrics = await wiring.queue_on(driver, settings).metrics.read()
        breaker = metrics.state.breaker
        if breaker.status is not BreakerStatus.CLOSED:
            yield Finding("Queue", Mark.WARNING, breaker.at(metrics.at), _remedy(breaker))
        if metrics.unadopted:
            said = f"{metrics.unadopted} that another program wrote or edited, not yet put right"
            remedy = f"{WHO_ADOPTS.capitalize()}, embed-pipeline reconcile at once."
            yield Finding("Jobs", Mark.WARNING, said, remedy)


def _remedy(breaker: Breaker) -> str:
    if breaker.is_outage:
        return "Nothing needs to be done here: the queue goes on when the provider answers."
    return "Mend it; the queue then goes on by itself, at once with resume --close-breaker."


async def _examine_arrival(driver: Driver, settings: Settings) -> Finding:
    found = await how_jobs_appear(wiring.queue_on(driver, settings), settings)
    if found.is_at_once:
        return Finding("New entities", Mark.GOOD, f"get their job {found.detail}")
    remedy = "embed-pipeline init --with-triggers installs a trigger, where the server has APOC."
    mark = Mark.SKIPPED if found.is_sure else Mark.WARNING
    return Finding("New entities", mark, f"get their job {found.detail}", remedy)


async def _examine_entities(driver: Driver, settings: Settings) -> list[Finding]:
    """Read some entities: a queue looks healthy when the settings fit no data."""
    queue, label = wiring.queue_on(driver, settings), settings.entity_label
    report = await look_at_entities(queue, settings)
    found = await find_misfits(queue, settings, report)
    if not found:
        return [Finding("Entities", Mark.GOOD, f"{label}, {report.entities} looked at, all fit")]
    return [
        Finding("Entities", Mark.WARNING, misfit.what, misfit.remedy, examples=misfit.examples)
        for misfit in found
    ]


async def _examine_limiter(driver: Driver, settings: Settings) -> Finding:
    queue = wiring.queue_on(driver, settings)
    state = await wiring.open_limiter(queue, settings).read()
    if state.hold is not None:
        return Finding("Rate limit", Mark.WARNING, str(state.hold), f"{HOW_TO_END}.")
    used = f"{state.limits}, {state.requests} requests used"
    return Finding("Rate limit", Mark.GOOD, f"{state.name}, {used}, no pause of the provider")


async def _examine_provider(settings: Settings, *, ask_provider: bool) -> Finding:
    name = f"{settings.provider_name}, {settings.model}, {settings.dimensions} dimensions"
    if settings.provider is Provider.MOCK:
        return Finding("Provider", Mark.WARNING, f"{name}: vectors without meaning")
    if not settings.provider.runs_here and not ask_provider:
        return Finding(
            "Provider",
            Mark.SKIPPED,
            f"{name}: not asked",
            "doctor --probe asks it with a harmless word.",
        )
    try:
        embedder = wiring.open_embedder(settings)
        try:
            [vector] = (await embedder.embed([embedder.prepare(PROBE_WORD)])).vectors
        finally:
            await embedder.close()
    except PermanentError as error:
        # No server has a reason to refuse this word: it is the request that is refused.
        code = ConfigurationError.exit_code
        return Finding("Provider", Mark.BAD, f"{name}: {error}", error.advice, code)
    except EmbeddingError as error:
        kind = CredentialsError if isinstance(error, CriticalError) else UnreachableError
        return Finding(
            "Provider",
            Mark.BAD,
            f"{name}: {error}",
            "Check OPENAI_API_KEY, OPENAI_BASE_URL and EMBEDDING_MODEL."
            if settings.provider is Provider.OPENAI
            else "Check what the class says.",
            kind.exit_code,
        )
    except EmbedPipelineError as error:
        return _bad("Provider", error)
    if (length := dimensions_of(vector)) != settings.dimensions:
        return Finding(
            "Provider",
            Mark.BAD,
            f"{settings.model} answered with {length} dimensions instead of {settings.dimensions}",
            f"Set EMBEDDING_DIMENSIONS={length}.",
            ConfigurationError.exit_code,
        )
    known = MODELS.get(settings.model)
    quality = f"; {known.quality}" if known and known.quality else ""
    return Finding("Provider", Mark.GOOD, f"{name}: answers{quality}")
