"""What a move writes on a job; pure functions, for every move and every state."""

import json
from typing import Any

import pytest

from embed_pipeline.domain.errors import ErrorCategory, TransitionRefusedError
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.lifecycle import MOVES, Move
from embed_pipeline.store.moves import (
    HISTORY_LENGTH,
    NO_LANE,
    NO_LOCK,
    Change,
    ErrorNote,
    back_to_pending,
    cancelled,
    ended,
    lane,
    promoted,
    reopened,
)

NOW = 1_000_000
JOB: dict[str, Any] = {
    "id": "job-1",
    "status": "processing",
    "priority": 3,
    "queued_at": NOW - 5_000,
    "attempts": 2,
    "max_attempts": 3,
    "expiries": 0,
    "fence": 7,
    "lock_owner": "run-1/a",
}
FAILED = {**JOB, "status": "failed", "lock_owner": None, "processed_at": NOW - 10}
DOWN = ErrorNote(ErrorCategory.TRANSIENT, "the provider is down", "stack")


def lanes_of(change: Change) -> set[str]:
    return {name for name in NO_LANE if change.properties[name] is not None}


@pytest.mark.parametrize("status", JobStatus)
@pytest.mark.parametrize("move", [move for move in Move if move in MOVES])
def test_a_move_that_the_table_does_not_have_is_refused(move: Move, status: JobStatus) -> None:
    job = {**JOB, "status": status.value}
    sources, target = MOVES[move]

    if status in sources:
        assert ended(job, move, now=NOW).after is target
    else:
        with pytest.raises(TransitionRefusedError, match=f"job-1 is {status}"):
            ended(job, move, now=NOW)


def test_a_released_job_is_unlocked_refunded_and_back_in_its_place() -> None:
    change = back_to_pending(JOB, Move.RELEASE, now=NOW, is_refunded=True, settled_as="release")

    assert change.properties.items() >= NO_LOCK.items()
    assert change.properties["attempts"] == 1
    assert (change.properties["ready_at"], change.properties["urgency"]) == (NOW - 5_000, -3)
    assert (change.properties["settled_fence"], change.properties["settled_as"]) == (7, "release")
    assert lanes_of(change) == {"ready_at", "urgency"}


def test_a_retry_keeps_the_attempt_and_waits_in_the_lane_of_the_delayed() -> None:
    change = back_to_pending(JOB, Move.RETRY, now=NOW, delay_ms=500, note=DOWN)

    assert change.properties["attempts"] == 2
    assert change.properties["run_after"] == NOW + 500
    assert lanes_of(change) == {"run_after"}
    assert change.properties["error"] == "the provider is down"


def test_a_job_whose_lease_expired_is_a_suspect() -> None:
    change = back_to_pending(JOB, Move.RECOVER, now=NOW, is_expired=True)

    assert change.properties["expiries"] == 1
    assert lanes_of(change) == {"suspect_at"}


def test_an_ended_job_has_no_lock_and_remembers_its_owner() -> None:
    change = cancelled(JOB, now=NOW, by="ada", reason="")

    assert change.row["properties"]["status"] == "cancelled"
    assert change.properties.items() >= NO_LOCK.items()
    assert change.properties["last_owner"] == "run-1/a"
    assert (change.properties["cancelled_by"], change.properties["error"]) == ("ada", None)
    assert change.properties["processed_at"] == NOW


def test_the_history_of_errors_keeps_the_latest() -> None:
    job = {**JOB, "error_history": [json.dumps({"message": str(n)}) for n in range(20)]}

    history = back_to_pending(job, Move.RETRY, now=NOW, note=DOWN).properties["error_history"]

    assert len(history) == HISTORY_LENGTH
    assert json.loads(history[-1]) == {
        "at": NOW,
        "attempt": 2,
        "category": "TRANSIENT",
        "message": "the provider is down",
        "owner": "run-1/a",
    }


def test_a_retried_job_starts_afresh_and_keeps_its_error_in_the_history() -> None:
    job = {**FAILED, "error": "refused", "error_category": "PERMANENT", "expiries": 2}

    change = reopened(job, Move.RETRY_FAILED, now=NOW)

    assert change.after is JobStatus.PENDING
    assert (change.properties["attempts"], change.properties["expiries"]) == (0, 0)
    assert change.properties["error"] is None
    assert [json.loads(entry)["message"] for entry in change.properties["error_history"]] == [
        "refused"
    ]
    assert lanes_of(change) == {"ready_at", "urgency"}
    assert "fence" not in change.properties


def test_a_changed_text_has_no_errors_and_never_a_lower_priority() -> None:
    job = {**FAILED, "status": "completed", "error": "old"}

    change = reopened(job, Move.REVIVE, now=NOW, priority=1, text_hash="new")

    assert change.properties["error_history"] is None
    assert change.properties["priority"] == 3
    assert change.properties["text_hash"] == "new"


def test_what_was_put_off_is_due_once_it_is_promoted() -> None:
    job = {**JOB, "status": "pending", "attempts": 0, "put_off": True, "run_after": NOW + 900}

    assert promoted(job, now=NOW, priority=5)["run_after"] is None
    assert promoted({**job, "put_off": None}, now=NOW, priority=5)["run_after"] == NOW + 900


@pytest.mark.parametrize("expiries", [0, 1])
@pytest.mark.parametrize("run_after", [None, NOW - 1, NOW, NOW + 1])
def test_a_pending_job_is_in_exactly_one_lane(expiries: int, run_after: int | None) -> None:
    place = lane(priority=2, queued_at=NOW - 1, expiries=expiries, run_after=run_after, now=NOW)

    if run_after is not None and run_after > NOW:
        wanted = {"run_after"}
    else:
        wanted = {"suspect_at"} if expiries else {"ready_at", "urgency"}
    assert {name for name, value in place.items() if value is not None} == wanted
    assert place.keys() == NO_LANE.keys()
