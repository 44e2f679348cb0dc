"""What embedding costs, before anybody pays: the one way for asset, command line and API."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from embed_pipeline.domain.budget import Unit
from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.embedding import PieceSize, RequestLimits, TextSize
from embed_pipeline.domain.models import Provider
from embed_pipeline.domain.plan import Pace, Packing, Plan
from embed_pipeline.domain.text import render_for
from embed_pipeline.domain.words import exactly
from embed_pipeline.operations import wiring
from embed_pipeline.store.load import ANY_LENGTH, read_entities
from embed_pipeline.store.pieces import known_pieces
from embed_pipeline.store.scan import PAGE, Neo4jReconciler
from embed_pipeline.worker.batching import piece_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from embed_pipeline.domain.judging import Forced
    from embed_pipeline.domain.keys import KeyValue
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.queue import Queue

AT_MOST: Final = "entities that share a text are counted each; a text that has a vector is not sent"
PIECES: Final = "pieces that the graph has are not counted; those that texts share are counted each"
NO_RETRIES: Final = "nothing fails and nothing changes meanwhile"
ESTIMATED: Final = (
    "tokens are counted as OpenAI's models do; another server may count otherwise and charge so"
)


def text_measure(settings: Settings) -> Callable[[Mapping[str, Any]], TextSize]:
    """Split an entity's text as the worker does, and say what is sent of it."""
    from embed_pipeline.embedding.tokens import document_splitter, prepare

    shape, most = settings.entity_shape, request_limits(settings).tokens_per_input
    render = render_for(shape)
    split = document_splitter(shape, max_tokens=most)

    def measure(properties: Mapping[str, Any]) -> TextSize:
        text = render(properties)
        if not text.strip():
            return TextSize()
        prepared = split(text) if split else prepare(text, max_tokens=most)
        inputs = prepared.inputs
        pieces: tuple[PieceSize, ...] = ()
        if shape.pieces:
            pieces = tuple(PieceSize(piece_hash(x), x.tokens, len(x.text)) for x in inputs)
        return TextSize(prepared.tokens, len(inputs), len(prepared.text), pieces)

    return measure


async def make_plan(
    queue: Queue, settings: Settings, *, force: Forced | None = None, page_size: int = PAGE
) -> Plan:
    """Count what is to be embedded with the model of ``settings``; changes nothing.

    Reads all entities a page at a time, and keeps no more than a page.
    """
    config = replace(
        queue.config,
        identity=None,
        dimensions=settings.dimensions,
        measure=text_measure(settings),
    )
    reconciler = Neo4jReconciler(queue.database, config, settings.model)
    packing = Packing(request_limits(settings))
    kinds: Counter[Coverage] = Counter()
    entities, cursor = 0, ""
    while cursor is not None:
        page = await reconciler.page(after=cursor, limit=page_size, dry_run=True, force=force)
        kinds.update(page.wanted)
        sizes = page.sizes
        if force is None:
            sizes = await _without_known(queue, settings, sizes)
        packing.add(sizes)
        entities += page.scanned
        cursor: KeyValue | None = page.cursor
    return _plan(settings, packing, entities, {kind.value: kinds[kind] for kind in kinds})


async def plan_for_keys(queue: Queue, settings: Settings, keys: Sequence[str]) -> Plan:
    """Count what the entities with these keys take at most."""
    measure, packing = text_measure(settings), Packing(request_limits(settings))
    longest = RequestLimits().characters
    for start in range(0, len(keys), PAGE):
        page = sorted(set(keys[start : start + PAGE]))
        found = await queue.database.read(
            lambda tx, page=page: read_entities(tx, queue.config, page, longest=longest)
        )
        for uid in [uid for uid, entity in found.items() if entity.is_long]:
            found |= await queue.database.read(
                lambda tx, uid=uid: read_entities(tx, queue.config, [uid], longest=ANY_LENGTH)
            )
        packing.add(measure(entity.text) for entity in found.values() if entity.text is not None)
    return _plan(settings, packing, len(keys), {"named": packing.texts})


def question_about(plan: Plan, settings: Settings) -> str | None:
    """What to confirm before spending so much; None up to EMBED_CONFIRM_USD."""
    what = f"Embedding {plan.texts} texts with {plan.model}"
    return question_about_cost(what, usd=plan.usd, tokens=plan.tokens, settings=settings)


async def question_about_keys(queue: Queue, settings: Settings, keys: Sequence[str]) -> str | None:
    """What to confirm before entities are enqueued; reads them only if they could cost so much."""
    most = settings.price.usd(len(keys) * RequestLimits().tokens_per_input) or 0.0
    if most <= settings.confirm_usd:
        return None
    return question_about(await plan_for_keys(queue, settings, keys), settings)


async def question_about_force(
    queue: Queue, settings: Settings, force: Forced | None
) -> str | None:
    """What to confirm before current entities are embedded again."""
    if force is None or not settings.price.usd_per_million:
        return None
    return question_about(await make_plan(queue, settings, force=force), settings)


def question_about_cost(
    what: str, *, usd: float | None, tokens: int, settings: Settings
) -> str | None:
    """The same for any cost."""
    if usd is None or usd <= settings.confirm_usd:
        return None
    return (
        f"{what} costs up to {Unit.USD.shown(usd)} ({tokens:,} tokens), more than "
        f"EMBED_CONFIRM_USD, {settings.confirm_usd:g}. Go on?"
    )


def request_limits(settings: Settings) -> RequestLimits:
    """How much one request to the provider of these settings may hold."""
    limits = RequestLimits.for_dimensions(settings.dimensions)
    if settings.provider is Provider.OPENAI:
        limits = settings.profile.limits(settings.dimensions)
    if settings.provider is Provider.LOCAL:
        from embed_pipeline.embedding.local import SENTENCE_TOKENS

        limits = replace(limits, tokens=SENTENCE_TOKENS)
    return replace(limits, tokens=min(limits.tokens, settings.tokens_per_request or limits.tokens))


async def _without_known(
    queue: Queue, settings: Settings, sizes: Sequence[TextSize]
) -> list[TextSize]:
    hashes = [piece.text_hash for size in sizes for piece in size.pieces]
    known = await known_pieces(queue.database, hashes, settings.model, settings.dimensions)
    return [size.without(known) for size in sizes]


def _plan(settings: Settings, packing: Packing, entities: int, kinds: Mapping[str, int]) -> Plan:
    price = settings.price_of(packing.texts)
    limits = replace(wiring.rate_limits(settings), budget=replace(settings.budget, price=price))
    is_limited = settings.is_rate_limited or settings.tokens_per_minute is not None
    time = Pace(limits, is_limited).time_for(requests=packing.requests, tokens=packing.tokens)
    assumptions = [AT_MOST, NO_RETRIES]
    if settings.entity_shape.pieces:
        assumptions.insert(1, PIECES)
    if price.source:
        assumptions.append(f"a million tokens cost ${price.usd_per_million:g} ({price.source})")
    if settings.openai_base_url and not settings.provider.runs_here:
        assumptions.append(ESTIMATED)
    if time is not None:
        pace = f"{limits.requests} requests in {exactly(limits.interval)}"
        tokens = "" if limits.tokens is None else f" and {limits.tokens} tokens"
        assumptions.append(f"nothing else uses the limit of {pace}{tokens}")
    return Plan(
        model=settings.model,
        entities=entities,
        kinds=kinds,
        texts=packing.texts,
        pieces=packing.pieces,
        tokens=packing.tokens,
        requests=packing.requests,
        price=price,
        time=time,
        assumptions=tuple(assumptions),
    )
