"""What may be done to a cut-over in which phase, and what the gates say."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from embed_pipeline.domain.coverage import Coverage, CoverageReport
from embed_pipeline.domain.cutover import (
    Alias,
    IndexUse,
    Phase,
    Side,
    coverage_gate,
    lengths_gate,
    mock_gate,
    quality_gate,
    questions_gate,
    queue_for,
    slug_of,
    why_not_to_finish,
)
from embed_pipeline.domain.errors import CutoverError
from embed_pipeline.domain.quality import Auc, Quality
from embed_pipeline.domain.queue_name import checked_queue_name

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
OLD = Side("default", "entity_embeddings", "embedding", "local", "use-multilingual-3", 512, "r")
NEW = replace(OLD, queue="cut_1", index="new", vector="embedding__new", provider="openai")
LIVE = Alias("default", NEW, epoch=2, since=NOW - 2 * HOUR, other=OLD, phase=Phase.LIVE)


def covered(current: int, *, missing: int = 0, lengths: dict[int, int]) -> CoverageReport:
    counts = {**dict.fromkeys(Coverage, 0), Coverage.CURRENT: current, Coverage.MISSING: missing}
    return CoverageReport("m", entities=current + missing, counts=counts, dimensions=lengths)


def test_m104_an_index_that_somebody_has_read_within_the_grace_stays() -> None:
    quiet = why_not_to_finish(LIVE, now=NOW, last_read=IndexUse("i", LIVE.since), grace=HOUR)
    never = why_not_to_finish(LIVE, now=NOW, last_read=None, grace=HOUR)
    lately = NOW - timedelta(minutes=10)
    own = IndexUse(OLD.index, lately)
    read = why_not_to_finish(LIVE, now=NOW, last_read=own, grace=HOUR)
    of_pieces = why_not_to_finish(LIVE, now=NOW, last_read=IndexUse("chunks", lately), grace=HOUR)
    just_flipped = why_not_to_finish(
        replace(LIVE, since=NOW - timedelta(seconds=5)), now=NOW, last_read=None, grace=HOUR
    )

    assert (quiet, never) == (None, None)
    assert "index entity_embeddings was read 10 min ago" in str(read)
    assert "the live index new" in str(read)
    assert "index chunks was read 10 min ago" in str(of_pieces)
    assert "of the pieces of openai" in str(of_pieces)
    assert "--force" in str(read)
    assert "was live 5 s ago" in str(just_flipped)


def test_what_has_begun_to_be_removed_is_removed() -> None:
    alias = replace(LIVE, phase=Phase.FINISHING)

    assert why_not_to_finish(alias, now=NOW, last_read=IndexUse("i", NOW), grace=HOUR) is None
    assert alias.kept_fresh == (NEW,)
    for step in (alias.candidate, alias.former):
        with pytest.raises(CutoverError, match="repeat 'embed-pipeline cutover finish'"):
            step()


def test_m100_coverage_has_its_bound_at_99_9_percent() -> None:
    assert coverage_gate(covered(999, missing=1, lengths={})).passed
    red = coverage_gate(covered(998, missing=2, lengths={}))
    assert (red.passed, red.figures["embedded"], red.figures["embeddable"]) == (False, 998, 1000)
    assert not coverage_gate(None).passed


def test_the_coverage_gate_says_what_its_percentage_leaves_out() -> None:
    counts = {**dict.fromkeys(Coverage, 0), Coverage.CURRENT: 3, Coverage.EMPTY_TEXT: 2}
    most = CoverageReport("m", entities=5, counts=counts)
    none = CoverageReport("m", entities=2, counts={**counts, Coverage.CURRENT: 0})

    assert coverage_gate(most).detail == (
        "100.00 % of 3 entities, 99.9 % are needed (besides 2 without text)"
    )
    assert coverage_gate(none).detail == "nothing to embed (2 without text)"
    assert coverage_gate(none).passed


def test_m100_other_lengths_and_mock_vectors_are_red() -> None:
    assert lengths_gate(covered(2, lengths={512: 2}), 512).passed
    assert lengths_gate(covered(2, lengths={512: 1, 3: 1}), 512).detail == "1 of 3 instead of 512"
    assert mock_gate(OLD, covered(1, lengths={})).passed
    assert not mock_gate(replace(OLD, provider="mock"), None).passed


@pytest.mark.parametrize(("candidate", "passed"), [(0.9, True), (0.88, True), (0.87, False)])
def test_m100_questions_may_be_answered_a_little_worse(candidate: float, passed: bool) -> None:
    assert questions_gate(0.9, candidate, count=50, k=5).passed is passed


def test_another_identity_has_other_names() -> None:
    other = replace(OLD, recipe="another").identity

    assert slug_of(OLD.identity) != slug_of(other)
    assert queue_for("default", OLD.identity) != queue_for("default", other)
    assert queue_for("default", OLD.identity) != queue_for("acme", OLD.identity)
    assert checked_queue_name(queue_for("a" * 31, OLD.identity))


@pytest.mark.parametrize(
    ("live", "candidate", "words", "passed"),
    [
        (0.85, 0.83, 0.7, True),
        (0.85, 0.82, 0.7, False),
        (0.55, 0.51, 0.5, True),
        (0.55, 0.51, 0.7, False),
        (0.85, None, 0.7, True),
    ],
)
def test_m100_m113_quality_may_be_a_little_worse_and_is_no_gate_without_a_signal(
    live: float, candidate: float | None, words: float, passed: bool
) -> None:
    before, after = (
        Quality("m", None if value is None else Auc(value, value, value, 400), words=words)
        for value in (live, candidate)
    )

    gate = quality_gate(before, after)

    assert gate.passed is passed
    assert ("nothing is said" in gate.detail) == (candidate is None)
    assert ("no signal" in gate.detail) == (words < 0.6)
