"""Which sentence is shown beside a hit."""

from embed_pipeline.domain.text import (
    MOST_SENTENCES,
    nearest_sentence,
    sentence_by_words,
    sentences_of,
)
from embed_pipeline.domain.vector import vector_of

TEXT = "Name: C\nType: language\nObservations:\n- Has pointers. Is fast!\n- Unix was written in it"


def test_sentences_are_facts_without_the_headings_of_the_text() -> None:
    assert sentences_of(TEXT) == ["Has pointers.", "Is fast!", "Unix was written in it"]


def test_a_text_without_facts_has_no_sentence() -> None:
    assert sentences_of("Name: C\nType: language") == []
    assert nearest_sentence(vector_of([1.0, 0.0]), [], []) is None
    assert sentence_by_words("anything", []) is None


def test_of_a_long_text_only_the_beginning_is_looked_at() -> None:
    assert len(sentences_of("One. " * 10_000)) == MOST_SENTENCES


def test_the_nearest_sentence_is_that_of_the_nearest_vector() -> None:
    vectors = [vector_of(numbers) for numbers in ([0.0, 1.0], [0.8, 0.6], [0.6, 0.8])]

    assert nearest_sentence(vector_of([1.0, 0.0]), ["a", "b", "c"], vectors) == "b"


def test_without_vectors_words_decide() -> None:
    assert sentence_by_words("What was UNIX written in?", sentences_of(TEXT)) == (
        "Unix was written in it"
    )
