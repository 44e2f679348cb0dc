"""Plan and quality on a real graph: what is counted is what is charged, and samples are fair."""

import json
import random
import re
from dataclasses import replace
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.judging import Forced
from embed_pipeline.domain.pieces import Pieces
from embed_pipeline.domain.plan import Plan
from embed_pipeline.domain.prices import Price
from embed_pipeline.domain.quality_check import follows_the_graph
from embed_pipeline.embedding.tokens import prepare
from embed_pipeline.operations import planning
from embed_pipeline.operations.following import settings_for_model
from embed_pipeline.operations.grading import grade
from embed_pipeline.operations.measuring import measure
from embed_pipeline.settings import Settings
from embed_pipeline.settings.entities import pieces_settings
from embed_pipeline.store.plans import last_plan, save_plan
from embed_pipeline.store.quality import last_quality, sample_edges, save_quality
from embed_pipeline.worker.report import DrainReport
from tests.acceptance.drain.conftest import provider, queue, running_provider
from tests.support.drain_harness import DrainUnderTest
from tests.support.openai_server import KEY, vectors
from tests.support.queue_harness import MODEL, pages_of

__all__ = ("provider", "queue", "running_provider")

TEXTS = 300


def settings_for(model: str = MODEL, **given: Any) -> Settings:
    return Settings(
        _env_file=None,  # pyright: ignore[reportCallIssue]
        **{
            "EMBED_JOB_RETENTION_DAYS": 14,
            "EMBEDDING_PROVIDER": "openai",
            "EMBEDDING_MODEL": model,
            "EMBEDDING_DIMENSIONS": 4,
            "OPENAI_API_KEY": "k",
            "EMBEDDING_PRICE_USD_PER_MILLION": 1_000.0,
            **given,
        },
    )


async def given_texts(queue: DrainUnderTest, count: int) -> None:
    await queue.run(
        """
        UNWIND range(1, $count) AS n
        CREATE (:Entity {name: 'e' + n, entityType: 'test', version: 1,
          observations: [reduce(text = '', word IN range(0, n % 40) | text + ' größe' + word)]})
        """,
        count=count,
    )


def charge(body: dict[str, Any]) -> Response:
    said = json.loads(bytes(vectors(body).body))
    tokens = sum(prepare(text, max_tokens=8191).tokens for text in body["input"])
    return JSONResponse(said | {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}})


