"""From settings to the sides of a cut-over: where the vectors of each are."""

from typing import Final

from embed_pipeline.domain.cutover import Side, queue_for, slug_of
from embed_pipeline.domain.errors import ModelMismatchError, SchemaError
from embed_pipeline.domain.identity import Identity
from embed_pipeline.domain.pieces import parse_recipe
from embed_pipeline.domain.relations import Relations
from embed_pipeline.operations import wiring
from embed_pipeline.operations.following import settings_of
from embed_pipeline.settings import Settings
from embed_pipeline.store.alias import Neo4jAlias, read_alias
from embed_pipeline.store.connection import Driver
from embed_pipeline.store.naming import name_for
from embed_pipeline.store.schema.objects import ENTITY_VECTOR_INDEX_NAME

TEMPLATE: Final = "template-1:"
"""Begins the recipe of a template."""


async def live_side(driver: Driver, settings: Settings) -> Side:
    """The side that a deployment without an alias has: what its queue belongs to.

    Raises:
        SchemaError: there is no queue.
        ModelMismatchError: it belongs to another text, which these settings cannot make.
    """
    state = await wiring.inspect_schema(driver, settings)
    if state.vector_index is None:
        raise SchemaError(state.problem or "there is no vector index; run 'embed-pipeline init'")
    queue = wiring.queue_on(driver, settings)
    stored = await queue.identity.stored() or wiring.identity_of(settings)
    for template in (settings.entity_template, None, _template_of(stored)):
        side = Side(
            queue=settings.queue,
            index=state.vector_index.name,
            vector=settings.entity_vector,
            template=template,
            provider=stored.provider,
            model=stored.model,
            dimensions=stored.dimensions,
            recipe=stored.recipe,
        )
        if wiring.identity_of(settings_of(settings, side)) == stored:
            return side
    raise ModelMismatchError(await queue.identity.refusal() or "the text has another recipe")


async def name_live(driver: Driver, settings: Settings) -> None:
    """Make the alias name the live side, so that the settings may name the next one."""
    database = wiring.queue_on(driver, settings).database
    if await read_alias(database, settings.queue) is None:
        live = await live_side(driver, settings)
        await Neo4jAlias(database, settings.queue).begin(live, None)


def _template_of(identity: Identity) -> str | None:
    recipe = parse_recipe(identity.recipe).text
    if found := Relations.parse(recipe):
        return found[1]
    return recipe.removeprefix(TEMPLATE) if recipe.startswith(TEMPLATE) else None


def candidate_side(settings: Settings, wanted: Settings, identity: Identity) -> Side:
    """The side that a cut-over to ``wanted`` would fill."""
    slug = slug_of(identity)
    index = settings.vector_index or name_for(ENTITY_VECTOR_INDEX_NAME, settings.queue)
    return Side(
        queue=queue_for(settings.queue, identity),
        index=f"{index}__{slug}",
        vector=f"{settings.entity_vector}__{slug}",
        provider=identity.provider,
        model=identity.model,
        dimensions=identity.dimensions,
        recipe=identity.recipe,
        template=wanted.entity_template,
    )
