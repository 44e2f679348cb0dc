"""What the report answers: every verdict, and what it rests on."""

from collections.abc import Mapping
from datetime import timedelta

import pandas as pd
import pytest

from embed_pipeline.report.answers import Answer, answers
from embed_pipeline.report.source import History, arrived, completed
from tests.support.history_sample import MODEL, NOW, failure, history, index_of, readings

CALM = {
    "pending": 0,
    "jobs": 10,
    "completed": 10,
    "completed_total": 10,
    "failed": 0,
    "oldest_pending_seconds": 0,
    "is_paused": 0,
    "is_breaker_open": 0,
}
LATE = CALM | {"pending": 50, "oldest_pending_seconds": 901}


def keeping_up(*rows: Mapping[str, float], now_later: timedelta = timedelta(0)) -> Answer:
    return answers(history(readings(*rows), now=NOW + now_later))[0]


def changes(found: History) -> list[str]:
    answer = answers(found)[-1]
    assert answer.question == "What should I change?"
    assert answer.is_good is not bool(answer.reasons)
    return list(answer.reasons)


@pytest.mark.parametrize(
    ("rows", "missed"),
    [
        ([LATE, CALM], "jobs have waited too long"),
        ([CALM | {"coverage_percent": 50.0}], "too few entities are current"),
        ([CALM | {"failed": 10}], "too many jobs have failed"),
    ],
)
def test_amber_when_an_objective_was_missed_though_all_is_well_now(
    rows: list[Mapping[str, float]], missed: str
) -> None:
    answer = keeping_up(*rows)

    assert answer.verdict.startswith(f"Yes, but {missed}: ")
    assert (answer.is_good, answer.is_amber) == (None, True)
    assert not keeping_up(CALM).is_amber


@pytest.mark.parametrize(
    ("rows", "verdict", "is_good"),
    [
        ([CALM], "Yes: 0 jobs completed, 0 waiting now.", True),
        ([CALM, CALM | {"completed_total": 11}], "Yes: 1 job completed, 0 waiting now.", True),
        (
            [CALM, CALM | {"pending": 5_000, "oldest_pending_seconds": 900}],
            "Yes: 0 jobs completed, 5,000 waiting now.",
            True,
        ),
        (
            [CALM, LATE],
            "No: 50 jobs wait, the oldest for 15 min; 15 min are allowed.",
            False,
        ),
        (
            [CALM, LATE | {"pending": 1, "oldest_pending_seconds": 36_000}],
            "No: 1 job waits, the oldest for 10 h; 15 min are allowed.",
            False,
        ),
        (
            [CALM, *[LATE | {"pending": 60}] * 2, LATE],
            "Not yet, but it is catching up: 50 jobs wait, 10 fewer than at 2030-01-08 11:59 UTC.",
            False,
        ),
        ([CALM, LATE | {"is_paused": 1}], "No: the queue is paused, and 50 jobs wait.", False),
        (
            [CALM, LATE | {"is_breaker_open": 1}],
            "No: the breaker is open, and 50 jobs wait.",
            False,
        ),
    ],
)
def test_whether_we_are_keeping_up(
    rows: list[dict[str, float]], verdict: str, is_good: bool
) -> None:
    answer = keeping_up(*rows)

    assert (answer.verdict, answer.is_good) == (verdict, is_good)


def test_an_empty_queue_at_the_beginning_does_not_excuse_a_late_one_now() -> None:
    assert keeping_up(CALM, CALM, LATE).is_good is False


def test_the_signs_know_pieces_and_neighbours() -> None:
    long = {"coverage_percent": 99.0, "entities_in_pieces": 4, "pieces": 1_200}
    changed = long | {"entities_neighbours_changed": 2_000}
    settled = long | {"entities_neighbours_changed": 0}

    reasons = keeping_up(CALM | changed, CALM | settled).reasons

    assert "Entities whose text is in pieces: 4, with 1,200 pieces." in reasons
    [of_neighbours] = [line for line in reasons if "neighbours" in line]
    assert "at most 2,000 at once" in of_neighbours
    assert not any("neighbours" in line for line in keeping_up(CALM | settled).reasons)


@pytest.mark.parametrize(
    ("later", "is_known"),
    [
        (timedelta(minutes=15), True),
        (timedelta(minutes=15, seconds=1), False),
    ],
)
def test_readings_that_have_stopped_say_nothing_about_now(later: timedelta, is_known: bool) -> None:
    answer = keeping_up(CALM, CALM, now_later=later)

    assert answer.is_good is is_known
    assert answer.verdict.startswith("Yes" if is_known else "Unknown")


