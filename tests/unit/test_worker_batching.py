"""How texts are packed into requests; a pure function."""

from collections.abc import Sequence

from hypothesis import given, strategies

from embed_pipeline.domain.embedding import PreparedText, RequestLimits
from embed_pipeline.domain.errors import PermanentError
from embed_pipeline.domain.vector import vector_of
from embed_pipeline.worker.batching import (
    Answer,
    first_tokens,
    in_requests,
    pack,
    whole_answers,
)

LIMITS = RequestLimits(inputs=3, tokens=10, characters=20)


def text(tokens: int, characters: int = 1) -> PreparedText:
    return PreparedText("x" * characters, tokens=tokens)


def in_pieces(*tokens: int) -> PreparedText:
    pieces = tuple(text(count) for count in tokens)
    return PreparedText("x" * len(pieces), tokens=sum(tokens), pieces=pieces)


def sizes(texts: Sequence[PreparedText], limits: RequestLimits = LIMITS) -> list[list[int]]:
    return [[item.tokens for item in request] for request in pack(texts, limits, lambda t: t)]


def test_a_request_is_full_at_its_number_of_inputs() -> None:
    assert sizes([text(1) for _ in range(7)]) == [[1, 1, 1], [1, 1, 1], [1]]


def test_a_request_is_full_at_its_tokens_and_the_bound_itself_still_fits() -> None:
    assert sizes([text(4), text(6), text(1)]) == [[4, 6], [1]]


def test_a_request_is_full_at_its_characters() -> None:
    assert sizes([text(1, 15), text(2, 5), text(3, 1)]) == [[1, 2], [3]]


def test_a_text_in_pieces_counts_with_all_of_them() -> None:
    assert sizes([text(1), text(1), in_pieces(1, 1), text(1)]) == [[1, 1], [2, 1]]


def test_a_text_too_large_for_any_request_goes_alone() -> None:
    assert sizes([text(1), text(99), text(1)]) == [[1], [99], [1]]


def test_without_texts_there_is_no_request() -> None:
    assert sizes([]) == []


@given(
    strategies.lists(
        strategies.builds(text, strategies.integers(0, 12), strategies.integers(1, 25))
    )
)
def test_no_text_is_lost_or_moved_and_only_a_lone_one_exceeds_the_limits(
    texts: list[PreparedText],
) -> None:
    requests = pack(texts, LIMITS, lambda t: t)

    assert [item for request in requests for item in request] == texts
    for request in requests:
        assert request
        fits = (
            len(request) <= LIMITS.inputs
            and sum(item.tokens for item in request) <= LIMITS.tokens
            and sum(len(item.text) for item in request) <= LIMITS.characters
        )
        assert fits or len(request) == 1


def test_the_pieces_of_one_text_too_many_for_a_request_are_sent_in_several() -> None:
    whole = in_pieces(4, 4, 4)

    assert [[piece.tokens for piece in request] for request in in_requests([whole], LIMITS)] == [
        [4, 4],
        [4],
    ]
    assert first_tokens([whole], LIMITS) == 8


def test_a_text_misses_its_answer_if_one_of_its_pieces_does() -> None:
    one, two, three = (vector_of([number, 0.0]) for number in (1.0, 2.0, 3.0))
    refused = PermanentError("refused")

    answers: list[Answer] = whole_answers(
        [one, two, refused, three], [text(1), in_pieces(1, 1), text(1)]
    )

    assert answers == [(one,), refused, (three,)]
