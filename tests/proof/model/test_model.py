"""TLC looks at every state that the lease protocol can reach, with its guards and without each."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import pytest

from embed_pipeline.domain.lifecycle import TRANSITIONS
from tests.proof.model.tlc import FOLDER, Model, Verdict, check

# Two minutes of computing, which a busy machine stretches.
pytestmark = pytest.mark.timeout(1_200)

GUARDED: dict[str, tuple[dict[str, str], int]] = {
    # Two changes of the entity meet one fault.
    "changes": ({}, 150_000),
    # One change meets a pause beyond the lease and one other fault.
    "pauses": ({"Changes": "1", "Pauses": "1", "Paths": '{"enqueue"}'}, 20_000),
    # What is said of neighbours changes, too, and only the scan notices.
    "neighbours": ({"LastVersion": "1", "Paths": '{"enqueue", "neighbour"}'}, 1_000),
}
"""Constants that differ from the configuration, and how many states there must be at least."""
SAMPLE = {"pauses", "the_fence", "a_lock_before_the_write", "the_text_check", "recovery"}
"""What is checked at every change; the rest takes two minutes of computing, for ``make proof``."""


def rarely(names: Iterable[str]) -> list[Any]:
    return [
        name if name in SAMPLE else pytest.param(name, marks=pytest.mark.proof) for name in names
    ]


SMALL = {"LastVersion": "1", "Changes": "1", "Pauses": "1"}

MUTANTS: dict[str, tuple[dict[str, str], str]] = {
    "the_fence": ({"Identity": '"status"', "Pauses": "1"}, "StaleChangesNothing"),
    # A worker and its restarted twin have one name.
    "a_fence_but_the_owner": ({"Identity": '"owner"', "Pauses": "1"}, "StaleChangesNothing"),
    "any_condition": ({"Identity": '"id"'}, "AppliedOnce"),
    "a_lock_before_the_lease": ({"Unlocked": '{"worker"}'}, "OneHolder"),
    "a_lock_before_the_write": ({"Unlocked": '{"worker"}'}, "FencesRise"),
    "a_second_look_at_expiry": ({"Unlocked": '{"recovery"}', "Pauses": "1"}, "LiveLeaseStays"),
    "a_second_look_at_status": ({"Unlocked": '{"recovery"}', "Pauses": "1"}, "CompletedStays"),
    "a_lock_before_cancelling": ({"Unlocked": '{"operator"}'}, "OnlyKnownMoves"),
    "a_lock_before_reopening": (
        {"Unlocked": '{"operator"}', "Changes": "1", "Faults": "2"},
        "LocksAreWhole",
    ),
    "the_version_check": ({"ChecksVersion": "FALSE"}, "VectorNeverOlder"),
    "the_text_check": ({"ChecksText": "FALSE"}, "VectorFitsWhenWritten"),
    "the_lock_of_the_entity": ({"LocksEntity": "FALSE"}, "VectorMatchesText"),
    "one_transaction_for_vector_and_status": ({"IsAtomic": "FALSE"}, "VectorWithCompletion"),
    "a_receipt": ({"Receipt": '"none"'}, "RepeatIsRecognised"),
    "a_receipt_of_its_own": ({"Receipt": '"status"', "Pauses": "1"}, "RepeatIsRecognised"),
    "the_refund": ({"Refunds": "FALSE"}, "AttemptsAreHonest"),
    "the_refund_of_many_releases": (
        {"Refunds": "FALSE", "Changes": "0", "Faults": "2"},
        "AttemptsBound",
    ),
    "counting_at_the_lease": (
        {"CountsAtLease": "FALSE", "Poison": "TRUE", "Changes": "0", "Faults": "0"},
        "TriesBound",
    ),
    "recovery": ({"Recovers": "FALSE"}, "NothingIsForgotten"),
    "the_scan": ({"Scans": "FALSE"}, "NothingIsForgotten"),
    "the_scan_of_neighbours": (
        {**SMALL, "Scans": "FALSE", "Paths": '{"neighbour"}'},
        "NothingIsForgotten",
    ),
    "a_note_of_the_moved_text": (
        {"NotesMoves": "FALSE", "Changes": "1", "Paths": '{"enqueue"}'},
        "FailedWithThisText",
    ),
}
"""What is taken away, and the promise that breaks."""


def lease_model(
    constants: Mapping[str, str], *, promise: str | None = None, is_fair: bool = False
) -> Model:
    return Model("Promises", "EmbedLease.cfg", constants, promise, is_fair)


def suspects_model(constants: Mapping[str, str], *, promise: str | None = None) -> Model:
    return Model("EmbedSuspects", "EmbedSuspects.cfg", constants, promise)


@cache
def everything_small() -> Verdict:
    """A run of the small model that also says what happened in it."""
    return check(lease_model(SMALL), coverage=True)


def actions_of_next() -> set[str]:
    text = (FOLDER / "EmbedLease.tla").read_text()
    bodies = re.findall(r"^(?:Work\(w\)|Next) ==\n(.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    names = {name for body in bodies for name in re.findall(r"\b[A-Z][a-z]\w+", body)}
    return names - {"Work", "Jobs", "Workers", "Paths", "Processes", "Kills", "TRANSIENT", "Look"}


@pytest.mark.parametrize("name", rarely(GUARDED))
def test_the_protocol_keeps_every_promise_in_every_state(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    constants, floor = GUARDED[name]

    verdict = check(lease_model(constants), workers=2)

    record_property("states", verdict.distinct)
    sys.stdout.write(f"{name}: {verdict.summary}\n")
    assert verdict.broken is None
    assert verdict.distinct > floor


def test_the_model_makes_exactly_the_moves_that_the_code_allows() -> None:
    printed = re.findall(r'^<<"(\w+)", "(\w+)">>$', everything_small().output, re.MULTILINE)

    assert set(printed) == TRANSITIONS


def test_every_action_of_the_model_happens() -> None:
    output = everything_small().output

    happened = re.findall(r"^<(\w+) line .*>: \d+:[1-9]\d*$", output, re.MULTILINE)
    assert actions_of_next() <= set(happened)


@pytest.mark.parametrize("guard", rarely(MUTANTS))
def test_a_model_without_a_guard_is_refuted(guard: str) -> None:
    constants, promise = MUTANTS[guard]

    assert check(lease_model(constants, promise=promise)).broken == promise


def test_every_promise_is_broken_by_some_mutant() -> None:
    promises = set(re.findall(r"^    (\w+)$", lease_model({}).text, re.MULTILINE))

    assert promises - {"TypesHold"} <= {promise for _, promise in MUTANTS.values()}


@pytest.mark.proof
def test_every_job_ends_and_every_entity_gets_its_vector() -> None:
    verdict = check(lease_model(SMALL, promise="EventuallyWell", is_fair=True))

    assert verdict.broken is None
    assert verdict.distinct > 10_000


@pytest.mark.proof
def test_without_recovery_a_job_waits_for_ever() -> None:
    model = lease_model(SMALL | {"Recovers": "FALSE"}, promise="EventuallyWell", is_fair=True)

    assert check(model).broken == "EventuallyWell"


@pytest.mark.proof
def test_a_job_that_kills_all_its_workers_ends_failed() -> None:
    poison = {"Poison": "TRUE", "Changes": "0", "Faults": "0", "Pauses": "1"}

    assert check(lease_model(poison, promise="PoisonEndsFailed", is_fair=True)).broken is None


@pytest.mark.proof
@pytest.mark.parametrize(
    ("pauses", "broken"),
    [
        pytest.param("0", None, id="holds_without_pauses"),
        # Counted at the lease: recovery cannot know that a paused worker has tried nothing.
        pytest.param("2", "FailedWasTried", id="breaks_when_workers_pause_as_often_as_they_may"),
    ],
)
def test_a_job_that_was_never_tried_does_not_fail(pauses: str, broken: str | None) -> None:
    model = lease_model({"Changes": "0", "Pauses": pauses}, promise="FailedWasTried")

    assert check(model).broken == broken


@pytest.mark.proof
@pytest.mark.parametrize(
    ("path", "broken"),
    [
        pytest.param("enqueue", None, id="holds_for_enqueued_jobs"),
        # The trigger leaves leased jobs alone, and its jobs do not say which text they are for.
        pytest.param("trigger", "FailedWithThisText", id="breaks_for_jobs_of_the_trigger"),
    ],
)
def test_a_failed_job_has_failed_with_the_text_of_today(path: str, broken: str | None) -> None:
    constants = SMALL | {"Pauses": "0", "Paths": f'{{"{path}"}}'}
    model = lease_model(constants, promise="FailedWithThisText")

    assert check(model).broken == broken


def test_a_poison_job_fails_nobody_else_and_everybody_ends() -> None:
    verdict = check(suspects_model({}))

    assert verdict.broken is None
    assert verdict.distinct > 1_000


@pytest.mark.parametrize(
    ("guard", "promise"),
    [
        ("LastIsAlone", "InnocentNeverFails"),
        ("StaysAlone", "InnocentNeverFails"),
        ("GivesBack", "NobodyFailsInCompany"),
        ("IsolatesSuspects", "OnlySuspectsShare"),
    ],
)
def test_suspects_in_company_let_others_pay(guard: str, promise: str) -> None:
    model = suspects_model({guard: "FALSE"}, promise=promise)

    assert check(model).broken == promise
