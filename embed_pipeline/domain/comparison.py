"""Models, lengths and templates side by side on the user's own graph: which one is worth its price?

Three measures of the same kind, each 1 for always, 0.5 for chance: an edge is nearer than a pair
without one; the other end of a relation is nearer to its words than other entities are; a text
without one of its sentences is nearer to that sentence than other texts are. Measured on the sample
graph, four draws: 0.84 for ``local``, 0.82 for ``local-fast``, 0.52 for mock vectors. Their mean
orders the models as 40 hand-made questions do; recall@5 alone did not, with 100 questions.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from embed_pipeline.domain.prices import Price
from embed_pipeline.domain.quality import FEWEST, Auc, Edge
from embed_pipeline.domain.text import LONGEST_SENTENCE, sentences_of

QUESTIONS: Final = 200
"""Of each kind, at most."""
K: Final = 5
"""A question is answered at once if its entity is among so many."""
AS_GOOD: Final = 0.02
"""What differs by less is not told apart by a sample of this size; as in a cut-over's gates."""


@dataclass(frozen=True, slots=True)
class Question:
    """A text, and the indexes of the entities that answer it."""

    text: str
    answers: frozenset[int]
    named: int | None = None
    """The entity that the question names, and which is therefore no answer."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The texts that one template makes of the sample, with and without the sentence asked for."""

    texts: Sequence[str]
    held_out: Mapping[int, str]
    tokens: int
    """Of all entities of the graph."""


@dataclass(frozen=True, slots=True)
class Exam:
    """What every contender is measured by: the same edges, pairs and questions."""

    edges: Sequence[Edge]
    non_edges: Sequence[Edge]
    relations: Sequence[Question]
    sentences: Sequence[Question]


@dataclass(frozen=True, slots=True)
class Contender:
    """A model, the length of its vectors, and the template of the text."""

    model: str
    dimensions: int
    price: Price
    template: str | None = None

    def __str__(self) -> str:
        name = f"{self.model}@{self.dimensions}"
        return name if self.template is None else f"{name} {self.template}"


@dataclass(frozen=True, slots=True)
class Answered:
    """How near the answers of questions are."""

    auc: Auc
    """How often the answer is nearer than an entity that is none."""
    recall: float
    """Share of the questions whose answer is among the nearest five."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The result of a contender, and the price of the whole graph with it."""

    contender: Contender
    edges: Auc | None
    relations: Answered | None
    sentences: Answered | None
    tokens: int
    """Of the whole graph."""

    @property
    def measures(self) -> list[Auc]:
        """The measures that are available."""
        answered = (self.relations, self.sentences)
        found = (self.edges, *(each and each.auc for each in answered))
        return [auc for auc in found if auc]

    @property
    def quality(self) -> float:
        """The mean of the measures."""
        return sum(auc.value for auc in self.measures) / len(self.measures)

    @property
    def margin(self) -> float:
        """Half the 95 % interval of the quality, as if the measures were independent."""
        halves = ((auc.high - auc.low) / 2 for auc in self.measures)
        return sum(half**2 for half in halves) ** 0.5 / len(self.measures)

    @property
    def usd(self) -> float | None:
        """What embedding the whole graph costs; None where no price is known."""
        return self.contender.price.usd(self.tokens)


def ranked(standings: Sequence[Standing]) -> list[Standing]:
    """The best first; of equals the cheaper one."""
    return sorted(standings, key=lambda each: (-each.quality, _cost(each)))


def choice(standings: Sequence[Standing]) -> Standing:
    """The cheapest contender that cannot be told from the best; among equals the best."""
    best = max(each.quality for each in standings)
    as_good = [each for each in standings if each.quality >= best - AS_GOOD]
    return min(as_good, key=lambda each: (_cost(each), -each.quality))


def _cost(standing: Standing) -> float:
    return float("inf") if standing.usd is None else standing.usd


def relation_questions(
    edges: Sequence[Edge], names: Sequence[str], dice: random.Random
) -> list[Question]:
    """One question per start and type of edges: the name, and the relation in words."""
    ends: dict[tuple[int, str], set[int]] = {}
    for edge in edges:
        ends.setdefault((edge.start, edge.type), set()).add(edge.end)
    asked = [
        Question(f"{names[start]} {_words(type_)}", frozenset(found), named=start)
        for (start, type_), found in ends.items()
    ]
    return _some(asked, dice)


def sentence_questions(texts: Sequence[str], dice: random.Random) -> list[Question]:
    """One sentence of each text that has others."""
    asked: list[Question] = []
    for place, text in enumerate(texts):
        # A longer one was cut, and its end would stay in the text.
        found = [
            sentence
            for sentence in sentences_of(text)
            if len(sentence) < LONGEST_SENTENCE and sentence in text
        ]
        if len(found) > 1:
            asked.append(Question(dice.choice(found), frozenset([place])))
    return _some(asked, dice)


def without_sentences(texts: Sequence[str], questions: Sequence[Question]) -> dict[int, str]:
    """The texts that are asked for, each without its sentence."""
    return {
        place: texts[place].replace(question.text, "")
        for question in questions
        for place in question.answers
    }


def _some(questions: list[Question], dice: random.Random) -> list[Question]:
    """A random draw; empty where a result would be chance."""
    if len(questions) < FEWEST:
        return []
    return dice.sample(questions, min(QUESTIONS, len(questions)))


def _words(relation: str) -> str:
    """A relationship type in words: ``WORKS_AT`` → "works at"."""
    words = relation.replace("_", " ")
    return words.lower() if words.isupper() else words
