"""History and graph, arranged by what the rules of the checker ask for."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tests.proof.chaos.graph import Graph
from tests.proof.chaos.history import ANSWER, ASK, ERROR, Event

Pair = tuple[str, int]
"""A job and a fence."""
Key = tuple[str, int]
"""An entity and a version."""
Facts = dict[str, Any]

REFUNDS = {"moved", "given_back"}


@dataclass(frozen=True)
class Evidence:
    """Everything that is known after a run."""

    history: list[Event]
    graph: Graph
    killers: frozenset[str] = field(default=frozenset())
    refused: frozenset[str] = field(default=frozenset())
    """Entities whose text is at fault; all others are innocent."""

    @property
    def special(self) -> frozenset[str]:
        return self.killers | self.refused

    def of(self, what: str, phase: str | None = None) -> Iterator[Event]:
        return (
            event
            for event in self.history
            if event["what"] == what and (phase is None or event.get("phase") == phase)
        )

    @cached_property
    def leases(self) -> dict[str, list[Facts]]:
        """Leases that somebody heard of, by job, in the order of their fences."""
        found: dict[str, list[Facts]] = defaultdict(list)
        for event in self.of("lease"):
            for job in event["jobs"]:
                found[job["id"]].append({**job, "who": event["who"]})
        return {job: sorted(rows, key=lambda row: row["fence"]) for job, rows in found.items()}

    @cached_property
    def unlucky(self) -> frozenset[str]:
        """Jobs that failed because their last attempt, made alone, was hurt: drain or request.

        The queue cannot tell that from a poison, and the harness hurts whom it likes. A lease that
        it shared, or that the job itself has ended, excuses nothing; one that nobody heard of does.
        """
        alone = {
            (event["jobs"][0]["id"], event["jobs"][0]["fence"])
            for event in self.of("lease")
            if len(event["jobs"]) == 1
        }
        poisoned = {event["who"] for event in self.of("poisoned")}
        failed = {job["id"] for job in self.recoveries if job["status"] == "failed"}
        expired = {id_: self.all_jobs[id_]["fence"] for id_ in failed & self.all_jobs.keys()}
        # Its adoption took the next fence.
        expired |= {event["id"]: event["fence"] for event in self.of("exhausted")}
        found: set[str] = set()
        for id_, fence in expired.items():
            heard = [lease for lease in self.leases.get(id_, []) if lease["fence"] == fence]
            if all((id_, fence) in alone and lease["who"] not in poisoned for lease in heard):
                found.add(id_)
        # The provider said 500, or the server had no time to read the text: the drain lived on.
        for id_, job in self.all_jobs.items():
            is_used_up = job["status"] == "failed" and job["attempts"] >= job["max_attempts"]
            if is_used_up and job.get("error_category") == "TRANSIENT":
                heard = [x for x in self.leases.get(id_, []) if x["fence"] == job["fence"]]
                if all((id_, lease["fence"]) in alone for lease in heard):
                    found.add(id_)
        # So it was with those that somebody has asked for again since.
        hurt = {(id_, fence) for event in self.of("transient") for id_, fence in event["leases"]}
        last = {
            (id_, lease["fence"])
            for id_, leases in self.leases.items()
            for lease in leases
            if lease["attempts"] >= lease["max"]
        }
        for what, (id_, fence), word in self.outcomes:
            if what == "fail" and word == "failed" and (id_, fence) in hurt & last & alone:
                found.add(id_)
        return frozenset(found)

    @cached_property
    def recoveries(self) -> list[Facts]:
        return [job for event in self.of("recover") for job in event["jobs"]]

    @cached_property
    def all_jobs(self) -> dict[str, Facts]:
        """Jobs by id, also those that were cleaned up."""
        return {job["id"]: job for job in [*self.graph.purged, *self.graph.jobs]}

    @cached_property
    def uid_of(self) -> dict[str, str]:
        return {id_: job["entity_uid"] for id_, job in self.all_jobs.items()}

    @cached_property
    def outcomes(self) -> list[tuple[str, Pair, str | None]]:
        """What was asked about each lease and what came of it; None where nobody knows."""
        answers = {
            (event["who"], event["what"], event["call"]): event["outcome"]
            for what in ("complete", "fail", "release")
            for event in self.of(what, ANSWER)
        }
        found: list[tuple[str, Pair, str | None]] = []
        for what in ("complete", "fail", "release"):
            for event in self.of(what, ASK):
                pairs = [(id_, fence) for id_, fence in event["leases"]]
                answer = answers.get((event["who"], what, event["call"]))
                words = _words(what, answer, len(pairs))
                found += [(what, *row) for row in zip(pairs, words, strict=True)]
        return found

    @cached_property
    def refunds(self) -> set[Pair]:
        return {pair for what, pair, word in self.outcomes if word in REFUNDS or word == "released"}

    @cached_property
    def doubtful_refunds(self) -> set[Pair]:
        """Calls without an answer, and refunds that were noted before their commit."""
        unheard = {pair for _, pair, word in self.outcomes if word is None}
        noted = {(id_, fence) for event in self.of("refund") for id_, fence in event["leases"]}
        return (unheard | noted) - self.refunds

    @cached_property
    def edits(self) -> Counter[str]:
        """How often others have written or changed a job; its adoption takes a fence each time."""
        return Counter(id_ for event in self.of("edit") for id_ in event["ids"])

    @cached_property
    def writes(self) -> dict[str, list[tuple[str, int, int]]]:
        """Committed vectors by entity, in their order: job, its fence, version."""
        return {
            entity["name"]: [
                (id_, int(fence), int(version))
                for id_, fence, version in (
                    line.split(":") for line in entity.get("chaos_writes", [])
                )
            ]
            for entity in self.graph.entities
        }

    @cached_property
    def last_written(self) -> dict[str, Facts]:
        """The last write of each entity that was acknowledged."""
        found: dict[str, Facts] = {}
        for event in self.of("write", ANSWER):
            for row in event["rows"]:
                found[row["uid"]] = {**row, "is_deleted": event["kind"] == "delete"}
        return found

    @cached_property
    def wanted(self) -> set[Key]:
        """Keys of all jobs that an acknowledged write has asked for."""
        return set(self._written_keys(ANSWER))

    @cached_property
    def doubtful(self) -> Counter[Key]:
        """Keys of writes of which nobody knows whether they were committed."""
        return Counter(self._written_keys(ERROR))

    @cached_property
    def cancelled(self) -> set[Key]:
        """Keys that an operator has cancelled, or may have."""
        return {
            (event["uid"], event["version"])
            for event in self.of("cancel")
            if event["phase"] in (ANSWER, ERROR)
        }

    @cached_property
    def reopenings(self) -> Counter[Key]:
        """How often a finished job may have begun a new life, at most."""
        found = Counter(self.doubtful)
        for event in self.of("write", ANSWER):
            for row, outcome in zip(event["rows"], event.get("outcome") or [], strict=False):
                found[row["uid"], row["version"]] += outcome == "revived"
        for event in self.of("revived"):
            found[event["uid"], event["version"]] += 1
        for event in self.of("retry", ANSWER):
            for id_ in event["ids"]:
                job = self.all_jobs.get(id_)
                if job is not None:
                    found[job["entity_uid"], job["version"]] += 1
        if any(self.of("retry", ERROR)):
            for job in self.all_jobs.values():
                found[job["entity_uid"], job["version"]] += job["entity_uid"] in self.special
        return found

    @cached_property
    def blackouts(self) -> list[tuple[int, int]]:
        """When the server was dead or too slow, in order and without overlaps."""
        found: list[tuple[int, int]] = []
        felt = [(event["since"], event["until"]) for event in self.of("blackout")]
        for since, until in sorted([*felt, *self._outages()]):
            if found and since <= found[-1][1]:
                found[-1] = (found[-1][0], max(found[-1][1], until))
            else:
                found.append((since, until))
        return found

    def lateness(self, recovery: Facts) -> int:
        """Milliseconds between expiry and recovery in which the server could have been asked."""
        begin, end = recovery["until"], recovery["at"]
        dark = sum(max(0, min(end, until) - max(begin, since)) for since, until in self.blackouts)
        return end - begin - dark

    def _outages(self) -> Iterator[tuple[int, int]]:
        since = None
        for event in self.of("server"):
            if event["state"] == "up" and since is not None:
                yield since, event["at"]
            since = event["at"]

    def _written_keys(self, phase: str) -> Iterable[Key]:
        for event in self.of("write", phase):
            if event["kind"] != "delete":
                for row in event["rows"]:
                    yield (row["uid"], row["version"])


def _words(what: str, answer: Any, count: int) -> list[str | None]:
    if answer is None:
        return [None] * count
    if what == "release":
        # Only the number is told: who lost one of several leases cannot say which.
        return ["released" if answer == count else None] * count
    return list(answer)