def test_rare_readings_are_not_taken_for_stopped_ones() -> None:
    hourly = readings(CALM, CALM, step=timedelta(hours=1))

    [answer, *_] = answers(history(hourly, now=NOW + timedelta(hours=5)))

    assert answer.is_good is True


def test_the_signs_say_what_came_what_was_done_and_how_long_it_took() -> None:
    covered = {"coverage_percent": 97.25, "entities_empty_text": 3}
    answer = keeping_up(
        CALM | covered,
        LATE | covered | {"jobs": 60},
        CALM | covered | {"jobs": 60, "completed_total": 60},
    )

    assert answer.reasons == (
        "50 jobs arrived, 50 completed.",
        "The longest wait was 15 min; 15 min are allowed.",
        "The queue was last empty at 2030-01-08 12:00 UTC.",
        "97.2 % of the entities are current; 95 % are wanted.",
        "Entities without text, which have no vector and do not count: 3.",
    )


@pytest.mark.parametrize(("entities", "is_nothing"), [(3, True), (4, False)])
def test_nothing_is_no_perfect_percentage(entities: int, is_nothing: bool) -> None:
    covered = {"coverage_percent": 100.0, "entities": entities, "entities_empty_text": 3}

    reasons = " ".join(keeping_up(CALM | covered).reasons)

    assert ("There is nothing to embed." in reasons) is is_nothing
    assert ("100.0 %" in reasons) is not is_nothing


def test_a_job_that_was_opened_and_completed_again_counts_twice() -> None:
    window = {"window_seconds": 60}
    frame = readings(
        CALM | window | {"completed_in_window": 10},
        CALM | window | {"completed_in_window": 3, "revived_total": 3},
        CALM | window | {"completed_in_window": 0, "revived_total": 3, "completed_total": 14},
    ).fillna(0)

    assert completed(frame) == 3 + 4
    assert arrived(frame) == 3


@pytest.mark.parametrize(("seconds", "counted"), [(30, 3 + 3), (60, 6 + 6), (120, 6 + 6)])
def test_a_window_counts_once_where_readings_overlap_and_no_more_where_they_are_late(
    seconds: int, counted: float
) -> None:
    row = CALM | {"window_seconds": 60, "completed_in_window": 6}

    frame = readings(row, row, row, step=timedelta(seconds=seconds))

    assert completed(frame) == counted


def test_clean_up_and_a_new_installation_do_not_take_from_the_sums() -> None:
    frame = readings(
        CALM | {"deleted_completed_total": 0},
        CALM | {"deleted_completed_total": 4, "jobs": 6},
        CALM | {"deleted_completed_total": 0, "jobs": 0, "completed_total": 0},
        CALM | {"deleted_completed_total": 0, "jobs": 2, "completed_total": 1},
    )

    assert (arrived(frame), completed(frame)) == (2, 1)


@pytest.mark.parametrize(
    ("failed", "verdict", "is_good"),
    [
        (0, "Nothing.", True),
        (1, "1 job, by 1 kind of error.", True),
        (3, "3 jobs, by 2 kinds of error.", False),
    ],
)
def test_what_fails_and_whether_that_is_allowed(failed: int, verdict: str, is_good: bool) -> None:
    metrics = readings(CALM | {"failed": failed, "completed": 100 - failed})
    kinds = [failure(count=failed - 1), failure(category="TRANSIENT")] if failed > 1 else []
    failures = kinds or [failure()] * failed

    answer = answers(history(metrics, failures=failures))[1]

    assert (answer.question, answer.verdict, answer.is_good) == ("What fails?", verdict, is_good)


def test_what_it_cost_is_told_by_tokens_and_the_price_of_the_model() -> None:
    spent = {
        "tokens_total": 2_500_000,
        "cost_usd_total": 0.05,
        "requests_total": 50,
        "cache_hits_total": 1,
    }
    metrics = readings(CALM | dict.fromkeys(spent, 0), CALM | spent)

    answer = answers(history(metrics))[2]

    assert (answer.verdict, answer.is_good) == ("$0.0500", None)
    assert answer.reasons[:2] == (
        "50 requests, 2,500,000 tokens.",
        "1 text had been embedded before and cost nothing.",
    )


def test_m110_a_used_budget_is_why_nobody_keeps_up() -> None:
    answer = keeping_up(LATE | {"budget_used_percent": 101})

    assert answer.verdict.startswith(
        "No: the budget is used, it goes on with the next day or month"
    )


