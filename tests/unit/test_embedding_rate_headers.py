"""What the headers of an answer say is left, and that nonsense says nothing."""

from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from embed_pipeline.domain.holds import Allowance, Left
from embed_pipeline.embedding.rate_headers import allowance_of


def headers(remaining: str, reset: str, limit: str = "500") -> dict[str, str]:
    return {
        "x-ratelimit-limit-requests": limit,
        "x-ratelimit-remaining-requests": remaining,
        "x-ratelimit-reset-requests": reset,
    }


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("1s", 1), ("6m0s", 360), ("20ms", 0.02), ("1h2m3.5s", 3723.5), ("12", 12), ("0s", 0)],
)
def test_m87_what_is_left_is_read_as_openai_writes_it(said: str, seconds: float) -> None:
    found = allowance_of(headers("7", said))

    assert found == Allowance(Left(7, timedelta(seconds=seconds), 500))


def test_tokens_are_read_apart_from_requests() -> None:
    found = allowance_of(
        {"x-ratelimit-remaining-tokens": "149984", "x-ratelimit-reset-tokens": "6ms"}
    )

    assert found == Allowance(tokens=Left(149_984, timedelta(milliseconds=6)))


@pytest.mark.parametrize("said", ["", "soon", "-1s", "1e9s", "2024-01-27T02:03:04Z", "9" * 400])
def test_nonsense_says_nothing(said: str) -> None:
    assert allowance_of(headers("7", said)) is None
    assert allowance_of(headers(said, "1s")) is None
    assert allowance_of({}) is None


@given(st.dictionaries(st.sampled_from(sorted(headers("", ""))), st.text()))
def test_no_header_makes_it_stumble(given_headers: dict[str, str]) -> None:
    allowance_of(given_headers)


@pytest.mark.parametrize(
    ("left", "limit", "is_scarce"), [(99, 500, True), (100, 500, False), (9_999, None, True)]
)
def test_only_what_is_scarce_is_told(left: int, limit: int | None, is_scarce: bool) -> None:
    allowance = Allowance(Left(left, timedelta(seconds=1), limit))

    assert allowance.is_scarce(requests=4, tokens=0) is is_scarce


@pytest.mark.parametrize(("at_once", "is_scarce"), [(100, False), (101, True)])
def test_too_little_for_what_is_sent_at_once_is_told_too(at_once: int, is_scarce: bool) -> None:
    left = Left(100, timedelta(seconds=1), 500)

    assert Allowance(requests=left).is_scarce(requests=at_once, tokens=0) is is_scarce
    assert Allowance(tokens=left).is_scarce(requests=4, tokens=at_once) is is_scarce