@pytest.mark.parametrize("count", [TEXTS, pytest.param(10_000, marks=pytest.mark.proof)])
async def test_m107_m108_what_is_planned_is_charged(queue: DrainUnderTest, count: int) -> None:
    await given_texts(queue, count)
    settings = settings_for()
    queue.provider.answer_with = charge
    queue.price = settings.price

    plan = await planning.make_plan(queue.queue, settings, page_size=100)
    await save_plan(queue.queue, plan)
    await pages_of(queue.queue.reconciler(MODEL), limit=100)
    report = await queue.drained()
    planned = await last_plan(queue.queue, MODEL)
    after = await planning.make_plan(queue.queue, settings)

    assert (plan.entities, plan.texts, plan.kinds) == (count, count, {"missing": count})
    assert report.tokens == pytest.approx(plan.tokens, rel=0.01)
    assert plan.usd == pytest.approx(plan.tokens / 1_000)
    assert report.requests == pytest.approx(plan.requests, abs=1 + plan.requests // 10)
    assert planned is not None
    assert (planned.tokens, planned.charged_tokens) == (plan.tokens, report.tokens)
    assert planned.charged_usd == pytest.approx(report.cost_usd)
    assert planned.percent == pytest.approx(100, abs=1)
    assert (after.texts, after.tokens, after.kinds) == (0, 0, {})
    assert plan.time is not None
    assert any("a million tokens cost $1000" in assumed for assumed in plan.assumptions)


PARAGRAPHS = [f"Paragraph {n} tells of topic {n}, which no other mentions." for n in range(60)]


async def charged(queue: DrainUnderTest, settings: Settings) -> tuple[Plan, DrainReport, int]:
    """Plan, scan and drain; with the inputs that the provider was sent."""
    plan = await planning.make_plan(queue.queue, settings, page_size=7)
    queue.provider.requests.clear()
    await pages_of(queue.queue.reconciler(MODEL), limit=100)
    report = await queue.drained()
    return plan, report, sum(len(request["input"]) for request in queue.provider.requests)


@pytest.mark.parametrize("pieces", [None, Pieces(tokens=32), Pieces(tokens=16, most=20)])
async def test_m108_pieces_are_planned_as_they_are_charged(
    queue: DrainUnderTest, pieces: Pieces | None
) -> None:
    queue = replace(queue, shape=EntityShape(pieces=pieces))
    await queue.install()
    queue.provider.answer_with = charge
    settings = settings_for(**pieces_settings(pieces))
    if pieces is None:
        # Far more than 8,191 tokens: the mean of two pieces or three.
        await queue.put_entity("long", "\n\n".join(PARAGRAPHS * 20))
    for number in range(12):
        said = [f"{number}: {paragraph}" for paragraph in PARAGRAPHS[: 5 * number + 1]]
        await queue.put_entity(f"e{number}", "\n\n".join(said))

    plan, report, inputs = await charged(queue, settings)
    edited = [f"11: {paragraph}" for paragraph in PARAGRAPHS[:56]]
    await queue.put_entity("e11", "\n\n".join([*edited[:20], "Another one.", *edited[21:]]))
    change, second, again = await charged(queue, settings)
    whole = await planning.plan_for_keys(queue.queue, settings, ["e11"])

    assert report.tokens == pytest.approx(plan.tokens, rel=0.01)
    assert (plan.pieces, plan.pieces > plan.texts) == (inputs, True)
    assert second.tokens == pytest.approx(change.tokens, rel=0.01)
    assert change.pieces == again
    assert (change.tokens < whole.tokens / 4) == (pieces == Pieces(tokens=32))


async def test_m107_a_plan_for_a_model_that_is_not_set_and_for_all_again(
    queue: DrainUnderTest,
) -> None:
    await given_texts(queue, 20)
    settings = settings_for()
    await pages_of(queue.queue.reconciler(MODEL), limit=100)
    await queue.drained()
    large = settings_for_model(
        settings_for(EMBEDDING_PRICE_USD_PER_MILLION=None), "text-embedding-3-large"
    )

    other = await planning.make_plan(queue.queue, large)
    again = await planning.make_plan(queue.queue, settings, force=Forced())
    local = await planning.make_plan(queue.queue, settings_for_model(settings, "wordllama-256"))

    assert (other.model, other.kinds) == ("text-embedding-3-large", {"wrong_model": 20})
    assert other.price.usd_per_million == 0.13
    assert other.price.source.startswith("genai-prices")
    assert (again.texts, again.kinds, again.tokens) == (20, {"current": 20}, other.tokens)
    assert local.time is None
    assert await last_plan(queue.queue, "text-embedding-3-large") is None


async def test_named_entities_are_planned_and_much_money_is_asked_for(
    queue: DrainUnderTest,
) -> None:
    await given_texts(queue, 20)
    settings = settings_for()

    plan = await planning.plan_for_keys(queue.queue, settings, ["e1", "e2", "nobody"])
    all_of_them = await planning.make_plan(queue.queue, settings)

    assert plan.texts == 2
    assert 0 < plan.tokens < all_of_them.tokens
    question = planning.question_about(all_of_them, replace_confirm(0.01))
    assert question is not None
    assert "EMBED_CONFIRM_USD" in question
    assert planning.question_about(all_of_them, replace_confirm(1_000)) is None
    unknown = replace(all_of_them, price=Price())
    assert planning.question_about(unknown, replace_confirm(0)) is None


def replace_confirm(usd: float) -> Settings:
    return settings_for(EMBED_CONFIRM_USD=usd)


async def test_m111_edges_and_pairs_of_the_same_degrees_are_sampled_and_kept(
    queue: DrainUnderTest,
) -> None:
    # Two groups: those of one are joined in a circle, and have the same direction.
    await queue.run(
        """
        UNWIND range(0, 99) AS n
        CREATE (:Entity {name: 'e' + n, entityType: 't', version: 1, observations: ['text' + n],
          embedding: CASE WHEN n < 50 THEN [1.0, 0.0, n / 1000.0, 0.0]
                     ELSE [0.0, 1.0, 0.0, n / 1000.0] END,
          embedding_model: $model, embedding_hash: 'h' + n})
        """,
        model=MODEL,
    )
    await queue.run(
        """
        UNWIND range(0, 99) AS n UNWIND range(1, 2) AS step
        MATCH (a:Entity {name: 'e' + n})
        MATCH (b:Entity {name: 'e' + (CASE WHEN n < 50 THEN (n + step) % 50
          ELSE 50 + (n + step) % 50 END)})
        CREATE (a)-[:NEAR]->(b) CREATE (a)-[:MADE_BY_VECTORS]->(b)
        """
    )

    every = measure(MODEL, await sample_edges(queue.queue, MODEL))
    found = measure(MODEL, await sample_edges(queue.queue, MODEL, left_out=["MADE_BY_VECTORS"]))
    for _ in range(3):
        await save_quality(queue.queue, found)
    kept = await last_quality(queue.queue, MODEL)

    assert {*every.types} == {"NEAR", "MADE_BY_VECTORS"}
    assert {*found.types} == {"NEAR"}
    assert found.auc is not None
    assert found.auc.edges == 200
    assert found.auc.value > 0.9
    assert kept is not None
    assert (kept.auc, kept.types) == (found.auc, found.types)
    assert kept.earlier == (found.auc.value, found.auc.value)


@pytest.mark.parametrize("pieces", [None, Pieces(tokens=32)], ids=["mean", "nodes"])
async def test_m114_drift_is_measured_of_texts_in_pieces_too(
    queue: DrainUnderTest, pieces: Pieces | None
) -> None:
    queue = replace(queue, shape=EntityShape(pieces=pieces))
    await queue.install()
    provider = {"OPENAI_BASE_URL": queue.provider.base_url, "OPENAI_API_KEY": KEY}
    settings = settings_for(**provider, **pieces_settings(pieces))
    queue.provider.answer_with = lambda body: vectors(body, of_text=lambda x: by_words(x)[:4])
    # Without nodes it takes more than 8,191 tokens to have pieces.
    await queue.put_entity("ada", "\n\n".join(PARAGRAPHS * (20 if pieces is None else 1)))
    await pages_of(queue.queue.reconciler(MODEL), limit=100)
    await queue.drained()
    assert ((await queue.job("ada")).pieces or 0) > 1

    same = await grade(queue.queue, settings)
    queue.provider.answer_with = lambda body: vectors(body, of_text=lambda x: by_words(x)[4:8])
    other = await grade(queue.queue, settings)

    assert same.drift == pytest.approx(1, abs=1e-6)
    assert other.drift is not None
    assert other.drift < 0.9


PAIRED = "{name}: {observations}\n{relations}"


def by_words(text: str) -> list[float]:
    """Texts that share words are near each other."""
    words = set(re.findall(r"\w+", text))
    dice = [random.Random(word) for word in sorted(words)]
    return [sum(die.gauss(0, 1) for die in dice) for _ in range(64)]


async def given_pairs(queue: DrainUnderTest, topic: str) -> DrainUnderTest:
    """Sixty pairs of entities that name each other; what else they say is ``topic``."""
    queue.provider.answer_with = lambda body: vectors(body, of_text=by_words)
    await queue.run(
        """
        UNWIND range(0, 59) AS n
        CREATE (:Entity {name: 'a' + n, observations: [replace($topic, '?', 'a') + n]})
          -[:NEAR]->(:Entity {name: 'b' + n, observations: [replace($topic, '?', 'b') + n]})
        """,
        topic=topic,
    )
    related = replace(queue, shape=EntityShape(template=PAIRED))
    for way, text in (("a", "near b"), ("b", "near")):
        for n in range(60):
            said = f"{way}{n}: {topic.replace('?', way)}{n}\n"
            said += f"near b{n}" if way == "a" else f"a{n} {text}"
            await queue.run(
                "MATCH (e:Entity {name: $name}) SET e.embedding = $vector,"
                " e.embedding_model = $model, e.embedding_hash = e.name",
                name=f"{way}{n}",
                vector=by_words(said),
                model=MODEL,
            )
    return related


def related_settings(queue: DrainUnderTest, **given: Any) -> Settings:
    return settings_for(
        OPENAI_BASE_URL=queue.provider.base_url,
        OPENAI_API_KEY=KEY,
        EMBEDDING_DIMENSIONS=64,
        EMBED_ENTITY_TEMPLATE=PAIRED,
        **given,
    )


async def test_m111_an_edge_that_is_in_the_texts_is_left_out_of_them(
    queue: DrainUnderTest,
) -> None:
    # What the two of a pair say has nothing in common but their names.
    related = await given_pairs(queue, "only?")

    stored = measure(MODEL, await sample_edges(related.queue, MODEL))
    found = await grade(related.queue, related_settings(related))

    assert stored.auc is not None
    assert found.auc is not None
    assert stored.auc.value > 0.95
    assert found.auc.value < 0.7
    assert (found.words or 0.0) < 0.7 < (stored.words or 0.0)
    assert (found.auc.edges, found.vectors) == (60, 120)


async def test_m112_damage_of_stored_vectors_is_seen_through_the_edges_that_are_left_out(
    queue: DrainUnderTest,
) -> None:
    related = await given_pairs(queue, "topic")
    good = await grade(related.queue, related_settings(related))
    await queue.run(
        """
        MATCH (e:Entity) WITH e ORDER BY left(e.name, 1), toInteger(substring(e.name, 1))
        WITH collect(e) AS all, collect(e.embedding) AS vectors
        UNWIND range(0, 59) AS n
        WITH all[n] AS entity, vectors[(n + 1) % 60] AS vector SET entity.embedding = vector
        """
    )

    swapped = await grade(related.queue, related_settings(related))
    withheld = await grade(related.queue, related_settings(related, EMBED_BUDGET_TOKENS_PER_DAY=1))

    assert good.auc is not None
    assert swapped.auc is not None
    assert good.auc.value > 0.95
    assert swapped.auc.value < 0.7
    assert (withheld.auc, withheld.is_withheld) == (None, True)
    assert "limit, budget or provider" in follows_the_graph(withheld).message
