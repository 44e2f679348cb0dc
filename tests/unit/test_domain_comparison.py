"""A comparison of models: fair questions, an order, and a choice that does not waste money."""

import random

import pytest

from embed_pipeline.domain.comparison import (
    Answered,
    Contender,
    Question,
    Standing,
    choice,
    ranked,
    relation_questions,
    sentence_questions,
    without_sentences,
)
from embed_pipeline.domain.prices import FREE, UNKNOWN, Price
from embed_pipeline.domain.quality import FEWEST, Auc, Edge
from embed_pipeline.operations.measuring import answered
from embed_pipeline.report.comparison import drawn

DICE = random.Random(7)
TOKENS = 1_000_000


def standing(model: str, value: float, price: Price = FREE) -> Standing:
    auc = Auc(value, value - 0.01, value + 0.01, 400)
    return Standing(Contender(model, 4, price), auc, Answered(auc, 0.3), None, TOKENS)


CHEAP = standing("cheap", 0.80, Price(1.0))
DEAR = standing("dear", 0.81, Price(9.0))
POOR = standing("poor", 0.60)
SECRET = standing("secret", 0.82, UNKNOWN)


def test_the_best_comes_first_and_the_choice_is_the_cheapest_that_is_as_good() -> None:
    assert ranked([POOR, CHEAP, DEAR]) == [DEAR, CHEAP, POOR]
    assert choice([POOR, CHEAP, DEAR]) is CHEAP
    assert choice([POOR, DEAR, SECRET]) is DEAR
    assert (CHEAP.usd, DEAR.usd, POOR.usd, SECRET.usd) == (1.0, 9.0, 0.0, None)


def test_what_could_not_be_measured_does_not_count() -> None:
    assert CHEAP.quality == pytest.approx(0.8)
    assert CHEAP.margin == pytest.approx(0.01 / 2**0.5)
    only = Standing(CHEAP.contender, None, CHEAP.relations, None, TOKENS)
    assert (only.quality, only.margin) == (pytest.approx(0.8), pytest.approx(0.01))


def test_a_relation_is_asked_once_with_all_its_answers() -> None:
    names = [f"e{number}" for number in range(FEWEST + 2)]
    edges = [Edge(number, number + 1, "WORKS_AT") for number in range(FEWEST)]
    edges.append(Edge(0, 5, "WORKS_AT"))

    asked = {question.text: question for question in relation_questions(edges, names, DICE)}

    assert len(asked) == FEWEST
    assert asked["e0 works at"] == Question("e0 works at", frozenset({1, 5}), named=0)
    assert relation_questions(edges[:5], names, DICE) == []


def test_a_sentence_is_asked_of_the_text_that_has_lost_it() -> None:
    texts = [f"Name: e{n}\nObservations:\n- First {n}.\n- Second {n}." for n in range(FEWEST)]

    asked = sentence_questions([*texts, "Name: alone\nObservations:\n- Only."], DICE)
    left = without_sentences(texts, asked)

    assert {place for question in asked for place in question.answers} == set(range(FEWEST))
    for question in asked:
        [place] = question.answers
        assert question.text in texts[place]
        assert question.text not in left[place]
        assert left[place].startswith(f"Name: e{place}\n")


def test_the_nearest_answer_counts_and_what_is_named_does_not() -> None:
    texts = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [-1.0, 0.0]]
    questions = [
        Question("right", frozenset({1}), named=0),
        Question("one of two", frozenset({0, 3})),
        Question("wrong", frozenset({3})),
    ]

    found = answered([[1.0, 0.0]] * 3, texts, questions)

    assert found.auc.value == pytest.approx((1 + 1 + 0) / 3)
    assert found.auc.low < found.auc.value < found.auc.high
    assert found.recall == 1.0


def test_the_picture_escapes_names_and_shows_what_is_not_known() -> None:
    picture = drawn([standing("<b>", 0.9), SECRET], SECRET)

    assert "&lt;b&gt;@4" in picture
    assert "price unknown" in picture
    assert picture.count('class="best"') == 1
