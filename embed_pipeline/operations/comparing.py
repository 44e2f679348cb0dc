"""The bake-off: several models, lengths and templates on a sample of the user's own graph.

``prepare`` draws the sample and counts what asking costs; ``compare`` embeds it, and keeps nothing.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from embed_pipeline.domain.comparison import (
    Contender,
    Exam,
    Recipe,
    Standing,
    ranked,
    relation_questions,
    sentence_questions,
    without_sentences,
)
from embed_pipeline.domain.embedding import RequestLimits
from embed_pipeline.domain.errors import EmbeddingError, EmbedPipelineError
from embed_pipeline.domain.judging import Forced
from embed_pipeline.domain.quality import FEWEST, Sample
from embed_pipeline.domain.vector import numbers_of
from embed_pipeline.embedding import tokens
from embed_pipeline.operations import wiring
from embed_pipeline.operations.following import settings_for_model
from embed_pipeline.operations.measuring import answered, measure
from embed_pipeline.operations.planning import make_plan, request_limits
from embed_pipeline.operations.requests import OnWait, send_counted, wait_for_grant
from embed_pipeline.settings import Settings
from embed_pipeline.settings.load import changed
from embed_pipeline.store.quality import sample_texts
from embed_pipeline.store.queue import Queue
from embed_pipeline.worker.batching import judge_answer, pack

DICE: Final = random.Random()  # noqa: S311 - chooses questions, guards nothing


@dataclass(frozen=True, slots=True)
class Entrant:
    """A contender with its settings and the texts of its template."""

    settings: Settings
    recipe: Recipe
    tokens: int
    """Of the sample and the questions."""

    @property
    def contender(self) -> Contender:
        """Its name, vector length and price."""
        own = self.settings
        return Contender(own.model, own.dimensions, own.price, own.entity_template)

    @property
    def usd(self) -> float | None:
        """The cost of embedding the sample with it; None if no price is known."""
        return self.settings.price.usd(self.tokens)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A sample and its contenders."""

    exam: Exam
    entrants: Sequence[Entrant]

    @property
    def tokens(self) -> int:
        """The tokens of all contenders."""
        return sum(entrant.tokens for entrant in self.entrants)

    @property
    def usd(self) -> float:
        """The cost of all contenders with a known price."""
        return sum(entrant.usd or 0.0 for entrant in self.entrants)


async def prepare(
    queue: Queue,
    settings: Settings,
    *,
    models: Sequence[str],
    templates: Sequence[str] = (),
    dice: random.Random = DICE,
) -> Comparison:
    """Draw a sample of the graph, and count what it takes; asks no provider, changes nothing.

    Raises:
        ConfigurationError: a model or template cannot be.
        EmbedPipelineError: the graph has too few edges to judge by.
    """
    recipes = [changed(settings, {"EMBED_ENTITY_TEMPLATE": text}) for text in templates]
    recipes = recipes or [settings]
    # Before anything is read: a mistyped name should not wait for the graph.
    chosen = [[settings_for_model(recipe, model) for model in models] for recipe in recipes]
    names, texts, edges, non_edges = await sample_texts(
        queue, [recipe.entity_shape for recipe in recipes], left_out=settings.quality_left_out
    )
    if min(len(edges), len(non_edges)) < FEWEST:
        raise EmbedPipelineError(
            f"there are fewer than {FEWEST} edges between entities with a text: a comparison is "
            "judged by them. EMBED_QUALITY_LEAVE_OUT may leave out too many"
        )
    exam = Exam(
        edges,
        non_edges,
        relation_questions(edges, names, dice),
        sentence_questions(texts[0], dice),
    )
    entrants: list[Entrant] = []
    for recipe, own_texts, own in zip(recipes, texts, chosen, strict=True):
        beside = wiring.queue_on(queue.database.driver, recipe)
        # All entities, also those that fit: another model would have to embed them.
        whole = await make_plan(beside, recipe, force=Forced())
        held_out = without_sentences(own_texts, exam.sentences)
        made = Recipe(own_texts, held_out, whole.tokens)
        entrants += [
            Entrant(each, made, _tokens(each, _documents(made), _questions(exam))) for each in own
        ]
    return Comparison(exam, entrants)


