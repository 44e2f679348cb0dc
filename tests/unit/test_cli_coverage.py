"""How the command line shows the coverage."""

from datetime import UTC, datetime, timedelta

import pytest

from embed_pipeline.cli.status import coverage_figures, coverage_line
from embed_pipeline.domain.coverage import Coverage, CoverageReport

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def report(current: int, missing: int, *, at: datetime | None = None) -> CoverageReport:
    counts = dict.fromkeys(Coverage, 0)
    counts |= {Coverage.CURRENT: current, Coverage.MISSING: missing, Coverage.UNEMBEDDABLE: 1}
    return CoverageReport("m", entities=current + missing + 1, counts=counts, at=at)


@pytest.mark.parametrize(
    ("current", "missing", "line"),
    [
        (323, 6, "98.2 % of 329 entities are current, 3 min ago (besides 1 not embeddable)"),
        (9_999, 1, "99.9 % of 10000 entities are current, 3 min ago (besides 1 not embeddable)"),
        (5, 0, "100.0 % of 5 entities are current, 3 min ago (besides 1 not embeddable)"),
    ],
)
def test_the_last_scan_is_shown_with_its_age(current: int, missing: int, line: str) -> None:
    last = report(current, missing, at=NOW - timedelta(minutes=3))

    assert coverage_line(last, NOW) == line


def test_a_scan_of_this_moment_is_shown_in_numbers() -> None:
    assert coverage_line(report(3, 1), NOW) == (
        "3 of 4 entities are current (besides 1 not embeddable)"
    )


def test_what_the_percentage_leaves_out_is_said() -> None:
    counts = dict.fromkeys(Coverage, 0)
    counts |= {Coverage.CURRENT: 2, Coverage.EMPTY_TEXT: 3, Coverage.FOREIGN: 4}

    kept = CoverageReport("m", entities=9, counts=counts, keeps_foreign=True)

    assert coverage_line(kept, NOW) == (
        "2 of 2 entities are current (besides 3 without text, 4 with a vector of others)"
    )


@pytest.mark.parametrize(
    ("empty", "at", "line"),
    [
        (0, None, "nothing to embed"),
        (3, None, "nothing to embed (3 without text)"),
        (3, NOW - timedelta(minutes=3), "nothing to embed (3 without text), 3 min ago"),
    ],
)
def test_nothing_is_no_perfect_percentage(empty: int, at: datetime | None, line: str) -> None:
    counts = {**dict.fromkeys(Coverage, 0), Coverage.EMPTY_TEXT: empty}

    assert coverage_line(CoverageReport("m", entities=empty, counts=counts, at=at), NOW) == line


def test_machines_get_all_figures() -> None:
    assert coverage_figures(report(3, 1), NOW) == {
        "current": 3,
        "missing": 1,
        "stale": 0,
        "wrong_model": 0,
        "foreign": 0,
        "empty_text": 0,
        "unembeddable": 1,
        "waiting": 0,
        "orphaned": 0,
        "in_pieces": 0,
        "pieces": 0,
        "neighbours_changed": 0,
        "percent": 75.0,
        "at": NOW,
    }
