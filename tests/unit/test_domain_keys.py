"""Keys and versions as clients write them."""

import pytest

from embed_pipeline.domain.job import NewJob
from embed_pipeline.domain.keys import (
    LARGEST_EXACT,
    KeyValue,
    Unfit,
    other_values_of,
    uid_of,
    values_of,
    version_of,
)

NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("key", "uid"),
    [
        ("ada", "ada"),
        (42, "42"),
        (42.0, "42"),
        (-1, "-1"),
        (-0.0, Unfit.KEY_NUMBER),
        (2**62, str(2**62)),
        (float(LARGEST_EXACT), str(LARGEST_EXACT)),
        (float(2**53), Unfit.KEY_NUMBER),
        (1.5, Unfit.KEY_NUMBER),
        (NAN, Unfit.KEY_NUMBER),
        (-INFINITY, Unfit.KEY_NUMBER),
        (True, Unfit.KEY_TYPE),
        (["ada"], Unfit.KEY_TYPE),
        ("", Unfit.KEY_EMPTY),
        (None, Unfit.KEY_MISSING),
        ("x" * 513, Unfit.KEY_LONG),
    ],
)
def test_m85_a_key_is_text_or_a_whole_number(key: object, uid: str | Unfit) -> None:
    assert uid_of(key) == uid


@pytest.mark.parametrize(
    ("value", "version"),
    [
        (None, 1),
        (3, 3),
        (3.0, 3),
        (0, 0),
        (-0.0, None),
        ("3", 3),
        ("v3", 1),
        ("", 1),
        ("-1", 1),
        ("\u0663", 1),
        ("9" * 16, 1),
        (-1, None),
        (-1.0, None),
        (1.5, None),
        (NAN, None),
        (INFINITY, None),
        (float(2**53), None),
        (True, None),
        ([1], None),
    ],
)
def test_r22_a_version_is_a_whole_number_in_whatever_type(
    value: object, version: int | None
) -> None:
    assert version_of(value) == version
    assert version is None or type(version_of(value)) is int


@pytest.mark.parametrize("key", ["ada", "42", "042", "-0", "9" * 30, 42, -1, 0, 2**62])
def test_every_key_is_found_by_its_uid(key: KeyValue) -> None:
    uid = uid_of(key)

    assert key in values_of(str(uid))
    assert key not in other_values_of(key, str(uid))


def test_a_text_and_a_number_may_be_keys_of_the_same_jobs() -> None:
    assert other_values_of("42", "42") == [42]
    assert other_values_of(42.0, "42") == ["42"]
    assert other_values_of("ada", "ada") == []


def test_r22_a_job_has_one_type_of_key_and_version() -> None:
    job = NewJob(42.0, "m", 3.0)  # pyright: ignore[reportArgumentType]

    assert job.key == ("42", "m", 3)
    assert [type(part) for part in job.key] == [str, str, int]
