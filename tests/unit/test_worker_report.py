"""What a drain says about attempts that failed."""

import pytest

from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.results import FailureOutcome
from embed_pipeline.worker.report import MOST_KINDS, DrainReport, Ending

TRANSIENT, PERMANENT = ErrorCategory.TRANSIENT, ErrorCategory.PERMANENT
FAILED, RETRY = FailureOutcome.FAILED, FailureOutcome.RETRY


@pytest.fixture
def report() -> DrainReport:
    return DrainReport(owner="o", model="m", ending=Ending.EMPTY)


def test_errors_that_differ_only_in_numbers_are_one_kind(report: DrainReport) -> None:
    report.note_error(TRANSIENT, "timed out after 3 s", RETRY)
    for seconds in (4, 5):
        report.note_error(PERMANENT, f"too long: {seconds} tokens", FAILED)

    assert [str(kind) for kind in report.errors] == [
        "2 PERMANENT: too long: 4 tokens",
        "1 TRANSIENT: timed out after 3 s",
    ]


def test_a_new_message_for_every_text_does_not_fill_the_report(report: DrainReport) -> None:
    for number in range(500):
        report.note_error(PERMANENT, "no " + "x" * number, FAILED)

    assert len(report.errors) == MOST_KINDS + 1
    assert sum(kind.count for kind in report.errors) == 500
    assert str(report.errors[0]) == f"{500 - MOST_KINDS} PERMANENT: other errors"


def test_an_example_holds_no_secret_and_no_line_break(report: DrainReport) -> None:
    report.note_error(TRANSIENT, "Bearer abcdefghij\n\x1b[2J is refused", RETRY)

    assert str(report.errors[0]) == r"1 TRANSIENT: Bearer ***\n\x1b[2J is refused"


@pytest.mark.parametrize(
    ("completed", "failed", "retried", "ending", "is_fault"),
    [
        (0, 2, 0, Ending.EMPTY, True),
        (0, 0, 2, Ending.EMPTY, True),
        (0, 1, 1, Ending.BUDGET, True),
        (1, 2, 0, Ending.EMPTY, False),
        (0, 0, 0, Ending.EMPTY, False),
        (0, 2, 0, Ending.STOPPED, False),
    ],
)
def test_a_drain_in_which_everything_failed_is_one_that_somebody_must_look_after(
    report: DrainReport, completed: int, failed: int, retried: int, ending: Ending, is_fault: bool
) -> None:
    report.completed, report.retried, report.ending = completed, retried, ending
    report.failed[PERMANENT] = failed
    report.note_error(PERMANENT, "refused", FAILED)

    said = f"completed nothing: {failed} failed, {retried} to be tried again (1 PERMANENT: refused)"
    assert (report.fault is not None) is is_fault
    assert said in (report.fault or said)