async def compare(
    queue: Queue,
    comparison: Comparison,
    *,
    on_wait: OnWait = lambda _: None,
    on_next: Callable[[Contender], None] = lambda _: None,
) -> list[Standing]:
    """Embed the sample with every contender, the best first; no vector is stored.

    Requests count against limit and budget.

    Raises:
        EmbeddingError: a provider did not embed the sample, or no more may be spent for now.
    """
    standings: list[Standing] = []
    for entrant in comparison.entrants:
        on_next(entrant.contender)
        standings.append(await _standing(queue, entrant, comparison.exam, on_wait))
    return ranked(standings)


async def _standing(queue: Queue, entrant: Entrant, exam: Exam, on_wait: OnWait) -> Standing:
    recipe = entrant.recipe
    vectors = await _embedded(queue, entrant.settings, _documents(recipe), on_wait)
    asked = await _embedded(queue, entrant.settings, _questions(exam), on_wait, are_questions=True)
    texts = [vectors[text] for text in recipe.texts]
    held_out = [
        vectors[recipe.held_out.get(place, text)] for place, text in enumerate(recipe.texts)
    ]
    sample = Sample(texts, recipe.texts, recipe.texts, exam.edges, exam.non_edges)
    found = [
        answered([asked[question.text] for question in questions], among, questions)
        if questions
        else None
        for questions, among in ((exam.relations, texts), (exam.sentences, held_out))
    ]
    model = entrant.settings.model
    return Standing(entrant.contender, measure(model, sample).auc, *found, tokens=recipe.tokens)


def _documents(recipe: Recipe) -> list[str]:
    """The distinct texts of entities."""
    return list(dict.fromkeys([*recipe.texts, *recipe.held_out.values()]))


def _questions(exam: Exam) -> list[str]:
    """The distinct questions."""
    return list(dict.fromkeys(x.text for x in (*exam.relations, *exam.sentences)))


def _tokens(settings: Settings, texts: Sequence[str], questions: Sequence[str]) -> int:
    most, prefixes = RequestLimits().tokens_per_input, _prefixes(settings)
    return sum(
        tokens.prepare(text, max_tokens=most, prefix=prefix).tokens
        for own, prefix in zip((texts, questions), prefixes, strict=True)
        for text in own
    )


def _prefixes(settings: Settings) -> tuple[str, str]:
    """What the model wants before a text, and before a question."""
    return settings.document_prefix, settings.question_prefix


async def _embedded(
    queue: Queue,
    settings: Settings,
    texts: Sequence[str],
    on_wait: OnWait,
    *,
    are_questions: bool = False,
) -> dict[str, list[float]]:
    embedder = wiring.open_embedder(settings, for_questions=are_questions)
    limiter = wiring.open_limiter(queue, settings)
    most, prefix = embedder.limits.tokens_per_input, _prefixes(settings)[are_questions]
    found: list[list[float]] = []
    try:
        prepared = [tokens.prepare(text, max_tokens=most, prefix=prefix) for text in texts]
        for request in pack(prepared, request_limits(settings), lambda text: text):
            counted = sum(text.tokens for text in request)
            await wait_for_grant(limiter, tokens=counted, on_wait=on_wait)
            vectors = await send_counted(queue, settings, embedder, limiter, request)
            for judged in judge_answer(
                vectors, expected=len(request), dimensions=embedder.dimensions
            ):
                if isinstance(judged, EmbeddingError):
                    raise judged
                found.append(numbers_of(judged))
    finally:
        await embedder.close()
    return dict(zip(texts, found, strict=True))
