"""The rules of the queue, without any database."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from embed_pipeline.domain.breaker import Breaker, BreakerStatus, allowed_jobs, opened, pause_after
from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.errors import ConfigurationError, ErrorCategory
from embed_pipeline.domain.fairness import (
    SUSPECTS_AT_ONCE,
    Lane,
    group_of,
    slots_for_oldest,
    suspects_first,
)
from embed_pipeline.domain.job import JobStatus, run_id_of
from embed_pipeline.domain.judging import EntityReading, classify
from embed_pipeline.domain.keys import Unfit
from embed_pipeline.domain.lifecycle import (
    MOVES,
    GiveBack,
    GiveUp,
    Move,
    Retry,
    RetryPolicy,
    after_failure,
)
from embed_pipeline.domain.redact import redact
from embed_pipeline.domain.text import memento_text, read_observations, text_hash

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def test_every_move_has_its_place_in_the_table() -> None:
    assert set(MOVES) == set(Move)
    assert all(after not in sources for sources, after in MOVES.values())


@given(st.integers(1, 200), st.floats(0, 1))
def test_backoff_grows_up_to_its_cap(attempts: int, roll: float) -> None:
    policy = RetryPolicy()

    delay = policy.delay(attempts, roll)

    assert policy.base * (1 - policy.jitter) <= delay <= policy.cap
    assert delay <= policy.delay(attempts + 1, 0)


@pytest.mark.parametrize(
    ("category", "attempts", "is_pinned", "decision"),
    [
        (ErrorCategory.TRANSIENT, 1, False, Retry(timedelta(seconds=5))),
        (ErrorCategory.TRANSIENT, 2, False, Retry(timedelta(seconds=10))),
        (ErrorCategory.TRANSIENT, 3, False, GiveUp()),
        (ErrorCategory.PERMANENT, 1, False, GiveUp()),
        (ErrorCategory.CRITICAL, 3, False, GiveBack()),
        (ErrorCategory.CRITICAL, 1, True, GiveUp()),
    ],
)
def test_what_a_failure_leads_to(
    category: ErrorCategory, attempts: int, is_pinned: bool, decision: object
) -> None:
    assert decision == after_failure(
        category,
        attempts=attempts,
        max_attempts=3,
        policy=RetryPolicy(),
        roll=0.0,
        is_pinned=is_pinned,
    )


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40))
def test_one_slot_in_ten_goes_to_the_oldest(limits: list[int]) -> None:
    slots = oldest = 0
    for limit in limits:
        oldest += slots_for_oldest(slots, limit)
        slots += limit

    assert oldest == slots // 10


@given(lasts=st.lists(st.booleans(), max_size=200), limit=st.integers(1, 3_000))
def test_m71_a_last_attempt_is_alone_and_whoever_is_first_is_never_passed_over(
    lasts: list[bool], limit: int
) -> None:
    suspects = [(str(place), is_last) for place, is_last in enumerate(lasts)]

    group = group_of(suspects, limit)

    assert len(group) <= min(limit, SUSPECTS_AT_ONCE)
    assert group[:1] == [id_ for id_, _ in suspects[:1]]
    assert len(group) == 1 or not any(dict(suspects)[id_] for id_ in group)
    if not any(lasts):
        assert len(group) == min(len(lasts), limit, SUSPECTS_AT_ONCE)


def test_every_second_lease_looks_for_suspects_first() -> None:
    assert [suspects_first(turn, Lane.ANY) for turn in range(4)] == [False, True, False, True]
    assert not any(suspects_first(turn, Lane.HEALTHY) for turn in range(4))
    assert all(suspects_first(turn, Lane.SUSPECT) for turn in range(4))


def test_the_breaker_lets_through_all_one_or_none() -> None:
    later = NOW + timedelta(minutes=1)
    open_ = Breaker(BreakerStatus.OPEN, "why", NOW, later, 1)

    assert allowed_jobs(Breaker(), NOW, 7) == 7
    assert allowed_jobs(open_, NOW, 7) == 0
    assert allowed_jobs(open_, later, 7) == 1


def test_the_breaker_waits_longer_and_longer_but_not_for_ever() -> None:
    minutes = [pause_after(failures) // timedelta(minutes=1) for failures in range(1, 8)]

    assert minutes == [1, 2, 4, 8, 15, 15, 15]


def test_m72_whoever_fails_when_a_try_is_due_has_made_it_and_whoever_fails_before_has_not() -> None:
    first = opened(Breaker(), "down", NOW, is_outage=True, roll=0.0)
    assert first.probe_at is not None

    early = opened(first, "down", NOW + timedelta(seconds=9), is_outage=True, roll=0.0)
    late = opened(first, "down", first.probe_at, is_outage=True, roll=0.0)

    assert (early.failures, early.probe_at) == (1, first.probe_at)
    assert (late.failures, late.probe_at) == (2, first.probe_at + timedelta(seconds=20))


@given(failures=st.integers(0, 20), roll=st.floats(0, 1), is_outage=st.booleans())
def test_m72_probes_of_several_queues_spread_within_a_tenth_of_the_pause(
    failures: int, roll: float, *, is_outage: bool
) -> None:
    now = datetime(2026, 11, 16, tzinfo=UTC)
    before = Breaker(BreakerStatus.HALF_OPEN, "down", now, now, failures, is_outage)

    probe_at = opened(before, "down", now, is_outage=is_outage, roll=roll).probe_at

    assert probe_at is not None
    pause = pause_after(failures + 1, is_outage=is_outage)
    assert 0.9 * pause <= probe_at - now <= pause


@pytest.mark.parametrize(
    "name",
    ["", " a", "a ", "a\n", "a\0b", r"a\u0060b", "a\u202eb", "a\u200c", "x" * 129, None, 7],
)
def test_a_name_that_cannot_be_quoted_or_read_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="label"):
        EntityShape(label=name)


def test_two_properties_may_not_be_the_same() -> None:
    with pytest.raises(ConfigurationError, match="same name"):
        EntityShape(vector="name")
    with pytest.raises(ConfigurationError, match="same name"):
        EntityShape(observations="embedding_hash")


@pytest.mark.parametrize("order", ["name", "validTo", "embedding", "embedding_at"])
def test_what_orders_no_versions_is_refused(order: str) -> None:
    with pytest.raises(ConfigurationError, match=f"entity order is '{order}'"):
        EntityShape(order=order)


@pytest.mark.parametrize(
    ("value", "observations"),
    [
        ('["a", "b"]', ["a", "b"]),
        (["a", "b"], ["a", "b"]),
        ("just text", ["just text"]),
        ('{"a": 1}', ['{"a": 1}']),
        ("[1, null]", ["1", "null"]),
        ("", []),
        (None, []),
        (7, ["7"]),
    ],
)
def test_observations_come_in_many_shapes(value: object, observations: list[str]) -> None:
    assert read_observations(value) == observations


def test_the_text_of_a_memory() -> None:
    entity = {"name": "Ada", "entityType": "person", "observations": '["wrote", "computed"]'}

    assert memento_text(entity) == ("Name: Ada\nType: person\nObservations:\n- wrote\n- computed")


def test_the_same_text_has_the_same_hash_however_it_is_composed() -> None:
    composed, decomposed = ({"name": name} for name in ("Zo\u00eb", "Zoe\u0308"))

    assert text_hash(memento_text(composed)) == text_hash(memento_text(decomposed))
    assert text_hash("a") != text_hash("a", recipe="another")
    assert text_hash("\ud800")


@pytest.mark.parametrize(
    "text",
    [
        "Incorrect API key provided: sk-proj-abcdef123456.",
        "Authorization: Bearer abcdef.ghijkl",
        "bolt://neo4j:hunter2hunter2@host:7687",
        "OPENAI_API_KEY=abcdef123456",
        "{'password': 'hunter2 hunter2'}",
        'api_key="hunter2"',
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str) -> None:
    masked = redact(text)

    assert "***" in masked
    assert not any(secret in masked for secret in ("abcdef", "hunter2"))


def test_figures_are_not_secrets() -> None:
    text = "maximum context length is 8191 tokens: 9000 given, limit=20"

    assert redact(text) == text


def test_known_secrets_are_masked_wherever_they_stand() -> None:
    assert redact("x correct-horse y", ["correct-horse", "", "ab"]) == "x *** y"


def test_the_run_of_an_owner() -> None:
    assert [run_id_of(owner) for owner in ("run-1", "run-1/step/2")] == ["run-1", "run-1"]


READING = EntityReading(
    uid="ada",
    version=1,
    has_vector=True,
    dimensions=4,
    vector_model="m",
    vector_hash="h",
    vector_version=1,
    job_status=JobStatus.COMPLETED,
)


@pytest.mark.parametrize(
    ("changes", "coverage"),
    [
        ({}, Coverage.CURRENT),
        ({"has_vector": False, "vector_hash": None}, Coverage.MISSING),
        ({"has_vector": False, "job_status": None}, Coverage.MISSING),
        ({"has_vector": False}, Coverage.MISSING),
        ({"has_vector": False, "is_blank": True}, Coverage.EMPTY_TEXT),
        ({"is_ours": False, "is_blank": True}, Coverage.FOREIGN),
        ({"is_ours": False, "vector_model": "other"}, Coverage.FOREIGN),
        ({"vector_hash": "other"}, Coverage.STALE),
        ({"vector_version": 2}, Coverage.STALE),
        ({"is_wanted_anew": True}, Coverage.STALE),
        ({"vector_model": "other"}, Coverage.WRONG_MODEL),
        ({"dimensions": 8}, Coverage.WRONG_MODEL),
        ({"unfit": Unfit.VERSION}, Coverage.UNEMBEDDABLE),
        ({"unfit": Unfit.KEY_LONG, "has_vector": False}, Coverage.UNEMBEDDABLE),
    ],
)
def test_how_well_an_entity_is_covered(changes: dict[str, object], coverage: Coverage) -> None:
    fields = {name: getattr(READING, name) for name in READING.__slots__}
    reading = EntityReading(**{**fields, **changes})

    assert classify(reading, model="m", text_hash="h", dimensions=4) is coverage


def test_statuses_are_terminal_or_not() -> None:
    terminal = [status for status in JobStatus if status.is_terminal]

    assert terminal == [JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED]
    assert len(list(itertools.chain(*(sources for sources, _ in MOVES.values())))) > 8
