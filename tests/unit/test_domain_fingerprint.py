"""Messages of one kind have one fingerprint."""

import pytest

from embed_pipeline.domain.errors import LONGEST, fingerprint


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("maximum is 8191 tokens, got 9000", "maximum is 8191 tokens, got 12,345"),
        (
            "job 7f1c5b9e-0000-4000-8000-000000000001 lost",
            "job 7f1c5b9e-ffff-4fff-8fff-ffffffffffff lost",
        ),
        ("no entity 'ada'", "no entity 'grace hopper'"),
        ('bad input "ada"', 'bad input "grace"'),
        ("see req_abc123", "see req_9f8e7d"),
        ("object at 0x7f3a", "object at 0xdeadbeef"),
        ("timed  out\nafter 3.5 s ", "timed out after 30 s"),
    ],
)
def test_what_varies_makes_no_difference(one: str, other: str) -> None:
    assert one != other
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("the model is not known", "the key is refused"),
        ("can't read, it doesn't answer", "can't write, it doesn't answer"),
    ],
)
def test_other_errors_have_another_fingerprint(one: str, other: str) -> None:
    assert fingerprint(one) != fingerprint(other)


def test_it_can_be_read_and_is_short() -> None:
    assert fingerprint("maximum is 8191 tokens for 'ada'") == "maximum is <n> tokens for <text>"
    assert fingerprint("") == ""
    assert len(fingerprint("word " * 1_000)) == LONGEST
