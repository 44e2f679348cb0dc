"""Which side of a cut-over these settings mean: the alias decides what is live, not the variables.

The alias of a deployment has the name of its queue (EMBED_QUEUE). Without one, what the settings
say is live.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from embed_pipeline.domain.audit import Operator
from embed_pipeline.domain.cutover import Alias, Side
from embed_pipeline.domain.errors import ConfigurationError, CutoverError
from embed_pipeline.domain.models import MOCK_PREFIX, MODELS, Provider
from embed_pipeline.domain.pieces import parse_recipe
from embed_pipeline.domain.relations import Relations
from embed_pipeline.operations import wiring
from embed_pipeline.operations.learning import with_learnt
from embed_pipeline.settings import Settings
from embed_pipeline.settings.entities import relations_settings
from embed_pipeline.settings.load import changed
from embed_pipeline.store.alias import read_alias
from embed_pipeline.store.connection import Driver, OpenDriver, connected, open_driver
from embed_pipeline.store.database import Database
from embed_pipeline.store.queue import Queue
from embed_pipeline.store.schema.state import InstallReport

LENGTH_SIGN: Final = "@"


@dataclass(frozen=True, slots=True)
class Following:
    """The settings of a side, and the alias at the time it was read."""

    settings: Settings
    alias: Alias | None = None


async def read_live(database: Database, settings: Settings) -> Following:
    """The live side."""
    alias = await read_alias(database, settings.queue)
    live = settings if alias is None else settings_of(settings, alias.live)
    return Following(await with_learnt(database, live), alias)


async def live_settings(driver: Driver, settings: Settings) -> Settings:
    """The settings of the live side."""
    return (await read_live(wiring.queue_on(driver, settings).database, settings)).settings


async def fresh_settings(driver: Driver, settings: Settings) -> list[Settings]:
    """Those of every side that scans and drains serve, the live one first."""
    database = wiring.queue_on(driver, settings).database
    alias = await read_alias(database, settings.queue)
    sides = alias.kept_fresh if alias else ()
    every = [settings_of(settings, side) for side in sides] or [settings]
    return [await with_learnt(database, side) for side in every]


async def install_live(
    driver: Driver,
    settings: Settings,
    *,
    change_model: bool = False,
    operator: Operator | None = None,
) -> tuple[InstallReport, Settings]:
    """Create what the live side needs in the database; with the settings that are its own.

    Raises:
        SchemaError: as ``wiring.install_schema``.
        CutoverError: the model is to be changed in place, where an alias says which one is live.
    """
    following = await read_live(wiring.queue_on(driver, settings).database, settings)
    if change_model and (differs := difference(settings, following.alias)):
        raise CutoverError(f"--change-model replaces vectors in place; {differs}")
    live = following.settings
    return await wiring.install_schema(
        driver, live, change_model=change_model, operator=operator
    ), live


@asynccontextmanager
async def opened_live(
    settings: Settings, *, for_drain: bool = False, opener: OpenDriver = open_driver
) -> AsyncGenerator[tuple[Queue, Settings]]:
    """Connect to Neo4j and put the live queue together; with the settings that are its own."""
    async with connected(wiring.connection(settings), opener) as driver:
        live = await live_settings(driver, settings)
        yield await wiring.checked_queue(driver, live, for_drain=for_drain), live


def settings_of(settings: Settings, side: Side) -> Settings:
    """These settings, with the values that define the side."""
    return settings.model_copy(
        update={
            "queue": side.queue,
            "entity_vector": side.vector,
            "vector_index": side.index,
            "embedding_provider": side.provider,
            "chosen_model": side.model.removeprefix(MOCK_PREFIX)
            if side.provider == Provider.MOCK
            else side.model,
            "chosen_dimensions": side.dimensions,
            "entity_template": side.template,
            **_text_of(side),
        }
    )


def _text_of(side: Side) -> dict[str, Any]:
    """The side's settings of neighbours, pieces, prefix and type, if it has any."""
    tokens, sent_as, prefix, whole = parse_recipe(side.recipe)
    found = Relations.parse(whole)
    said = relations_settings(found[0]) if found else {}
    pieces = {"pieces": "nodes", "pieces_tokens": tokens} if tokens else {"pieces": "mean"}
    field, _, type_ = sent_as.partition("=")
    text = {**pieces, "document_prefix": prefix, "type_field": field, "document_type": type_}
    return {f"relations_{name}": value for name, value in said.items()} | text


def wanted_settings(
    settings: Settings,
    *,
    model: str | None = None,
    provider: str | None = None,
    dimensions: int | None = None,
) -> Settings:
    """The settings with another model; without any of these they are as they are.

    Raises:
        ConfigurationError: no provider has such a model.
    """
    if model is None and provider is None and dimensions is None:
        return settings
    known = MODELS.get(model or "")
    chosen = provider or (known.provider.value if known else None)
    given: dict[str, Any] = {"EMBEDDING_DIMENSIONS": dimensions}
    if model is not None or provider is not None:
        given["EMBEDDING_MODEL"] = model
    if chosen is not None:
        given["EMBEDDING_PROVIDER"] = chosen
    return changed(settings, given)


def settings_for_model(settings: Settings, named: str) -> Settings:
    """These settings with a model by its name, or by its provider's; ``model@256`` is a length.

    A price, prefix or type that was set is that of the model that is set, and no other's.

    Raises:
        ConfigurationError: no provider has such a model, or not of this length.
    """
    name, _, length = named.partition(LENGTH_SIGN)
    if length and not length.isdecimal():
        raise ConfigurationError(
            f"{named!r:.100} names no model; after {LENGTH_SIGN} comes the length of its vectors, "
            "as in text-embedding-3-small@512"
        )
    dimensions = int(length) if length else None
    if name == settings.model and dimensions in (None, settings.dimensions):
        return settings
    if name in {provider.value for provider in Provider}:
        wanted = wanted_settings(settings, provider=name, dimensions=dimensions)
    else:
        known, plain = MODELS.get(name), name.removeprefix(MOCK_PREFIX)
        provider = Provider.MOCK if plain != name else Provider.OPENAI
        wanted = wanted_settings(
            settings,
            model=plain,
            provider=(known.provider if known else provider).value,
            dimensions=dimensions,
        )
    if wanted.model == settings.model:
        return wanted
    return wanted.model_copy(
        update={
            "own_price": None,
            **dict.fromkeys(("document_prefix", "question_prefix"), ""),
            **dict.fromkeys(("type_field", "document_type", "question_type"), ""),
        }
    )


def difference(settings: Settings, alias: Alias | None) -> str | None:
    """How settings and alias differ, and what to do; ``None`` if they agree."""
    if alias is None:
        return None
    own, live = wiring.identity_of(settings), alias.live.identity
    if own == live:
        return None
    with_text = own.recipe != live.recipe
    meant = own.described(with_text=with_text)
    if alias.other and alias.other.identity == own:
        todo = "it is the other side of the cut-over: embed-pipeline cutover status"
    else:
        todo = "to change to it, run 'embed-pipeline cutover start'"
    return (
        f"the settings (EMBEDDING_PROVIDER, EMBEDDING_MODEL, EMBEDDING_DIMENSIONS, "
        f"EMBED_ENTITY_TEMPLATE, EMBED_ENTITY_RELATIONS_…, EMBED_PIECES, "
        f"EMBEDDING_DOCUMENT_PREFIX, EMBEDDING_DOCUMENT_TYPE) say {meant}, "
        f"live is {live.described(with_text=with_text)}; {todo}"
    )
