"""Every rule of the checker fires on a history that breaks it, and on a sound one none does."""

from collections.abc import Callable
from typing import Any

import pytest

from embed_pipeline.domain.relations import READ_AS
from embed_pipeline.domain.text import hash_of_entity, recipe_of, render_for
from tests.proof.chaos.checker import RULES, check
from tests.proof.chaos.evidence import Evidence
from tests.proof.chaos.graph import Graph
from tests.proof.chaos.history import ANSWER, ASK, ERROR, Event
from tests.proof.chaos.texts import (
    BETWEEN,
    DIMENSIONS,
    MODEL,
    SHAPE,
    pieces_of,
    stored_vector,
    vector_of,
)

JOB = "job-1"
UNTIL = 10_000


def hash_of(words: str) -> str:
    own = {"name": "ada", "observations": [words], READ_AS: []}
    render = render_for(SHAPE)
    return hash_of_entity(own, render(own), render=render, recipe=recipe_of(SHAPE))


OLD = hash_of("older words")


class Story:
    """A sound run of one job: written, leased, completed. Tests change it until it is not."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.purged: list[dict[str, Any]] = []
        self.killers: set[str] = set()
        self.refused: set[str] = set()
        self.entity: dict[str, Any] = {
            "name": "ada",
            "entityType": "chaos",
            "observations": ["words"],
            "version": 1,
            "chaos_writes": [f"{JOB}:1:1"],
            "chaos_texts": [f"{hash_of('words')}:words"],
        }
        self.relations: list[list[str]] = []
        self.unscanned: list[dict[str, Any]] = []
        self.embedded("words")
        self.job: dict[str, Any] = {
            "id": JOB,
            "entity_uid": "ada",
            "version": 1,
            "status": "completed",
            "attempts": 1,
            "max_attempts": 3,
            "fence": 1,
            "processed_at": 9_000,
            "labels": ["EmbedJob", "EmbedCompleted"],
        }
        self.entities, self.jobs = [self.entity], [self.job]
        self.written()
        self.leased(fence=1, attempts=1)
        self.asked("complete", 1, ["completed"])

    def embedded(self, words: str, *lines: str) -> None:
        """The entity has the vector and the pieces of a text."""
        text = f"ada\n{words}{BETWEEN}" + "\n".join(lines)
        self.entity["embedding"] = stored_vector(text)
        self.entity["pieces"] = [
            [index, piece.start, piece.start + len(words), words, MODEL, vector_of(words)]
            for index, piece in enumerate(pieces_of(text))
            for words in [piece.text]
        ]

    def related(self, kind: str, **row: str) -> None:
        self.add("relation", phase=ANSWER, kind=kind, row={"one": "ada", **row})

    def looked(self) -> dict[str, Any]:
        """Somebody has seen the entity as it is now."""
        seen = {name: self.entity.get(name) for name in ("name", "version", "embedding", "pieces")}
        self.add("look", **seen)
        return self.events[-1]

    def add(self, what: str, **facts: Any) -> None:
        self.events.append({"at": len(self.events), "who": "drain", "what": what, **facts})

    def written(
        self, *, version: int = 1, text: str = "words", kind: str = "create", **facts: Any
    ) -> None:
        rows = [{"uid": "ada", "version": version, "text": text}]
        facts = {"phase": ANSWER, "outcome": ["created"], **facts}
        self.add("write", kind=kind, rows=rows, **facts)

    def leased(
        self, *, fence: int, attempts: int, until: int | None = None, is_shared: bool = False
    ) -> None:
        until = UNTIL * fence if until is None else until
        row = {"id": JOB, "uid": "ada", "version": 1, "fence": fence, "attempts": attempts}
        row |= {"max": 3, "until": until}
        self.add("lease", jobs=[row, {**row, "id": "job-2"}] if is_shared else [row])

    def asked(self, what: str, fence: int, outcome: object) -> None:
        """A call about the lease; without an outcome its end is unknown."""
        call = len(self.events)
        self.add(what, phase=ASK, call=call, leases=[[JOB, fence]])
        if outcome is not None:
            self.add(what, phase=ANSWER, call=call, outcome=outcome)

    def recovered(self, *, late: int, status: str = "pending") -> None:
        row = {"id": JOB, "uid": "ada", "fence": 1, "attempts": 1, "status": status}
        self.add("recover", jobs=[{**row, "until": UNTIL, "at": UNTIL + late}])

    def left(self, *, fence: int, attempts: int, **more: Any) -> None:
        """What the job is in the end."""
        self.job.update(fence=fence, attempts=attempts, **more)

    def violations(self) -> set[str]:
        evidence = Evidence(
            self.events,
            Graph(self.entities, self.jobs, self.purged, self.relations, self.unscanned),
            frozenset(self.killers),
            frozenset(self.refused),
        )
        return {rule for rule, lines in check(evidence).items() if lines}


Change = Callable[[Story], object]


def two_things(*changes: Change) -> Change:
    return lambda story: [change(story) for change in changes]


def failed_by_the_provider(story: Story, *, attempts: int, is_shared: bool) -> None:
    story.leased(fence=attempts, attempts=attempts, is_shared=is_shared)
    story.asked("fail", attempts, ["failed"])
    why = {"status": "failed", "error_category": "TRANSIENT"}
    story.left(fence=attempts, attempts=attempts, **why)


BROKEN: list[tuple[str, str, Change]] = [
    ("lost job", "no job", lambda s: s.jobs.clear()),
    ("lost job", "two jobs", lambda s: s.jobs.append({**s.job, "id": "job-2"})),
    ("lost job", "a job nobody wanted", lambda s: s.events.pop(0)),
    ("lost write", "entity gone", lambda s: s.entities.clear()),
    ("lost write", "older text", lambda s: s.written(text="newer words", outcome=["present"])),
    ("lost write", "entity back", lambda s: s.written(kind="delete", outcome=None)),
    ("applied twice", "same lease", lambda s: s.entity["chaos_writes"].append(f"{JOB}:1:1")),
    ("applied twice", "same life", lambda s: s.entity["chaos_writes"].append(f"{JOB}:2:1")),
    ("stale writer", "said completed", lambda s: s.entity.update(chaos_writes=[f"{JOB}:2:1"])),
    ("stale writer", "never asked", lambda s: s.entity["chaos_writes"].append("job-9:1:1")),
    ("stale vector", "no vector", lambda s: s.entity.pop("embedding")),
    ("stale vector", "of other words", lambda s: s.entity.update(embedding=stored_vector("x"))),
    ("stale vector", "of former neighbours", lambda s: s.relations.append(["ada", "ada"])),
    ("other words", "it was late", lambda s: s.entity["chaos_texts"].append(f"{OLD}:words")),
    (
        "text that never was",
        "other words",
        two_things(lambda s: s.embedded("nobody's words"), lambda s: s.looked()),
    ),
    (
        "text that never was",
        "a neighbour that it never had",
        two_things(lambda s: s.embedded("words", "knows bob"), lambda s: s.looked()),
    ),
    (
        "own words lost",
        "older words before the scan",
        two_things(
            lambda s: s.unscanned.append({**s.entity, "observations": ["newer words"]}),
        ),
    ),
    (
        "pieces of two texts",
        "an old one beside",
        lambda s: s.entity["pieces"].append([0, 0, 1, "x", MODEL, vector_of("x")]),
    ),
    (
        "pieces of two texts",
        "of another text",
        lambda s: s.looked()["pieces"][0].__setitem__(3, "y"),
    ),
    (
        "pieces of two texts",
        "the vector of another",
        lambda s: s.entity["pieces"][0].__setitem__(5, vector_of("y")),
    ),
    (
        "pieces of two texts",
        "a vector of another model",
        lambda s: s.entity["pieces"][0].__setitem__(4, "another"),
    ),
    ("pieces of two texts", "no vector", lambda s: s.looked().update(embedding=None)),
    ("bad vector", "zero", lambda s: s.entity.update(embedding=[0.0] * DIMENSIONS)),
    ("bad vector", "not finite", lambda s: s.entity.update(embedding=[float("nan")] * DIMENSIONS)),
    ("bad vector", "too short", lambda s: s.entity.update(embedding=[1.0])),
    ("version went back", "2 then 1", lambda s: s.entity["chaos_writes"].insert(0, f"{JOB}:1:2")),
    ("fence", "given out twice", lambda s: s.leased(fence=1, attempts=1)),
    ("fence", "fell", lambda s: s.left(fence=0, attempts=0)),
    ("fence", "older than the one before", lambda s: s.leased(fence=2, attempts=2, until=1)),
    ("attempts", "one too many", lambda s: s.left(fence=1, attempts=2)),
    ("attempts", "one too few", lambda s: s.left(fence=2, attempts=1)),
    (
        "attempts",
        "release without refund",
        two_things(lambda s: s.asked("release", 2, 1), lambda s: s.left(fence=2, attempts=2)),
    ),
    ("attempts", "refund of another job", lambda s: gave_back_something_else(s)),
    ("over max", "leased", lambda s: s.leased(fence=4, attempts=4)),
    ("over max", "in the end", lambda s: s.left(fence=4, attempts=4)),
    ("innocent failed", "in the end", lambda s: s.left(fence=1, attempts=1, status="failed")),
    ("innocent failed", "and was retried", lambda s: s.asked("fail", 1, ["failed"])),
    (
        "innocent failed",
        "in company at last, and was asked for again",
        lambda s: was_asked_for_again_after_its_last_attempt(s, is_shared=True),
    ),
    (
        "innocent failed",
        "by the expiry of a shared lease",
        two_things(
            lambda s: s.leased(fence=2, attempts=2, is_shared=True),
            lambda s: s.recovered(late=1, status="failed"),
            lambda s: s.left(fence=2, attempts=2, status="failed"),
        ),
    ),
    (
        "innocent failed",
        "by an answer to a request of several",
        lambda s: failed_by_the_provider(s, attempts=3, is_shared=True),
    ),
    (
        "innocent failed",
        "by an answer that was not the last",
        lambda s: failed_by_the_provider(s, attempts=2, is_shared=False),
    ),
    (
        "innocent failed",
        "because it killed its drain",
        two_things(
            lambda s: s.recovered(late=1, status="failed"),
            lambda s: s.add("poisoned"),
            lambda s: s.left(fence=1, attempts=1, status="failed"),
        ),
    ),
    ("poison", "killer completed", lambda s: s.killers.add("ada")),
    (
        "poison",
        "killer failed early",
        two_things(
            lambda s: s.killers.add("ada"),
            lambda s: s.left(fence=1, attempts=1, status="failed"),
        ),
    ),
    (
        "poison",
        "refused text failed otherwise",
        two_things(
            lambda s: s.refused.add("ada"),
            lambda s: s.left(fence=1, attempts=1, status="failed", error_category="TRANSIENT"),
        ),
    ),
    ("stuck", "pending", lambda s: s.left(fence=1, attempts=1, status="pending")),
    ("stuck", "processing", lambda s: s.left(fence=1, attempts=1, status="processing")),
    ("recovered early", "still alive", lambda s: s.recovered(late=-1)),
    ("recovered late", "after a minute", lambda s: s.recovered(late=60_000)),
    (
        "cleaned up wrongly",
        "in work",
        lambda s: s.purged.append({**s.job, "id": "old", "status": "processing"}),
    ),
    ("inconsistent job", "wrong label", lambda s: s.job.update(labels=["EmbedJob"])),
    ("inconsistent job", "completed with a lock", lambda s: s.job.update(lock_owner="me")),
]


def test_a_sound_run_has_no_violation() -> None:
    assert Story().violations() == set()


@pytest.mark.parametrize(
    ("rule", "change"),
    [(rule, change) for rule, _, change in BROKEN],
    ids=[f"{rule}: {how}" for rule, how, _ in BROKEN],
)
def test_a_broken_promise_is_found(rule: str, change: Change) -> None:
    story = Story()

    change(story)

    assert rule in story.violations()


def test_every_rule_is_seen_to_fire() -> None:
    assert {rule for rule, _, _ in BROKEN} == set(RULES)


def revived(story: Story) -> None:
    """The text has changed after the vector was written, and the job has begun a second life."""
    story.written(text="newer words", kind="update", outcome=["revived"])
    story.leased(fence=2, attempts=1)
    story.asked("complete", 2, ["completed"])
    story.left(fence=2, attempts=1)
    story.entity["observations"] = ["newer words"]
    story.embedded("newer words")
    story.entity["chaos_writes"].append(f"{JOB}:2:1")


def cancelled(story: Story) -> None:
    """An operator has stopped the job before it was done."""
    story.events = story.events[:1]
    story.add("cancel", phase=ERROR, id=JOB, uid="ada", version=1)
    story.left(fence=0, attempts=0, status="cancelled", labels=["EmbedJob", "EmbedCancelled"])
    del story.entity["embedding"], story.entity["chaos_writes"]
    story.entity["pieces"] = []


def killed_after_its_release(story: Story) -> None:
    """Nobody knows whether the second lease was refunded: it was."""
    story.events = story.events[:1]
    story.leased(fence=1, attempts=1)
    story.asked("release", 1, None)
    story.leased(fence=2, attempts=1)
    story.asked("complete", 2, ["completed"])
    story.left(fence=2, attempts=1)
    story.entity["chaos_writes"] = [f"{JOB}:2:1"]


def gave_back_all_it_held_after_an_outage(story: Story) -> None:
    """It heard how many jobs it gave back, but not which: this one was among them."""
    story.events = story.events[:1]
    story.leased(fence=1, attempts=1)
    story.add("refund", leases=[[JOB, 1]])
    story.leased(fence=2, attempts=1)
    story.asked("complete", 2, ["completed"])
    story.left(fence=2, attempts=1)
    story.entity["chaos_writes"] = [f"{JOB}:2:1"]


def gave_back_what_it_had_not_heard_of(story: Story) -> None:
    """The answer to its lease was lost; after the outage it gave the job back by its own name."""
    story.events = story.events[:1]
    story.add("refund", leases=[[JOB, 1]])
    story.leased(fence=2, attempts=1)
    story.asked("complete", 2, ["completed"])
    story.left(fence=2, attempts=1)
    story.entity["chaos_writes"] = [f"{JOB}:2:1"]


def gave_back_something_else(story: Story) -> None:
    """A refund of another job is no excuse for this one."""
    gave_back_what_it_had_not_heard_of(story)
    for event in story.events:
        if event["what"] == "refund":
            event["leases"] = [["job-2", 1]]


def killed_before_it_knew_of_its_lease(story: Story) -> None:
    """Fence 1 was given out, but nobody has said so."""
    story.events = story.events[:1]
    story.leased(fence=2, attempts=2)
    story.asked("complete", 2, ["completed"])
    story.left(fence=2, attempts=2)
    story.entity["chaos_writes"] = [f"{JOB}:2:1"]


def cleaned_up(story: Story) -> None:
    """The retention is over; the vector stays."""
    story.purged.append(story.jobs.pop())


def recovered_after_an_outage(story: Story) -> None:
    """Nobody could have asked the server earlier."""
    story.add("server", state="down")
    story.events[-1]["at"] = UNTIL
    story.add("server", state="up")
    story.events[-1]["at"] = UNTIL + 40_000
    story.add("blackout", since=UNTIL + 30_000, until=UNTIL + 60_000)
    story.recovered(late=61_000)


def lost_its_last_attempt_to_the_harness(story: Story) -> None:
    """It was alone, and its drain was killed by nobody's text."""
    story.events = story.events[:1]
    for attempt in (1, 2, 3):
        story.leased(fence=attempt, attempts=attempt)
    story.recovered(late=1, status="failed")
    labels = ["EmbedJob", "EmbedFailed"]
    story.left(fence=3, attempts=3, status="failed", labels=labels)
    del story.entity["embedding"], story.entity["chaos_writes"]
    story.entity["pieces"] = []


