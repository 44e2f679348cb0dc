"""Vectors as bytes: nothing is lost on the way, and what no index takes is recognised."""

import math

import pytest
from hypothesis import given, strategies as st

from embed_pipeline.domain.embedding import BYTES_IN_FLIGHT, RequestLimits
from embed_pipeline.domain.vector import (
    NOTHING,
    Vector,
    can_be_found,
    dimensions_of,
    mean_of,
    numbers_of,
    vector_of,
)

USUAL = st.floats(-1e6, 1e6, width=32, allow_subnormal=False)


@given(st.lists(st.floats(width=32, allow_nan=False)))
def test_numbers_come_back_as_they_were(numbers: list[float]) -> None:
    vector = vector_of(numbers)

    assert numbers_of(vector) == numbers
    assert dimensions_of(vector) == len(numbers)
    assert len(vector) == 4 * len(numbers)


@given(st.lists(USUAL, min_size=1, max_size=64))
def test_a_vector_of_usual_numbers_can_be_found_unless_it_is_zero(numbers: list[float]) -> None:
    # Numbers below 2^-99 count as zero; nobody embeds with them.
    is_zero = math.hypot(*numbers) < 1e-29

    assert can_be_found(vector_of(numbers)) is not is_zero


@given(st.lists(USUAL, max_size=64), st.sampled_from([math.nan, math.inf, -math.inf, 1e38, -3e38]))
def test_a_vector_with_one_number_that_is_none_cannot_be_found(
    numbers: list[float], bad: float
) -> None:
    assert not can_be_found(vector_of([*numbers, bad, *numbers]))


@pytest.mark.parametrize("numbers", [[0.0], [-0.0, 0.0], [1e-40] * 4, [1e-31, -1e-31]])
def test_a_vector_of_nothing_cannot_be_found(numbers: list[float]) -> None:
    assert not can_be_found(vector_of(numbers))
    assert not can_be_found(NOTHING)


@pytest.mark.parametrize("dimensions", [1, 4, 256, 1_536, 3_072, 4_096, 100_000])
def test_the_bytes_in_flight_are_bounded_whatever_the_dimensions(dimensions: int) -> None:
    limits = RequestLimits.for_dimensions(dimensions)

    assert limits.inputs_in_flight * len(Vector(bytes(4 * dimensions))) <= BYTES_IN_FLIGHT
    assert 1 <= limits.inputs <= 2_048
    assert limits.inputs_in_flight >= 2 * limits.inputs


def test_requests_are_as_large_as_the_provider_allows_up_to_3072_dimensions() -> None:
    assert RequestLimits.for_dimensions(3_072).inputs == 2_048


def test_m119_a_piece_weighs_as_many_tokens_as_it_has() -> None:
    page, three_words = vector_of([1.0, 0.0]), vector_of([0.0, 1.0])

    mean = mean_of([page, three_words], [400, 300])

    assert numbers_of(mean) == pytest.approx([0.8, 0.6])
    assert mean_of([three_words], [3]) == three_words