@pytest.mark.parametrize(
    ("auc", "words", "is_good"), [(0.85, 0.7, True), (0.55, 0.7, False), (0.5, 0.5, None)]
)
def test_m111_the_quality_of_the_vectors_is_answered(
    auc: float, words: float, is_good: bool | None
) -> None:
    figures = {"quality_auc": auc, "quality_auc_low": auc, "quality_auc_of_words": words}

    [answer] = [
        one
        for one in answers(history(readings(CALM, CALM | figures)))
        if one.question == "Are the vectors good?"
    ]

    assert (answer.is_good, answer.verdict) == (
        is_good,
        f"An edge is nearer than a pair without one in {100 * auc:.0f} % of the cases.",
    )


def test_an_unknown_price_is_not_called_free() -> None:
    sent = CALM | {"cost_usd_total": 0}
    metrics = readings(sent | {"tokens_total": 0}, sent | {"tokens_total": 9})

    answer = answers(history(metrics, model="house-model"))[2]

    assert answer.verdict == "No price is known for house-model."


def test_tokens_of_another_model_are_mentioned() -> None:
    drains = pd.DataFrame({"model": ["text-embedding-3-large", MODEL]}, index=index_of([NOW, NOW]))

    answer = answers(history(readings(CALM, CALM), drains))[2]

    assert "Drains also used text-embedding-3-large, " in answer.reasons[-1]


LIMITED = {"requests_limited_total": 0, "requests_total": 0}


@pytest.mark.parametrize(
    ("before", "after", "advice"),
    [
        ({"recovered_total": 1}, {"recovered_total": 3}, "2 leases had to be taken from silent"),
        ({"fenced_total": 0}, {"fenced_total": 1}, "EMBED_JOB_LOCK_DURATION_MS"),
        ({"heartbeats_failed_total": 0}, {"heartbeats_failed_total": 2}, "2 heartbeats failed"),
        ({"is_breaker_open": 1}, {}, "The breaker was open for about 30 s"),
        (
            LIMITED,
            {"requests_limited_total": 6, "requests_total": 100},
            "The provider refused 6 % of the requests",
        ),
        ({}, {"coverage_percent": 94, "entities_waiting": 0}, "'embed-pipeline reconcile'"),
    ],
)
def test_what_to_change(before: dict[str, float], after: dict[str, float], advice: str) -> None:
    [only] = changes(history(readings(CALM | before, CALM | after)))

    assert advice in only


def test_the_advice_says_what_the_coverage_leaves_out() -> None:
    without = {"entities_empty_text": 1_234, "entities_unembeddable": 2}
    low = {"coverage_percent": 94, "entities_waiting": 0}

    [only] = changes(history(readings(CALM, CALM | low | without)))

    assert only.startswith(
        "94.0 % of the entities are current (besides 1,234 without text, 2 not embeddable), 95 %"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {}),
        ({"recovered_total": 3}, {"recovered_total": 3}),
        (LIMITED, {"requests_limited_total": 5, "requests_total": 100}),
        ({}, {"coverage_percent": 95, "entities_waiting": 0}),
        ({}, {"coverage_percent": 10, "entities_waiting": 1}),
    ],
)
def test_nothing_is_to_be_changed_where_all_is_well(
    before: dict[str, float], after: dict[str, float]
) -> None:
    assert changes(history(readings(CALM | before, CALM | after))) == []


@pytest.mark.parametrize(
    ("waiting", "age", "is_advised"), [(21, 901, True), (20, 901, False), (21, 900, False)]
)
def test_a_higher_limit_is_advised_only_where_the_limit_makes_jobs_late(
    waiting: float, age: float, is_advised: bool
) -> None:
    metrics = readings(CALM | {"oldest_pending_seconds": age}, CALM)
    drains = pd.DataFrame({"seconds": [100.0], "seconds_waiting": [waiting]}, index=index_of([NOW]))

    text = " ".join(changes(history(metrics, drains)))

    assert ("raise EMBEDDING_RATE_LIMIT_TOKENS" in text) is is_advised


def test_failed_jobs_are_to_be_looked_through() -> None:
    found = history(readings(CALM), failures=[failure()])

    assert "retry_failed_jobs" in changes(found)[0]


def test_the_most_urgent_advice_comes_first() -> None:
    worst = CALM | {"is_breaker_open": 1, "recovered_total": 5}
    found = history(readings(CALM | {"recovered_total": 0}, worst), failures=[failure()])

    first, second, third = changes(found)

    assert first.startswith("The breaker")
    assert second.startswith("5 leases")
    assert third.startswith("Look through the failed jobs")