def lost_its_last_attempt_to_the_provider(story: Story) -> None:
    """It was alone, and the answer to its request was 500."""
    lost_its_last_attempt_to_the_harness(story)
    story.events.pop()
    story.asked("fail", 3, ["failed"])
    story.left(fence=3, attempts=3, error_category="TRANSIENT")


def was_asked_for_again_after_its_last_attempt(story: Story, *, is_shared: bool = False) -> None:
    """The provider lost it, and then somebody changed the text: in the end nothing has failed."""
    story.events = story.events[:1]
    for attempt in (1, 2, 3):
        story.leased(fence=attempt, attempts=attempt, is_shared=is_shared)
    story.add("transient", leases=[[JOB, 3]])
    story.asked("fail", 3, ["failed"])
    story.add("revived", uid="ada", version=1, is_put_off=False)
    story.leased(fence=4, attempts=1)
    story.asked("complete", 4, ["completed"])
    story.left(fence=4, attempts=1)
    story.entity["chaos_writes"] = [f"{JOB}:4:1"]


def lost_its_last_attempt_to_a_query_of_others(story: Story) -> None:
    """As above, but somebody else's recovery took the lease, and the adoption a fence."""
    lost_its_last_attempt_to_the_harness(story)
    story.events.pop()
    story.add("edit", ids=[JOB])
    story.add("exhausted", id=JOB, fence=3)
    story.left(fence=4, attempts=3)


def neighbours_came_and_went(story: Story) -> None:
    """Whoever looked in between found what was current then; the scan has asked for the rest."""
    bob = {"name": "bob", "version": 1, "observations": ["b"], "alias": "Bobby", "pieces": []}
    story.related("add", other="bob")
    story.related("rename", one="bob", alias="Bobby")
    story.embedded("words", "knows bob")
    story.looked()
    story.unscanned.append(dict(story.entity))
    story.add("revived", uid="ada", version=1, is_put_off=True)
    story.leased(fence=2, attempts=1)
    story.asked("complete", 2, ["completed"])
    story.left(fence=2, attempts=1)
    story.entity["chaos_writes"].append(f"{JOB}:2:1")
    story.killers.add("bob")
    story.entities.append(bob)
    story.jobs.append(
        {
            **story.job,
            "id": "job-b",
            "entity_uid": "bob",
            "status": "failed",
            "attempts": 3,
            "fence": 3,
        }
        | {"labels": ["EmbedJob", "EmbedFailed"]}
    )
    story.add("write", kind="x", phase=ANSWER, rows=[{"uid": "bob", "version": 1, "text": "b"}])
    story.relations.append(["ada", "bob"])
    story.embedded("words", "knows Bobby")


def deleted(story: Story) -> None:
    """The entity is gone; the job tells that it once was."""
    story.written(kind="delete", outcome=None)
    story.entities.clear()


@pytest.mark.parametrize(
    "change",
    [
        revived,
        cancelled,
        killed_after_its_release,
        gave_back_all_it_held_after_an_outage,
        gave_back_what_it_had_not_heard_of,
        killed_before_it_knew_of_its_lease,
        cleaned_up,
        recovered_after_an_outage,
        lost_its_last_attempt_to_the_harness,
        lost_its_last_attempt_to_the_provider,
        was_asked_for_again_after_its_last_attempt,
        lost_its_last_attempt_to_a_query_of_others,
        deleted,
        neighbours_came_and_went,
    ],
    ids=lambda change: change.__name__,
)
def test_what_may_happen_is_no_violation(change: Change) -> None:
    story = Story()

    change(story)

    assert story.violations() == set()
